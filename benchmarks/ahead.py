"""`python -m benchmarks.ahead`: images per second of `Adapter.stream` by the number of images encoded in one batch.

The images are in memory and are preprocessed as part of a step. All batch sizes take turns on the same images. A ratio
is taken within a round, so that other load on the machine affects all sides, and the median over the rounds counts. The
ViT-B/32 shape has random weights, because the time of a pass does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ostta
from ostta.backbones.protocol import Backbone
from ostta.testing.subject import CLASSES, images

from .shapes import random_clip
from .timing import rounds_of

BATCHES = (1, 4, 16, 32)
# The ratio to one image at a time that is wanted at 16 images, by shape.
TARGETS = {"embedded": 1.8, "ViT-B/32": 1.5}


def measure(model: Backbone, count: int, rounds: int) -> dict[str, Any]:
    """Return images per second for each batch size, and median, lowest and highest ratio to one image at a time."""
    pictures = images(count)
    adapters = {ahead: ostta.load(model, CLASSES, "zero_shot") for ahead in BATCHES}

    def run(ahead: int) -> list[ostta.Prediction]:
        return list(adapters[ahead].stream(pictures, ahead=ahead))

    ms = rounds_of({str(ahead): partial(run, ahead) for ahead in BATCHES}, rounds)
    found: dict[str, Any] = {}
    for ahead in BATCHES:
        ratios = [alone / own for alone, own in zip(ms["1"], ms[str(ahead)], strict=True)]
        found[str(ahead)] = {
            "images_per_second": 1e3 * count / statistics.median(ms[str(ahead)]),
            "ratio": statistics.median(ratios),
            "lowest": min(ratios),
            "highest": max(ratios),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ahead", description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, {arguments.rounds} rounds of {arguments.images} images, medians")
    print(
        "| model | ahead | images/s | times one at a time | lowest | highest | wanted |\n|---|---|---|---|---|---|---|"
    )
    result: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "images": arguments.images,
        "rounds": arguments.rounds,
    }
    for shape in arguments.shapes:
        model = ostta.backbones.load("embedded") if shape == "embedded" else random_clip(shape)
        result[shape] = measure(model, arguments.images, arguments.rounds)
        for ahead, row in result[shape].items():
            wanted = f"≥ {TARGETS[shape]}" if ahead == "16" else ""
            numbers = " | ".join(f"{row[name]:.2f}" for name in ("ratio", "lowest", "highest"))
            print(f"| {shape} | {ahead} | {row['images_per_second']:.1f} | {numbers} | {wanted} |", flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
