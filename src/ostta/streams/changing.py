"""Domains that change: one after another (continual), or every few images (frequent).

Model, banks and identifier carry over from domain to domain in every method, the frozen one too: nothing tells a method
that the domain has changed. (The published code starts the frozen classifier's score bank anew in every domain, and no
other method's; D22.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.types import Error
from .mixing import (
    CHOOSE_DESIRED,
    CHOOSE_UNDESIRED,
    at_least_one,
    check_desired,
    generator,
    shuffled,
    spread,
    wanted_and_there,
)
from .stream import Domain, Stream, Visit, told_apart


class Continual(Stream):
    """Domain after domain, each mixed as a single one is: all desired images, and undesired ones by the ratio.

    The same undesired images come again in every domain that has the same undesired set, in an order of its own. A
    domain that is listed twice counts as two, so that the second visit can be compared with the first.
    """

    def __init__(self, domains: Sequence[Domain], *, ratio: float = 1.0, seed: int = 0) -> None:
        _check_domains(domains)
        visits, short_of = [], 0
        for number, domain in enumerate(domains):
            desired, undesired = domain.desired, domain.undesired
            wanted, there = wanted_and_there(len(desired), undesired, ratio)
            taken = min(wanted, there)
            order = shuffled(np.arange(len(desired)), np.arange(taken), generator(seed, number))
            visits.append(Visit(number, desired, undesired, order))
            short_of += wanted - taken
        options = {
            "kind": "continual",
            "ratio": ratio,
            "seed": seed,
            "domains": [dict(domain.options) for domain in domains],
        }
        super().__init__(told_apart([domain.name for domain in domains]), visits, options, short_of=short_of)


class Frequent(Stream):
    """The domain changes after every `images` desired images, round and round, until each has been shown once.

    `images` counts desired images; the undesired ones join them in the stream's ratio, shuffled within the visit, so
    that one visit to a domain has images * (1 + ratio) steps. Which images fall into which visit is random, by the
    seed. All domains must be the same images under other conditions. Visits to one domain are pooled under its name;
    domains that are never reached are left out.
    """

    def __init__(self, domains: Sequence[Domain], images: int, *, ratio: float = 1.0, seed: int = 0) -> None:
        _check_domains(domains)
        at_least_one("images", images)
        total = len(domains[0].desired)
        for domain in domains:
            if len(domain.desired) != total:
                raise Error(
                    f"Domains that change every few images must hold the same images, but {domain.name} has "
                    f"{len(domain.desired)} and {domains[0].name} has {total}."
                )
        if len({domain.undesired is None for domain in domains}) > 1:
            raise Error("Domains that change every few images must all have undesired images, or none of them.")
        names = [domain.name for domain in domains]
        if len(set(names)) < len(names):
            raise Error(
                f"Domains that change every few images come round by themselves: list each once, not {_listed(names)}."
            )
        sizes = [min(images, total - start) for start in range(0, total, images)]
        counts = [wanted_and_there(total, domain.undesired, ratio) for domain in domains]
        wanted = counts[0][0]
        taken = min(wanted, *(there for _, there in counts))
        desired = generator(seed, purpose=CHOOSE_DESIRED).permutation(total)
        undesired = generator(seed, purpose=CHOOSE_UNDESIRED).permutation(taken)
        starts, bounds = spread(total, sizes), spread(taken, sizes)
        visits = []
        for number in range(len(sizes)):
            domain = domains[number % len(domains)]
            known = desired[starts[number] : starts[number + 1]]
            unknown = undesired[bounds[number] : bounds[number + 1]]
            order = shuffled(known, unknown, generator(seed, number))
            visits.append(Visit(number % len(domains), domain.desired, domain.undesired, order))
        reached = domains[: len(sizes)]
        options = {
            "kind": "frequent",
            "images": images,
            "ratio": ratio,
            "seed": seed,
            "domains": [dict(domain.options) for domain in domains],
        }
        notes = []
        if len(reached) < len(domains):
            notes.append(f"The stream reaches only {len(reached)} of the {len(domains)} domains asked for.")
        super().__init__([domain.name for domain in reached], visits, options, short_of=wanted - taken, notes=notes)


def _check_domains(domains: Sequence[Domain]) -> None:
    if not domains:
        raise Error("A stream needs at least one domain; the list of domains is empty.")
    for domain in domains:
        check_desired(domain.desired)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted({name for name in names if names.count(name) > 1})) + " twice"
