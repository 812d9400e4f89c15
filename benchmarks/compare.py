"""Compare variants of one computation: they take turns, ratios are of one round, and their results are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from rich.table import Table

from .timing import Call, alternate

# A way that takes this many times as long as the one it is set against is clear after a few rounds.
SLOW, FEW = 4.0, 3


@dataclass(frozen=True)
class Way:
    """One way. Its time is set against that of the way `against`, and so is what it returns, where that is a tensor."""

    what: str
    call: Call
    against: str


@dataclass(frozen=True)
class Row:
    """Medians of one way, with the lowest and highest ratio of a round.

    difference: the largest between the tensors returned: unit features, or the unit gradient where there is a backward.
    first_s: seconds of the first call, in which a compiler does its work.
    failed: the reason, where it did not run.
    """

    section: str
    what: str
    against: str
    ms: float | None = None
    ratio: float | None = None
    lowest: float | None = None
    highest: float | None = None
    difference: float | None = None
    first_s: float | None = None
    failed: str = ""


def compare(section: str, ways: Iterable[Way], rounds: int) -> list[Row]:
    """A row for each way, in order."""
    known, returned, first, failed = {}, {}, {}, {}
    for way in ways:
        known[way.what] = way
        began = time.perf_counter()
        try:
            returned[way.what] = way.call()
        except Exception as problem:  # a compiler, a quantiser: anything may come
            failed[way.what] = f"{type(problem).__name__}: {(str(problem).strip() or '-').splitlines()[0][:160]}"
        first[way.what] = time.perf_counter() - began
    calls = {what: known[what].call for what in returned}
    turns = [alternate(calls, 1, warm=0)]
    slow = {what for what in calls if turns[0][what] > SLOW * turns[0][known[what].against]}
    for number in range(1, rounds):
        turn = [what for what in calls if what not in slow or number < FEW]
        turns.append(alternate({what: calls[what] for what in (turn[::-1] if number % 2 else turn)}, 1, warm=0))

    def row(way: Way) -> Row:
        if way.what in failed:
            return Row(section, way.what, way.against, failed=failed[way.what])
        own = [turn for turn in turns if way.what in turn]
        ratios = [turn[way.what] / turn[way.against] for turn in own]
        ms = statistics.median(turn[way.what] for turn in own)
        apart = _difference(returned[way.what], returned[way.against])
        spread = (statistics.median(ratios), min(ratios), max(ratios))
        return Row(section, way.what, way.against, ms, *spread, apart, first[way.what])

    return [row(way) for way in known.values()]


def _difference(mine: object, theirs: object) -> float | None:
    if not isinstance(mine, torch.Tensor) or not isinstance(theirs, torch.Tensor) or mine.shape != theirs.shape:
        return None
    return float((mine.detach().float() - theirs.detach().float()).abs().max())


def table(title: str, rows: Iterable[Row]) -> Table:
    made = Table(title=title)
    for heading in ("what", "ms", "set against", "ratio", "lowest", "highest", "difference", "first call, s"):
        made.add_column(heading, justify="left" if heading in ("what", "set against") else "right")
    for row in rows:
        if row.failed:
            made.add_row(row.what, "failed", row.failed)
            continue
        against = "–" if row.against == row.what else row.against
        ratios = (_text(value, ".3f") for value in (row.ratio, row.lowest, row.highest))
        rest = (_text(row.difference, ".1e"), _text(row.first_s, ".1f"))
        made.add_row(row.what, _text(row.ms, ".1f"), against, *ratios, *rest)
    return made


def plain_table(title: str, figures: Mapping[str, Mapping[str, float]]) -> Table:
    """Rows by name, with their figures by heading."""
    made = Table(title=title)
    made.add_column("what")
    for heading in next(iter(figures.values())):
        made.add_column(heading, justify="right")
    for what, own in figures.items():
        made.add_row(what, *(f"{value:.2f}" for value in own.values()))
    return made


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
