"""Targets and measured figures, and the spread of the ratios over several runs of `make bench`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from .prompts import PART
from .steps import MANY_BESIDE_FEW, VERDICTS

TARGETED = "ViT-B/16"
# Of a stream in which a quarter each is reliable desired and reliable undesired.
SHARES = {"unreliable": 0.5, "reliable undesired": 0.25, "reliable desired": 0.25}


@dataclass(frozen=True)
class Target:
    """A figure that is to be at most, or at least, so much."""

    what: str
    found: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.found >= self.limit if self.at_least else self.found <= self.limit


class Figures:
    """The rows of one run and one shape by class count and name."""

    def __init__(self, rows: list[dict[str, Any]], shape: str) -> None:
        self.rows = {(row["classes"], row["what"]): row for row in rows if row["shape"] == shape}

    def forwards(self, classes: int, what: str) -> float:
        return statistics.median(self.rows[classes, what]["rounds"])

    def mixed(self, classes: int, who: str) -> float:
        return sum(share * self.forwards(classes, f"{who}, {name}") for name, share in SHARES.items())

    def beside_the_tower(self, classes: int, verdict: str) -> float:
        """What a step takes in addition to the passes of the tower in that step, in F."""
        return self.forwards(classes, f"beside the tower, {verdict}")


def targets(rows: list[dict[str, Any]], shape: str = TARGETED) -> Iterator[Target]:
    """Those whose rows are there."""
    figures = Figures(rows, shape)
    for make in _TARGETS:
        try:
            yield from make(figures)
        except KeyError:  # a run of fewer shapes or counts
            continue


def _steps(figures: Figures) -> Iterator[Target]:
    limits = {"unreliable": 1.05, "reliable undesired": 2.15, "reliable desired": 5.2}
    limits["reliable desired, answer before"] = 4.2
    for name, limit in limits.items():
        yield Target(f"rosita, {name}, in F", figures.forwards(10, f"rosita, {name}"), limit)
    yield Target("rosita, a quarter each reliable, in F", figures.mixed(10, "rosita"), 2.4)
    ratio = figures.mixed(10, "published plan") / figures.mixed(10, "rosita")
    yield Target("the same, times faster than the published plan", ratio, 1.9, at_least=True)


def _tower(figures: Figures) -> Iterator[Target]:
    for classes, limit in ((10, 2.0), (1000, 4.0)):
        for verdict in VERDICTS:
            percent = 100 * figures.beside_the_tower(classes, verdict)
            yield Target(f"beside the tower, {verdict}, {classes} classes, % of F", percent, limit)


def _frozen(figures: Figures) -> Iterator[Target]:
    for what in ("tda", "zero_shot", "zero_shot, msp"):
        yield Target(f"{what}, 10 classes, in F", figures.forwards(10, what), 1.03)


def _classes(figures: Figures) -> Iterator[Target]:
    many, few = (figures.mixed(MANY_BESIDE_FEW, who) for who in ("rosita", "rosita of 10 classes"))
    yield Target("rosita at 1,000 classes over 10", many / few, 1.05)


def _prompts(figures: Figures) -> Iterator[Target]:
    def both(classes: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return figures.rows[classes, "tpt, beside its plan"], figures.rows[classes, "published plan of tpt"]

    ours, plan = both(PART)
    if ours["peak_mb"] is not None:
        share = ours["peak_mb"] / plan["peak_mb"]
        yield Target(f"tpt, {PART} classes, share of its plan's memory", share, 0.25)
    ours, plan = both(1000)
    yield Target("tpt, 1000 classes, times faster than its plan", plan["ms"] / ours["ms"], 6.0, at_least=True)


_TARGETS: tuple[Callable[[Figures], Iterator[Target]], ...] = (_steps, _tower, _frozen, _classes, _prompts)


def table(runs: list[list[dict[str, Any]]]) -> Table:
    """Each target in each run, and whether the median meets it."""
    shown = Table(title=f"Targets on the shape of {TARGETED}")
    for heading in ("what", "wanted", *(f"run {number + 1}" for number in range(len(runs))), "spread", ""):
        shown.add_column(heading, justify="left" if heading in ("what", "") else "right")
    found: dict[str, list[Target | None]] = {}
    for number, rows in enumerate(runs):
        for target in targets(rows):
            found.setdefault(target.what, [None] * len(runs))[number] = target
    for what, own in found.items():
        there = [target for target in own if target is not None]
        values = [target.found for target in there]
        middle = replace(there[0], found=statistics.median(values))
        shown.add_row(
            what,
            f"{'≥' if middle.at_least else '≤'} {middle.limit:g}",
            *("–" if target is None else f"{target.found:.3f}" for target in own),
            f"{max(values) - min(values):.3f}" if len(values) > 1 else "–",
            "met" if middle.met else "missed",
        )
    return shown
