"""Domains that change: one after another (continual), or every few images (frequent).

All methods, including the frozen model, keep model, banks and identifier between domains: a method is not informed that
the domain has changed. (The published code resets the score bank of the frozen classifier in every domain, but that of
no other method; D22.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .mixing import (
    CHOOSE_DESIRED,
    CHOOSE_UNDESIRED,
    at_least_one,
    generator,
    invalid,
    shuffled,
    unknown_counts,
    visit_orders,
)
from .stream import Domain, Stream, Visit, numbered_names


class Continual(Stream):
    """Domain after domain. Each has all known images, and unknown images by the ratio, in a seeded permutation.

    Domains with the same unknown set show the same unknown images in different orders. A domain that is listed twice
    counts as two domains, so that the second visit can be compared with the first.
    """

    def __init__(self, domains: Sequence[Domain], *, ratio: float = 1.0, seed: int = 0) -> None:
        _require_domains(domains)
        visits, short_of = [], 0
        for number, domain in enumerate(domains):
            desired, undesired = domain.desired, domain.undesired
            required, available = unknown_counts(desired, undesired, ratio)
            shown = min(required, available)
            order = shuffled(np.arange(len(desired)), np.arange(shown), generator(seed, number))
            visits.append(Visit(number, desired, undesired, order))
            short_of += required - shown
        options = {
            "kind": "continual",
            "ratio": ratio,
            "seed": seed,
            "domains": [dict(domain.options) for domain in domains],
        }
        super().__init__(numbered_names([domain.name for domain in domains]), visits, options, short_of=short_of)


class Frequent(Stream):
    """The domain changes after every `images` known images, in turn, until each known image has been shown once.

    Unknown images are added by the ratio and shuffled within a visit, so that a visit has images * (1 + ratio) steps.
    The seed assigns images to visits. All domains must have the same images under other conditions. Results of all
    visits to a domain are reported under its name. Domains that are not reached are omitted.
    """

    def __init__(self, domains: Sequence[Domain], images: int, *, ratio: float = 1.0, seed: int = 0) -> None:
        _require_domains(domains)
        at_least_one("images", images)
        _require_same_images(domains)
        total = len(domains[0].desired)
        sizes = [min(images, total - start) for start in range(0, total, images)]
        counts = [unknown_counts(domain.desired, domain.undesired, ratio) for domain in domains]
        required = counts[0][0]
        shown = min(required, *(available for _, available in counts))
        desired = generator(seed, purpose=CHOOSE_DESIRED).permutation(total)
        undesired = generator(seed, purpose=CHOOSE_UNDESIRED).permutation(shown)
        visits = []
        for number, order in enumerate(visit_orders(desired, undesired, sizes, seed)):
            domain = domains[number % len(domains)]
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
            notes.append(f"The stream reaches only {len(reached)} of the {len(domains)} domains.")
        names = [domain.name for domain in reached]
        super().__init__(names, visits, options, short_of=required - shown, notes=notes)


def _require_domains(domains: Sequence[Domain]) -> None:
    if not domains:
        raise invalid("A stream needs at least one domain; the list of domains is empty.")


def _require_same_images(domains: Sequence[Domain]) -> None:
    """Raise an Error unless the domains are different, and differ only in the condition of their images."""
    first, names = domains[0], [domain.name for domain in domains]
    for domain in domains:
        if len(domain.desired) != len(first.desired):
            raise invalid(
                f"Domains that change every few images must have the same images, but {domain.name} has "
                f"{len(domain.desired)} and {first.name} has {len(first.desired)}."
            )
        if (domain.undesired is None) != (first.undesired is None):
            raise invalid("Domains that change every few images must all have unknown images, or none of them.")
        if names.count(domain.name) > 1:
            raise invalid(f"Domains that change every few images are repeated in turn: list {domain.name} only once.")
