"""The figures of the embedded model's card: accuracies of the frozen classifier on test sets, size, and time of a
forward.

python tools/evaluate_embedded.py --data ROOT
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from ostta import backbones
from ostta.core.losses import unit
from ostta.data.by_name import Dataset, open_dataset
from ostta.data.views import canonical

SEED = 0
BATCH = 250


@torch.no_grad()
def accuracy(backbone: backbones.Backbone, dataset: Dataset) -> float:
    """Percent of the images whose best class, among the data set's own, is the right one."""
    text, right = backbone.classifier(dataset.classes), 0
    for start in range(0, len(dataset), BATCH):
        numbers = range(start, min(start + BATCH, len(dataset)))
        pixels = torch.stack([canonical(dataset.image(i), backbone.preprocessing) for i in numbers])
        best = (unit(backbone.vision(pixels)) @ text.T).argmax(1)
        right += int((best == torch.tensor(dataset.labels[numbers.start : numbers.stop])).sum())
    return round(100 * right / len(dataset), 2)


@torch.no_grad()
def forward_ms(backbone: backbones.Backbone) -> float:
    """Median time of one image through the image tower."""
    pixels, times = torch.zeros(1, 3, 32, 32), []
    for _ in range(60):
        began = time.perf_counter()
        backbone.vision(pixels)
        times.append(1e3 * (time.perf_counter() - began))
    return round(statistics.median(times[10:]), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    arguments = parser.parse_args()
    backbone = backbones.load("embedded")
    parameters = sum(p.numel() for p in backbone.vision.parameters())
    figures: dict[str, object] = {
        "image_tower_parameters": parameters,
        "layernorm_parameters": sum(
            p.numel() for m in backbone.vision.modules() if isinstance(m, torch.nn.LayerNorm) for p in m.parameters()
        ),
        "weight_hash": backbone.weight_hash,
        "forward_ms": forward_ms(backbone),
        "threads": torch.get_num_threads(),
        "cifar10": accuracy(backbone, open_dataset("cifar10", arguments.data)),
        "cifar100": accuracy(backbone, open_dataset("cifar100", arguments.data)),
    }
    for corruption in ("snow", "gaussian_noise", "motion_blur", "jpeg"):
        opened = open_dataset("cifar10c", arguments.data, corruption=corruption, severity=5, seed=SEED)
        figures[f"cifar10_{corruption}_5"] = accuracy(backbone, opened)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
