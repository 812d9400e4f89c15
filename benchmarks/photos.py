"""`OMP_NUM_THREADS=1 python -m benchmarks.photos`: cost of the backbone `photos` in forward passes of one image, F.

Prints processor time of a pass in torch and in ONNX Runtime, alone and in a batch, and of a step of several methods on
the photographs of the sample. All sides take turns; medians over the rounds, with the lowest and the highest ratio to F
within a round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

import ostta
from ostta.core.overlay import encode
from ostta.data import open_dataset
from ostta.data.views import canonical

from .timing import Call, rounds_of

BATCHES = (4, 16)
METHODS = ("zero_shot", "tda", "rosita")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.photos", description=__doc__)
    parser.add_argument("--images", type=int, default=32, help="photographs of a stream")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    count, size = arguments.images, ostta.backbones.load("photos").preprocessing.image_size
    known, unknown = open_dataset("sample:photos"), open_dataset("sample:photos_unknown")
    pictures = [source.image(number) for number in range(count // 2) for source in (known, unknown)]
    photos = ostta.backbones.load("photos")
    with tempfile.TemporaryDirectory() as folder:
        about = ostta.backbones.export(photos, known.classes, Path(folder) / "photos")
        exported = ostta.backbones.load(f"onnx:{Path(folder) / 'photos'}")

        # A call and the number of images that it processes.
        sides: dict[str, tuple[Call, int]] = {}
        for engine, backbone in (("torch", photos), ("ONNX Runtime", exported)):
            for batch in (1, *BATCHES):
                pixels = torch.randn(batch, 3, size, size)
                sides[f"pass, {engine}, batch of {batch}"] = (partial(encode, backbone.vision, pixels), batch)
        sides["preprocessing"] = (lambda: [canonical(each, photos.preprocessing) for each in pictures], len(pictures))
        for method in (*METHODS, "field"):
            ahead = (1, 16) if method == "field" else (1,)
            for images_ahead in ahead:
                name = f"step, {method}" + (f", {images_ahead} images ahead" if images_ahead > 1 else "")
                profile = {"profile": "field"} if method == "field" else {"method": method}
                adapter = ostta.load(photos, known.classes, **profile)
                sides[name] = (partial(_run, adapter, pictures, images_ahead), len(pictures))
        with torch.no_grad():
            calls = {name: call for name, (call, _) in sides.items()}
            ms = rounds_of(calls, arguments.rounds, clock=time.process_time)
    print(f"{torch.get_num_threads()} threads, {arguments.rounds} rounds, {len(pictures)} photographs, processor time")
    print(f"largest difference of unit features in ONNX Runtime: {about.largest_difference:.1e}")
    print("| image | ms | F | lowest | highest |\n|---|---|---|---|---|")
    for name, (_, images) in sides.items():
        ratios = [own / images / one for own, one in zip(ms[name], ms["pass, torch, batch of 1"], strict=True)]
        figures = " | ".join(f"{pick(ratios):.2f}" for pick in (statistics.median, min, max))
        print(f"| {name} | {statistics.median(ms[name]) / images:.1f} | {figures} |")


def _run(adapter: ostta.Adapter, pictures: list[object], ahead: int) -> list[ostta.Prediction]:
    adapter.reset()
    with torch.enable_grad():
        return list(adapter.stream(pictures, ahead=ahead))


if __name__ == "__main__":
    main()
