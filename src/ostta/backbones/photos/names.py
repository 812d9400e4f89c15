"""Names of objects in photographs: the 1,000 ImageNet classes, their synonyms, and all WordNet nouns above them.

`tools/make_photos_names.py` writes the table `model/names.txt` and documents its format.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from ...core.checks import shown
from ...core.types import Error

FILE = Path(__file__).parent / "model" / "names.txt"
CLASSES = 1000
# "crane (bird)": the sense of "crane" that is a bird.
QUALIFIED = re.compile(r"(.+?)\s*\((.+)\)")
PLURALS = (("ies", "y"), ("es", ""), ("s", ""))
OFFERED = 3


@dataclass(frozen=True)
class Synset:
    """Names of one concept, most common first, with their WordNet sense numbers, and the lines of its hypernyms."""

    names: tuple[str, ...]
    senses: tuple[int, ...]
    above: tuple[int, ...]


class NameLookup:
    """Lookup from a name to the ImageNet classes that it covers.

    >>> names = load_names()
    >>> len(names.classes("dog")), names.classes("acoustic guitar")
    (118, (402,))
    >>> [names.class_titles[number] for name in ("crane (bird)", "crane (device)") for number in names.classes(name)]
    ['crane bird', 'construction crane']
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.synsets: list[Synset] = []
        self._near: dict[str, int] = {}
        for place, line in enumerate(lines):
            # The last columns may be missing.
            names, above, near = [*line.split("\t"), "", ""][:3]
            parts = [name.rpartition("#") for name in names.split("|")]
            lines_above = tuple(int(number) for number in above.split(",") if number)
            self.synsets.append(Synset(tuple(p[0] for p in parts), tuple(int(p[2]) for p in parts), lines_above))
            self._near.update(dict.fromkeys(near.split(), place))

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        """Lines of each name: the ImageNet class of that name first, then the other senses, most common first."""
        senses: dict[str, list[tuple[bool, int, int]]] = {}
        for place, synset in enumerate(self.synsets):
            for name, sense in zip(synset.names, synset.senses, strict=True):
                senses.setdefault(_plain(name), []).append((place >= CLASSES, sense, place))
        return {name: [place for _, _, place in sorted(places)] for name, places in senses.items()}

    @cached_property
    def _covered(self) -> list[tuple[int, ...]]:
        covered: list[set[int]] = [set() for _ in self.synsets]
        for number in range(CLASSES):
            waiting = [number]
            while waiting:
                place = waiting.pop()
                if number not in covered[place]:
                    covered[place].add(number)
                    waiting.extend(self.synsets[place].above)
        return [tuple(sorted(numbers)) for numbers in covered]

    def find(self, name: str) -> int | None:
        """Return the line of the synset of `name`, or None if the table does not contain it.

        The name of an ImageNet class refers to that class. Any other name refers to its most common sense that covers
        ImageNet classes. A hypernym in brackets selects another sense. Names that cover all 1,000 classes, such as
        "entity", have no embedding and are not found.
        """
        qualified = QUALIFIED.fullmatch(name)
        places = self._places(qualified[1] if qualified else name)
        if qualified:
            kinds = self._places(qualified[2])
            places = [place for place in places if any(self._is_below(place, kind) for kind in kinds)]
        return next((place for place in places if len(self._covered[place]) < CLASSES), None)

    def _places(self, name: str) -> list[int]:
        plain = _plain(name)
        singular = [plain.removesuffix(ending) + end for ending, end in PLURALS if plain.endswith(ending)]
        return next((self._by_name[form] for form in (plain, *singular) if form in self._by_name), [])

    def _is_below(self, place: int, kind: int) -> bool:
        return set(self._covered[place]) <= set(self._covered[kind])

    def classes(self, name: str) -> tuple[int, ...]:
        """Return the numbers of the ImageNet classes that `name` covers. Raise an Error if there are none."""
        place = self.find(name)
        if place is None:
            raise Error(self.unknown([name]), code="class-unknown")
        return self._covered[place]

    def _title(self, place: int) -> str:
        """Return the first unambiguous name of the synset, or its first name with a hypernym in brackets."""
        synset = self.synsets[place]
        qualified = f"{synset.names[0]} ({self.synsets[synset.above[0]].names[0]})" if synset.above else synset.names[0]
        return next((name for name in synset.names if self.find(name) == place), qualified)

    @cached_property
    def class_titles(self) -> tuple[str, ...]:
        """A unique name for each ImageNet class."""
        return tuple(self._title(place) for place in range(CLASSES))

    def near(self, name: str) -> list[str]:
        """Return known names close to `name`: its nearest hypernym and classes below it, or similarly spelt names.

        >>> load_names().near("deer")
        ['ruminant', 'ox', 'water buffalo']
        """
        place = self._near.get(_plain(name))
        if place is None:
            return difflib.get_close_matches(_plain(name), list(self._by_name), OFFERED)
        below = [self.class_titles[number] for number in self._covered[place]]
        return list(dict.fromkeys([self._title(place), *below]))[:OFFERED]

    def unknown(self, names: Sequence[str]) -> str:
        """Return the error message for names without an embedding, each with its nearest known names.

        >>> load_names().unknown(["deer", "elefant"])[:70]
        "The backbone photos does not know 'deer' (nearest: ruminant, ox, water"
        """
        nearest = {name: ", ".join(self.near(name)) for name in names[:OFFERED]}
        found = [f"{shown(name)} (nearest: {near or 'none'})" for name, near in nearest.items()]
        more = [f"{len(names) - len(found)} more"] if len(names) > len(found) else []
        return (
            f"The backbone photos does not know {'; '.join([*found, *more])}. It knows the names of the 1,000 ImageNet "
            'classes and of groups of them. Use such a name, or a CLIP such as "openai/clip-vit-base-patch16", which '
            "reads any name."
        )


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[_\-\s]+", " ", name).lower().split())


@cache
def load_names() -> NameLookup:
    """Load the table that ships with ostta.

    >>> load_names().near("deer")[0]
    'ruminant'
    """
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return NameLookup([line for line in lines if not line.startswith("#")])
