"""Names in one list that look like two spellings of one thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from .overlap import overlap

# Shorter words are often a letter apart and mean different things: cat and cow, boat and goat.
_SHORTEST, _LONGEST = 6, 64


def alike(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ by case, hyphens, spaces or a plural, or, if they are long, by one letter.

    Names that differ by a number are numbered things, and are left alone.

    >>> alike(["cat", "Cats", "labrador", "labrodor", "class 1", "class 2"])
    [('cat', 'Cats'), ('labrador', 'labrodor')]
    """
    place = {name: number for number, name in enumerate(names)}
    pairs = {
        (place[pair.desired], place[pair.undesired])
        for pair in overlap(names, names)
        if pair.kind == "exact" and place[pair.desired] < place[pair.undesired]
    }
    by_rest = defaultdict(set)
    for number, name in enumerate(names):
        for rest in _with_one_less(_letters(name)):
            by_rest[rest].add(number)
    for numbers in by_rest.values():
        together = sorted(numbers)
        pairs |= {(one, other) for one, other in pairwise(together) if _differ(names[one], names[other])}
    return [(names[one], names[other]) for one, other in sorted(pairs)]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _with_one_less(word: str) -> set[str]:
    """The word, and the word without any one of its letters: words that are one letter apart have one of these in common."""
    if not _SHORTEST <= len(word) <= _LONGEST:
        return set()
    return {word} | {f"{word[:place]}{word[place + 1 :]}" for place in range(len(word))}


def _differ(one: str, other: str) -> bool:
    """Whether more than a number is different."""
    without = ["".join(letter for letter in _letters(name) if not letter.isdigit()) for name in (one, other)]
    return without[0] != without[1] or _letters(one) == _letters(other)
