"""A comparison on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ...core.words import counted
from ..suite import METRICS
from ..tables.layout import number
from .comparison import Compared, ComparedPair, Comparison
from .settings import Setting

# Lines of settings and of runs without a partner that are printed; the rest is counted.
MOST = 12


def text(comparison: Comparison) -> str:
    """A short table: what differs, figures of B minus those of A, and how many images changed sides."""
    sides, alone = comparison.sides, len(comparison.pairs) == 1
    lines = [f"A  {sides.first}", f"B  {sides.second}"]
    shared = comparison.common
    lines += _settings("What differs" if alone else "What differs in all pairs", shared)
    for each in comparison.pairs:
        seeds = ", ".join(map(str, each.pair.seeds))
        lines += ["", f"{each.pair.name}: {each.pair.stream}, seed{'s' * (len(each.pair.seeds) > 1)} {seeds}"]
        own = [one for one in each.settings if one not in shared]
        lines += _settings("What differs here too", own) if own else []
        lines += [f"  {line}" for line in _figures(each.figures)]
        lines += [f"  {line}" for line in changed_words(each)]
    for name, left in (("A", sides.only_first), ("B", sides.only_second)):
        if left:
            names = ", ".join(filed.path.name for filed in left[:3]) + (", ..." if len(left) > 3 else "")
            lines += ["", f"{counted(len(left), 'run')} only in {name}: {names}"]
    lines += ["", *notes(comparison)]
    return "\n".join(lines) + "\n"


def notes(comparison: Comparison) -> list[str]:
    """What the brackets and the star mean; nothing where there are none."""
    if not comparison.intervals:
        return []
    return [
        "In brackets: the paired 95 % interval of B minus A over images, from 1,000 resamples of the images that both saw. "
        f"* it excludes zero, also by Holm's correction for the {comparison.intervals} differences of this comparison."
    ]


def difference(figure: Compared) -> str:
    """B minus A with its interval, as tables print it."""
    written = number(figure.difference, figure.metric, signed=True)
    if figure.low is None or figure.high is None:
        return written
    low, high = (number(bound, figure.metric, signed=True) for bound in (figure.low, figure.high))
    return f"{written} [{low}, {high}]{'*' if figure.marked else ''}"


def changed_words(each: ComparedPair) -> list[str]:
    """How many images changed sides, in sentences; or why that is not known."""
    found = each.changes
    if found is None:
        return [each.why_not]
    return [
        f"images: {found.shown:,} shown, {each.images:,} different ones; {found.wrong_to_right:,} wrong in A and right in B, "
        f"{found.right_to_wrong:,} right in A and wrong in B",
        f"        {found.rejected_to_accepted:,} rejected in A and accepted in B, {found.accepted_to_rejected:,} accepted in A and "
        f"rejected in B, {found.other_class:,} accepted in both with another class",
    ]


def content(comparison: Comparison) -> dict[str, Any]:
    """All of it as plain values."""
    sides = comparison.sides
    return {
        "first": str(sides.first),
        "second": str(sides.second),
        "common": [asdict(each) for each in comparison.common],
        "pairs": [
            {
                "name": each.pair.name,
                "stream": each.pair.stream,
                "seeds": each.pair.seeds,
                "files": [[filed.path.name for filed in side] for side in (each.pair.first, each.pair.second)],
                "settings": [asdict(one) for one in each.settings],
                "figures": [asdict(figure) for figure in each.figures],
                "changes": None if each.changes is None else asdict(each.changes),
                "images": each.images,
                "why_not": each.why_not or None,
            }
            for each in comparison.pairs
        ],
        "only_first": [filed.path.name for filed in sides.only_first],
        "only_second": [filed.path.name for filed in sides.only_second],
    }


def as_json(comparison: Comparison) -> str:
    """For programs."""
    return json.dumps(content(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _settings(title: str, found: Sequence[Setting]) -> Iterator[str]:
    yield f"{title}:" if found else f"{title}: nothing but the figures"
    width = max((len(each.field) for each in found), default=0)
    for each in found[:MOST]:
        yield f"  {each.field:<{width}}  {each.first} | {each.second}"
    if len(found) > MOST:
        yield f"  and {len(found) - MOST} more, in `--format json`"


def _figures(figures: Sequence[Compared]) -> Iterator[str]:
    yield f"{'':<10} {'A':>7} {'B':>7}  B minus A"
    for figure in figures:
        if figure.first is not None or figure.second is not None:
            one, other = (number(value, figure.metric) for value in (figure.first, figure.second))
            yield f"{METRICS[figure.metric]:<10} {one:>7} {other:>7}  {difference(figure)}"
