"""`make bench`: what a step costs, part by part, on the embedded model.

Sides that are compared alternate, and each figure is the median of its rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import ostta
from ostta.core.groups import layernorm_names
from ostta.core.overlay import Overlay
from ostta.data.datasets import open_dataset
from ostta.identifiers import LDA, LDAOptions

ROUNDS = 15


def alternate(sides: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Median microseconds a call of each side, the sides taking turns."""
    rounds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, call in sides.items():
            began = time.perf_counter()
            for _ in range(repeat):
                call()
            rounds[name].append(1e6 * (time.perf_counter() - began) / repeat)
    return {name: statistics.median(values) for name, values in rounds.items()}


def identifiers() -> dict[str, float]:
    rng = np.random.default_rng(0)
    scores = [float(s) for s in np.concatenate([rng.normal(0.2, 0.02, 600), rng.normal(0.3, 0.02, 600)])]
    rng.shuffle(scores)
    sides: dict[str, Callable[[], object]] = {}
    for search in ("grid", "exact"):
        for objective in ("weighted", "unweighted"):
            identifier = LDA(LDAOptions(search=search, objective=objective))  # type: ignore[arg-type]
            for score in scores:
                identifier.take(score)
            stream = iter(scores * 1000)
            sides[f"LDA {search} {objective}, 512 scores"] = lambda i=identifier, s=stream: i.observe(next(s))  # type: ignore[misc]
    return alternate(sides, 200)


def overlays(backbone: ostta.backbones.Backbone) -> dict[str, float]:
    overlay = Overlay(backbone.vision, layernorm_names(backbone.vision))
    pixels = torch.zeros(1, 3, 32, 32)
    with torch.no_grad():
        return alternate(
            {
                "tower alone": lambda: backbone.vision(pixels),
                "tower through the overlay": lambda: overlay(pixels),
                "tower through functional_call": lambda: torch.func.functional_call(
                    backbone.vision, overlay.tensors, (pixels,)
                ),
            },
            5,
        )


def steps(backbone: ostta.backbones.Backbone) -> dict[str, float]:
    """Medians of the adapter's own clock over a real stream, by verdict."""
    desired, undesired = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    images = [(desired if i % 2 else undesired).image(i // 2) for i in range(600)]
    found: dict[str, list[float]] = {}
    adapters = {name: ostta.load(backbone, desired.classes, method=name) for name in ("zero_shot", "rosita")}
    for image in images:
        for name, adapter in adapters.items():
            prediction = adapter.step(image)
            total = prediction.ms.encode + prediction.ms.decide + prediction.ms.update
            kind = "" if name == "zero_shot" else f", {prediction.verdict}"
            found.setdefault(f"step of {name}{kind}", []).append(1e3 * total)
            found.setdefault(f"step of {name}, mean over the stream", []).append(1e3 * total)
    return {
        name: statistics.mean(values) if "mean" in name else statistics.median(values) for name, values in found.items()
    }


def main() -> None:
    backbone = ostta.backbones.load("embedded")
    figures = {**identifiers(), **overlays(backbone), **steps(backbone)}
    unit = figures["tower alone"]
    table = Table(title=f"Embedded model, {torch.get_num_threads()} threads; F is one forward of the image tower")
    for heading in ("what", "microseconds", "in F"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, value in figures.items():
        table.add_row(name, f"{value:.1f}", f"{value / unit:.3f}")
    Console().print(table)
    path = Path("benchmarks/latest.json")
    path.write_text(json.dumps({"threads": torch.get_num_threads(), "microseconds": figures}, indent=2) + "\n")
    print(path)


if __name__ == "__main__":
    main()
