"""Make the sample that ships: the first 1,000 test images of CIFAR-10 and of MNIST, with the bytes they came with.

    python tools/make_sample.py --data ROOT --out src/ostta/data/sample

ROOT has cifar10/test.parquet and mnist/test.parquet in the official order, images as PNG. The class names go into the
files in the way of the `datasets` library, so that any reader of its parquet files knows them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COUNT = 1_000
MAX_BYTES = 4_000_000
PNG = b"\x89PNG\r\n\x1a\n"
CLASSES = {
    "cifar10": ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
    "mnist": [str(digit) for digit in range(10)],
}
# The first labels of the official test sets: a shuffled copy must not pass for the original.
FIRST_LABELS = {"cifar10": [3, 8, 8, 0, 6, 6, 1, 6, 3, 1], "mnist": [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]}


def make(name: str, source: Path, target: Path) -> int:
    """Write one file; its size in bytes."""
    rows = next(pq.ParquetFile(source).iter_batches(COUNT, columns=["image", "label"]))
    labels = rows.column("label").to_pylist()
    contents = [image["bytes"] for image in rows.column("image").to_pylist()]
    if len(labels) != COUNT or labels[:10] != FIRST_LABELS[name]:
        raise SystemExit(f"{source} is not the {name} test set in its official order")
    if not all(content.startswith(PNG) for content in contents):
        raise SystemExit(f"{source} has images that are not PNG, so they may not be lossless")
    features = {"image": {"_type": "Image"}, "label": {"names": CLASSES[name], "_type": "ClassLabel"}}
    schema = pa.schema(
        [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())],
        metadata={"huggingface": json.dumps({"info": {"features": features}})},
    )
    images = [{"bytes": content, "path": None} for content in contents]
    pq.write_table(pa.table({"image": images, "label": labels}, schema=schema), target, compression="zstd")
    return target.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    total = 0
    for name in CLASSES:
        target = options.out / f"{name}.parquet"
        size = make(name, options.data / name / "test.parquet", target)
        print(f"{target}: {COUNT} images, {size:,} bytes")
        total += size
    if total > MAX_BYTES:
        raise SystemExit(f"the sample has {total:,} bytes, more than the {MAX_BYTES:,} that may be committed")


if __name__ == "__main__":
    main()
