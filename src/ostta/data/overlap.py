"""Overlap of known and unknown class names, such as an unknown "tiger cat" and a known "cat"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

_SHOWN = 5
# Minimum length of a singular form, so that "bus" is not treated as the plural of "bu".
_SHORTEST = 3


class Overlap(NamedTuple):
    """A known and an unknown class whose names differ only in spelling, or of which one is a subtype of the other."""

    desired: str
    undesired: str
    kind: Literal["exact", "similar"]


def overlap(desired: Sequence[str], undesired: Sequence[str]) -> list[Overlap]:
    """Return the pairs of overlapping names, in the order of `desired`.

    Case, underscores, hyphens and plurals are ignored. Two names are similar if they end in the same word and one
    contains all words of the other: a "tiger cat" is a cat, but a "tree frog" is not a tree.

    >>> overlap(["cat", "tree"], ["Cats", "tiger_cat", "tree frog"])  # doctest: +NORMALIZE_WHITESPACE
    [Overlap(desired='cat', undesired='Cats', kind='exact'),
     Overlap(desired='cat', undesired='tiger_cat', kind='similar')]
    """
    pairs: list[Overlap] = []
    words_of = [_words(name) for name in undesired]
    # Overlapping names end in the same word or are equal without spaces, so only such names are compared.
    by_end = defaultdict(set)
    for number, words in enumerate(words_of):
        for form in _ends(words):
            by_end[form].add(number)
    for name in desired:
        words = _words(name)
        for number in sorted(set().union(*(by_end.get(form, set()) for form in _ends(words)))):
            kind = _compare(words, words_of[number])
            if kind is not None:
                pairs.append(Overlap(name, undesired[number], kind))
    return pairs


def overlap_sentence(found: Sequence[Overlap]) -> str:
    """Describe overlapping names in one sentence for a report. Return "" if there are none.

    >>> overlap_sentence(overlap(["truck"], ["pickup truck"])).partition(": ")[2]
    'similar truck ~ pickup truck.'
    """
    if not found:
        return ""
    parts = []
    for kind, sign in (("exact", "="), ("similar", "~")):
        pairs = [f"{pair.desired} {sign} {pair.undesired}" for pair in found if pair.kind == kind]
        if pairs:
            more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
            parts.append(f"{kind} {', '.join(pairs[:_SHOWN])}{more}")
    return (
        f"Some unknown classes have names like known ones, so accepting them counts as a mistake: {'; '.join(parts)}."
    )


def _compare(words: list[str], others: list[str]) -> Literal["exact", "similar"] | None:
    alike = len(words) == len(others) and all(_same(*pair) for pair in zip(words, others, strict=True))
    if alike or _same("".join(words), "".join(others)):
        return "exact"
    if _same(words[-1], others[-1]) and (_within(words, others) or _within(others, words)):
        return "similar"
    return None


def _words(name: str) -> list[str]:
    return name.lower().replace("_", " ").replace("-", " ").split()


def _ends(words: list[str]) -> set[str]:
    """Return the forms of the last word and of the name without spaces. Overlapping names share at least one."""
    return _forms(words[-1]) | _forms("".join(words)) if words else set()


def _forms(word: str) -> set[str]:
    """Return the word and its possible singular forms."""
    endings = (("s", ""), ("es", ""), ("ies", "y"))
    return {word} | {
        word.removesuffix(ending) + singular
        for ending, singular in endings
        if word.endswith(ending) and len(word) - len(ending) + len(singular) >= _SHORTEST
    }


def _same(one: str, other: str) -> bool:
    """Return whether two words are equal, or one is the plural of the other."""
    return one in _forms(other) or other in _forms(one)


def _within(words: list[str], others: list[str]) -> bool:
    return all(any(_same(word, other) for other in others) for word in words)
