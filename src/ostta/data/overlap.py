"""Class names that both sides of a stream have: an undesired "tiger cat" may well be accepted as a desired "cat"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

_SHOWN = 5
# "bus" is no plural of "bu".
_SHORTEST = 3


class Overlap(NamedTuple):
    """A desired and an undesired class whose names meet: equal once spelling is set aside, or one a kind of the other."""

    desired: str
    undesired: str
    kind: Literal["exact", "similar"]


def overlap(desired: Sequence[str], undesired: Sequence[str]) -> list[Overlap]:
    """The pairs of names that meet, in the order of `desired`.

    Case, underscores, hyphens and plurals do not matter. Two names are similar if they end in the same word and one has all words of
    the other: a "tiger cat" is a cat, but a "tree frog" is no tree.

    >>> overlap(["cat", "tree"], ["Cats", "tiger_cat", "tree frog"])
    [Overlap(desired='cat', undesired='Cats', kind='exact'), Overlap(desired='cat', undesired='tiger_cat', kind='similar')]
    """
    found: list[Overlap] = []
    words_of = [_words(name) for name in undesired]
    # Names that meet end in the same word, or are the same written in one; so only those are compared.
    by_end = defaultdict(set)
    for number, words in enumerate(words_of):
        for form in _ends(words):
            by_end[form].add(number)
    for name in desired:
        words = _words(name)
        for number in sorted(set().union(*(by_end.get(form, set()) for form in _ends(words)))):
            kind = _compare(words, words_of[number])
            if kind is not None:
                found.append(Overlap(name, undesired[number], kind))
    return found


def overlap_sentence(found: Sequence[Overlap]) -> str:
    """One sentence for a report; empty where nothing meets.

    >>> overlap_sentence(overlap(["truck"], ["pickup truck"]))
    'Some undesired classes have names like desired ones, so accepting them counts as a mistake: similar truck ~ pickup truck.'
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
        "Some undesired classes have names like desired ones, so accepting them counts as a mistake: "
        f"{'; '.join(parts)}."
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
    """What a name that meets this one must share with it: a form of the last word, or of the whole written in one."""
    return _forms(words[-1]) | _forms("".join(words)) if words else set()


def _forms(word: str) -> set[str]:
    """The word, and what it may be the plural of."""
    endings = (("s", ""), ("es", ""), ("ies", "y"))
    return {word} | {
        word.removesuffix(ending) + singular
        for ending, singular in endings
        if word.endswith(ending) and len(word) - len(ending) + len(singular) >= _SHORTEST
    }


def _same(one: str, other: str) -> bool:
    """Equal, or one the plural of the other."""
    return one in _forms(other) or other in _forms(one)


def _within(words: list[str], others: list[str]) -> bool:
    return all(any(_same(word, other) for other in others) for word in words)
