"""Measure how often the backbone `photos` names the group that a photograph belongs to, such as "dog" for a Dalmatian.

    python tools/photos_names.py --photographs ROOT/photos

`--photographs` has caltech101.parquet and classes.json, as for `tools/make_photo_sets.py`. The frozen classifier
chooses among ten names of groups; every photograph belongs to one of them.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import torch
from PIL import Image

from ostta import backbones
from ostta.core.overlay import encode
from ostta.data.views import canonical

GROUPS = {
    "bird": ("emu", "flamingo", "ibis", "pigeon", "rooster"),
    "boat": ("ferry", "ketch", "schooner"),
    "crustacean": ("crab", "crayfish", "lobster"),
    "dog": ("dalmatian",),
    "feline": ("Leopards", "cougar_body", "cougar_face", "wild_cat"),
    "furniture": ("chair", "windsor_chair"),
    "insect": ("ant", "butterfly", "dragonfly", "mayfly"),
    "musical instrument": ("accordion", "electric_guitar", "euphonium", "grand_piano", "mandolin", "saxophone"),
    "reptile": ("crocodile", "crocodile_head", "hawksbill"),
    "ungulate": ("gerenuk", "llama", "okapi", "rhino"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=Path, required=True)
    folder = parser.parse_args().photographs
    names = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
    group_of = {name: number for number, classes in enumerate(GROUPS.values()) for name in classes}
    photos = backbones.load("photos")
    classifier = photos.classifier(list(GROUPS))
    right: list[list[bool]] = [[] for _ in GROUPS]
    for row in pq.read_table(folder / "caltech101.parquet").to_pylist():
        group = group_of.get(names[row["label"]])
        if group is None:
            continue
        with Image.open(io.BytesIO(row["image"]["bytes"])) as image, torch.inference_mode():
            features = encode(photos.vision, canonical(image.convert("RGB"), photos.preprocessing)[None])
        right[group].append(int((features @ classifier.T).argmax()) == group)
    for name, found in zip(GROUPS, right, strict=True):
        print(f"{name:20} {len(found):4} photographs, {sum(found) / len(found):6.1%} right")
    everything = [each for found in right for each in found]
    print(f"{'all':20} {len(everything):4} photographs, {sum(everything) / len(everything):6.1%} right")


if __name__ == "__main__":
    main()
