"""Make the table of names of the backbone `photos` from WordNet 3.0, as in Debian's package `wordnet-base`.

    apt-get download wordnet-base && dpkg-deb -x wordnet-base_*.deb wordnet
    python tools/make_photos_names.py --wordnet wordnet/usr/share/wordnet \\
        --out src/ostta/backbones/photos/model/names.txt

The classes and their current names are those of `ostta.data.class_names`. A current name that WordNet does not have,
such as "rooster" for the class "cock", is added as the first name of its class, with the sense 99.

A line of the table is a synset: the classes in their order, then every synset above a class. Its fields are separated
by tabs: its names with the number of the sense, separated by bars; its direct hypernyms as line numbers from 0; and
single words that no synset of the table has, whose nearest hypernym is this one.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ostta.data.class_names import imagenet_names

NOUN, HYPERNYMS = "n", ("@", "@i")
# Lexicographer files whose nouns can be seen in a photograph: animal, artifact, food, plant.
VISIBLE = {"05", "06", "13", "20"}
# A hypernym of more classes than these says little about a word that the table does not have.
MOST_CLASSES_NEAR = 60
NOT_IN_WORDNET = 99
HEADER = "# WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved. See LICENSES/WordNet.txt.\n"


@dataclass(frozen=True)
class Synset:
    file: str
    lemmas: tuple[str, ...]
    hypernyms: tuple[str, ...]


def records(file: Path) -> Iterator[list[str]]:
    """Fields of each line that is not part of the licence at the top."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            yield line.split()


def read_synsets(file: Path) -> dict[str, Synset]:
    """Synsets of data.noun by their offset."""
    synsets = {}
    for offset, lexicographer, _, count, *rest in records(file):
        words = int(count, 16)
        lemmas, pointers = rest[: 2 * words : 2], rest[2 * words + 1 :]
        links = [pointers[at : at + 4] for at in range(0, 4 * int(rest[2 * words]), 4)]
        above = tuple(link[1] for link in links if link[0] in HYPERNYMS and link[2] == NOUN)
        synsets[offset] = Synset(lexicographer, tuple(lemma.replace("_", " ") for lemma in lemmas), above)
    return synsets


def read_senses(file: Path) -> dict[str, list[str]]:
    """Offsets of the senses of each lower-case lemma of index.noun, most frequent first."""
    senses = {}
    for lemma, _, _, pointers, *rest in records(file):
        senses[lemma.replace("_", " ")] = rest[int(pointers) + 2 :]
    return senses


def covered(classes: list[str], synsets: dict[str, Synset]) -> dict[str, set[int]]:
    """Numbers of the classes at or below a synset, for every synset that has some."""
    found: dict[str, set[int]] = defaultdict(set)
    for number, offset in enumerate(classes):
        waiting = [offset]
        while waiting:
            current = waiting.pop()
            if number not in found[current]:
                found[current].add(number)
                waiting.extend(synsets[current].hypernyms)
    return found


def near_words(
    lines: list[str],
    more: Iterable[str],
    counts: dict[str, set[int]],
    synsets: dict[str, Synset],
    senses: dict[str, list[str]],
) -> dict[str, list[str]]:
    """Words that no line has, by the nearest synset above them that is a line."""
    present = {lemma.lower() for offset in lines for lemma in synsets[offset].lemmas} | {name.lower() for name in more}
    found = defaultdict(list)
    for word, offsets in senses.items():
        if not word.isalpha() or word in present:
            continue
        seen = [offset for offset in offsets if synsets[offset].file in VISIBLE and word in synsets[offset].lemmas]
        nearest = nearest_above(seen[:1], counts, synsets)
        if nearest is None or synsets[nearest].file not in VISIBLE:
            continue
        if len(counts[nearest]) <= MOST_CLASSES_NEAR:
            found[nearest].append(word)
    return found


def nearest_above(start: Iterable[str], counts: dict[str, set[int]], synsets: dict[str, Synset]) -> str | None:
    level = list(start)
    while level:
        for offset in level:
            if offset in counts:
                return offset
        level = [above for offset in level for above in synsets[offset].hypernyms]
    return None


def names_of(offset: str, synset: Synset, present: str | None, senses: dict[str, list[str]]) -> str:
    """The names of a synset with the number of their sense, its present name first."""
    known = [present] if present else []
    lemmas = [lemma for lemma in synset.lemmas if present is None or lemma.lower() != present.lower()]
    numbered = []
    for name in [*known, *lemmas]:
        offsets = senses.get(name.lower(), [])
        numbered.append(f"{name}#{offsets.index(offset) + 1 if offset in offsets else NOT_IN_WORDNET}")
    return "|".join(numbered)


def table(present: dict[str, str], wordnet: Path) -> list[str]:
    """Return the lines of the table. `present` has the current name of each class by its offset, in class order."""
    synsets, senses = read_synsets(wordnet / "data.noun"), read_senses(wordnet / "index.noun")
    classes = list(present)
    counts = covered(classes, synsets)
    lines = classes + sorted(set(counts) - set(classes))
    number = {offset: place for place, offset in enumerate(lines)}
    near = near_words(lines, present.values(), counts, synsets, senses)
    rows = []
    for offset in lines:
        names = names_of(offset, synsets[offset], present.get(offset), senses)
        above = ",".join(str(number[one]) for one in synsets[offset].hypernyms)
        rows.append(f"{names}\t{above}\t{' '.join(sorted(near[offset]))}".rstrip())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wordnet", type=Path, required=True, help="folder of data.noun and index.noun")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = table(
        {wordnet_id.removeprefix("n"): name for wordnet_id, name in imagenet_names().items()}, arguments.wordnet
    )
    arguments.out.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    print(f"{len(rows):,} synsets, {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
