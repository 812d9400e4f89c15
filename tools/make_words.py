"""Make the list of everyday words that ships, from the category names of LVIS and OpenImages.

    python tools/make_words.py --names NAMES.npz --out src/ostta/field/words/everyday.txt

NAMES.npz holds two arrays of text, `names` and `source`; rows whose source is "lvis" or "oid" are used. The names are
published in the metadata of facebookresearch/Detic. The script removes explanations in brackets, duplicates, long
names, and names of whole groups of things, which would be a better match than a class of the group.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

SOURCES = ("lvis", "oid")
LONGEST = 13
GROUPS = {
    "aircraft", "animal", "bird", "building", "carnivore", "clothing", "drink", "fish", "flower", "food", "footwear",
    "fruit", "furniture", "gag", "home appliance", "houseplant", "insect", "invertebrate", "kitchen appliance",
    "land vehicle", "mammal", "marine mammal", "office supplies", "person", "personal care", "pet", "reptile",
    "seabird", "shellfish", "sports uniform", "tableware", "toy", "vegetable", "vehicle", "watercraft", "weapon",
}  # fmt: skip


def everyday(names: list[str]) -> list[str]:
    """Sorted short names without duplicates, brackets and groups."""
    cleaned = {name.split("(")[0].strip().lower() for name in names}
    return sorted(
        name
        for name in cleaned
        if name and len(name) <= LONGEST and name.count(" ") < 2 and name not in GROUPS and "&" not in name
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with np.load(arguments.names) as content:
        rows = zip(content["names"], content["source"], strict=True)
        words = everyday([str(name) for name, source in rows if source in SOURCES])
    header = "# Everyday visual nouns from LVIS and OpenImages, CC BY 4.0; LICENSES.md has sources and terms.\n"
    arguments.out.write_text(header + "".join(f"{word}\n" for word in words), encoding="utf-8")
    print(f"{len(words):,} words in {arguments.out}")


if __name__ == "__main__":
    main()
