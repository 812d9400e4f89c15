"""How probable a class must be to be answered: the option `accept`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .core.checks import shown
from .core.types import Error


def accept_lines(given: Any) -> Any:
    """The option's texts from what `ostta.load` takes: a number, a dictionary by class, or the texts themselves.

    >>> accept_lines(0.8), accept_lines({"person": 0.9})
    (('0.8',), ('person: 0.9',))
    """
    if isinstance(given, int | float):
        return (f"{given:g}",)
    if isinstance(given, Mapping):
        return tuple(f"{name}: {least}" for name, least in given.items())
    return given


class Acceptance:
    """The smallest probability for each class.

    >>> Acceptance(["0.8", "dog: 0.9"], ["cat", "dog"]).least
    [0.8, 0.9]
    """

    def __init__(self, lines: Sequence[str], classes: Sequence[str]) -> None:
        self.least = [0.5] * len(classes)
        # A text without a class is for all of them, wherever it stands.
        for line in sorted(lines, key=lambda line: ":" in line):
            name, colon, number = line.rpartition(":")
            if colon and name.strip() not in classes:
                raise Error(f"`accept` names {shown(name.strip())}, which is none of the classes.")
            least = _probability(number)
            for place, known in enumerate(classes):
                if not colon or known == name.strip():
                    self.least[place] = least

    def accepts(self, probability: float, index: int) -> bool:
        """Whether an image of class number `index` is answered as known."""
        return probability >= self.least[index]


def _probability(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise Error(f"`accept` takes a probability from 0 to 1, not {shown(text.strip())}.")
    return number
