"""The option `accept`: the smallest probability at which a class is accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .core.checks import shown
from .core.types import Error


def accept_lines(given: Any) -> Any:
    """Convert a number, or a dictionary by class, to the strings of the option; strings are returned unchanged.

    >>> accept_lines(0.8), accept_lines({"person": 0.9})
    (('0.8',), ('person: 0.9',))
    """
    if isinstance(given, int | float) and not isinstance(given, bool):
        return (str(given),)
    if isinstance(given, Mapping):
        return tuple(f"{name}: {least}" for name, least in given.items())
    return given


class Acceptance:
    """The smallest probability for each class.

    >>> Acceptance(["0.8", "dog: 0.9"], ["cat", "dog"]).least
    [0.8, 0.9]
    """

    def __init__(self, lines: Sequence[str], classes: Sequence[str]) -> None:
        common, own = 0.5, dict[str, float]()
        for line in lines:
            name, colon, number = line.rpartition(":")
            if colon:
                own[name.strip()] = _probability(number)
            else:
                common = _probability(number)
        named = set(classes)
        unknown = next((name for name in own if name not in named), None)
        if unknown is not None:
            raise Error(f"`accept` names {shown(unknown)}, which is none of the classes.", code="class-unknown")
        self.least = [own.get(name, common) for name in classes]

    @property
    def common(self) -> float | None:
        """The smallest probability if it is the same for all classes, otherwise None."""
        return self.least[0] if len(set(self.least)) == 1 else None

    def accepts(self, probability: float, index: int) -> bool:
        """Return whether an image of class number `index` is accepted as known."""
        return probability >= self.least[index]

    def log_odds(self, index: int) -> float:
        """Return the threshold of class number `index` as log-odds, the unit of the score `field`."""
        least = min(max(self.least[index], 1e-300), 1 - 1e-16)
        return math.log(least / (1 - least))


def _probability(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise Error(f"`accept` takes a probability from 0 to 1, not {shown(text.strip())}.", code="option-invalid")
    return number
