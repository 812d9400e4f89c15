"""Make the data sets of `photos/table` and the sample of photographs that ships, from photographs of Caltech-101.

    python tools/make_photo_sets.py --photographs ROOT/photos --out ROOT/caltech_photos --sample src/ostta/data/sample

`--photographs` has caltech101.parquet (columns `image` and `label`) and classes.json (names in label order): at most
16 photographs per class, shorter side 224 pixels. The sets have no class in common. `known` and `near` are for
figures, `dev_known` and `dev_near` for choosing options, and nothing else. The sample has the first photographs of ten
classes of `known` and of `near`, encoded again.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

SETS = {
    "known": (
        "accordion", "beaver", "butterfly", "camera", "cellphone", "chair", "crab", "dalmatian", "dragonfly",
        "electric_guitar", "elephant", "flamingo", "grand_piano", "kangaroo", "laptop", "llama", "panda", "saxophone",
        "soccer_ball", "umbrella",
    ),
    "near": (
        "Leopards", "emu", "euphonium", "gerenuk", "gramophone", "hawksbill", "headphone", "ibis", "inline_skate",
        "mandolin", "mayfly", "metronome", "octopus", "okapi", "pigeon", "rhino", "scissors", "sea_horse", "wild_cat",
        "wrench",
    ),
    "dev_known": (
        "barrel", "cannon", "crocodile", "dolphin", "ewer", "hedgehog", "lamp", "lobster", "nautilus", "pizza",
        "revolver", "rooster", "schooner", "scorpion", "starfish", "watch",
    ),
    "dev_near": (
        "anchor", "bass", "bonsai", "brain", "buddha", "ceiling_fan", "chandelier", "cougar_face", "ferry",
        "helicopter", "menorah", "platypus", "stapler", "stop_sign", "tick", "trilobite",
    ),
}  # fmt: skip
# Classes of the sample by the names that people give them.
SAMPLE = {
    "photos": {
        "accordion": "accordion", "butterfly": "butterfly", "dalmatian": "dog", "elephant": "elephant",
        "flamingo": "flamingo", "grand_piano": "grand piano", "kangaroo": "kangaroo", "laptop": "laptop",
        "panda": "panda", "umbrella": "umbrella",
    },
    "photos_unknown": {
        "emu": "emu", "gramophone": "gramophone", "hawksbill": "hawksbill turtle", "headphone": "headphones",
        "ibis": "ibis", "mandolin": "mandolin", "octopus": "octopus", "okapi": "okapi", "rhino": "rhinoceros",
        "wild_cat": "wild cat",
    },
}  # fmt: skip
SAMPLE_OF_CLASS, QUALITY, MAX_BYTES = 10, 76, 3_000_000


def encoded(content: bytes, quality: int) -> bytes:
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def write(rows: list[tuple[bytes, int]], names: list[str], target: Path) -> int:
    """One file in the layout of the `datasets` library; its size in bytes."""
    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    content = {
        "image": [{"bytes": data, "path": None} for data, _ in rows],
        "label": [label for _, label in rows],
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(content, schema=schema), target, compression="zstd")
    size = target.stat().st_size
    print(f"{target}: {len(rows)} photographs of {len(names)} classes, {size:,} bytes")
    return size


def of_classes(photographs: Mapping[str, list[bytes]], classes: list[str], most: int | None) -> list[tuple[bytes, int]]:
    """Photographs of the classes in turn, so that any first part of the set has all classes."""
    chosen = [photographs[name][:most] for name in classes]
    return [
        (images[number], label)
        for number in range(max(map(len, chosen)))
        for label, images in enumerate(chosen)
        if number < len(images)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sample", type=Path)
    arguments = parser.parse_args()
    names = json.loads((arguments.photographs / "classes.json").read_text(encoding="utf-8"))
    table = pq.read_table(arguments.photographs / "caltech101.parquet")
    photographs: dict[str, list[bytes]] = {name: [] for name in names}
    for image, label in zip(table.column("image").to_pylist(), table.column("label").to_pylist(), strict=True):
        photographs[names[label]].append(image["bytes"])
    if arguments.out is not None:
        for name, classes in SETS.items():
            rows = of_classes(photographs, list(classes), None)
            write(rows, [each.replace("_", " ") for each in classes], arguments.out / f"{name}.parquet")
    if arguments.sample is not None:
        total = 0
        for name, classes in SAMPLE.items():
            rows = of_classes(photographs, list(classes), SAMPLE_OF_CLASS)
            smaller = [(encoded(data, QUALITY), label) for data, label in rows]
            total += write(smaller, list(classes.values()), arguments.sample / f"{name}.parquet")
        if total > MAX_BYTES:
            raise SystemExit(f"the sample has {total:,} bytes, more than the {MAX_BYTES:,} that may be committed")


if __name__ == "__main__":
    main()
