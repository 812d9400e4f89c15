"""The path of a smooth stream: two corruptions at a time, the first fading while the second grows.

The manner is that of the CCC benchmark: a leg starts at (s1, 0), every move lowers s1 by 0.25 or raises s2 by
0.25, the leg ends at s1 = 0, and there the second corruption becomes the first of the next leg. CCC picks its moves by
a downloaded table of a ResNet-50's accuracies, so that their mean meets a target. Here the target is a total severity,
and the moves follow from it alone: start at s1 = min(budget, 5); wherever s1 + s2 is below the budget and s2 below 5,
raise s2; otherwise lower s1.

Up to a budget b of 5, a leg thus goes (b, 0), (b - 0.25, 0), (b - 0.25, 0.25), ..., (0, b - 0.25). Its total is b, or
0.25 less, throughout; at the junction the shared corruption gains that 0.25, a move like any other. Beyond 5, a leg
goes from (5, 0) up to (5, b - 5), along to (b - 5, 5), and down to (0, 5); at the junction nothing changes but names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.types import Error
from .mixing import PATH, generator

STEP, HIGHEST = 0.25, 5.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One place on the path: the leg it belongs to, and two corruptions with their severities."""

    leg: int
    first: str
    first_severity: float
    second: str
    second_severity: float


def leg(budget: float) -> list[tuple[float, float]]:
    """The severities of one leg, (first, second), from its start to first = 0."""
    if not STEP <= budget <= 2 * HIGHEST or budget % STEP:
        raise Error(f"`budget` is a total severity from {STEP} to {2 * HIGHEST:g} in steps of {STEP}, not {budget}.")
    first, second = min(budget, HIGHEST), 0.0
    cells = [(first, second)]
    while first > 0:
        # Quarters are exact in binary, so sums and comparisons are too.
        if first + second < budget and second < HIGHEST:
            second += STEP
        else:
            first -= STEP
        cells.append((first, second))
    return cells


def walk(corruptions: Sequence[str], budget: float, seed: int) -> Iterator[Cell]:
    """The cells of a path without end. The corruptions are drawn by `seed`, the two of a leg never equal."""
    if len(set(corruptions)) < 2:
        raise Error(f"A smooth path needs at least 2 corruptions, not {', '.join(corruptions) or 'none'}.")
    severities = leg(budget)
    names = list(dict.fromkeys(corruptions))
    chance = generator(seed, purpose=PATH)
    first = names[int(chance.integers(len(names)))]
    number = 0
    while True:
        others = [name for name in names if name != first]
        second = others[int(chance.integers(len(others)))]
        for first_severity, second_severity in severities:
            yield Cell(number, first, first_severity, second, second_severity)
        first = second
        number += 1
