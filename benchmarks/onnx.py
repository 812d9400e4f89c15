"""`python -m benchmarks.onnx`: one pass of the image tower over one image, in torch and in ONNX Runtime, taking turns.

The weights are random except for the embedded model: the time of a pass does not depend on them, and the differences
say little about real models. All sides have as many threads as torch, which follows OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

import torch

import ostta
from ostta.backbones.protocol import Backbone
from ostta.core.overlay import encode

from .shapes import random_clip
from .timing import rounds_of

FORMS = {"float32": False, "int8": True}


def sides(original: Backbone, folder: Path) -> tuple[dict[str, Backbone], dict[str, float]]:
    """The backbone in torch and its exports, and how far the exports' unit features are from those in torch."""
    found, apart = {"torch": original}, {}
    for name, int8 in FORMS.items():
        about = ostta.backbones.export(original, ["cat", "dog"], folder / name, int8=int8)
        found[name], apart[name] = ostta.backbones.load(f"onnx:{folder / name}"), about.largest_difference
    return found, apart


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx", description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["embedded", "ViT-B/32", "ViT-B/16"])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, {arguments.rounds} rounds, medians; lowest and highest ratio of a round")
    print("| model | in | ms | times faster than torch | lowest | highest | difference | MB |\n" + "|---" * 8 + "|")
    for shape in arguments.shapes:
        original = ostta.backbones.load(shape) if shape == "embedded" else random_clip(shape)
        size = original.preprocessing.image_size
        pixels = torch.randn(1, 3, size, size)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            models, apart = sides(original, Path(folder))
            calls = {name: partial(encode, model.vision, pixels) for name, model in models.items()}
            ms = rounds_of(calls, arguments.rounds, repeat=20 if shape == "embedded" else 2)
            for name, values in ms.items():
                ratios = [base / own for base, own in zip(ms["torch"], values, strict=True)]
                weight = "" if name == "torch" else f"{(Path(folder) / name / 'model.onnx').stat().st_size / 1e6:.1f}"
                figures = [
                    f"{statistics.median(values):.2f}",
                    *(f"{pick(ratios):.2f}" for pick in (statistics.median, min, max)),
                ]
                difference = f"{apart[name]:.1e}" if name in apart else ""
                print(f"| {shape} | {name} | {' | '.join(figures)} | {difference} | {weight} |", flush=True)


if __name__ == "__main__":
    main()
