"""Draw the pictures of docs/deciding.md: reliability diagrams, and what the ranking allows when unknown images are
rare.

python tools/choose_field.py measure ... --orders 10 --save field.npz
python tools/draw_deciding.py field.npz --out docs
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

TITLES = {
    "clip": "CLIP ViT-B/32",
    "effnet": "EfficientNet-lite0",
    "embedded": "embedded model",
    "recorded": "recorded model",
}
RATIOS = {"1.0": "#2a6fdb", "0.1": "#d9822b", "0.0": "#888888"}
BINS = 15
# Streams with 0.1 unknown images for each known one.
RARE = {
    "clip 0.1": "CLIP, other classes",
    "effnet 0.1 others": "EfficientNet, other photographs",
    "embedded 0.1 mnist": "embedded, digits",
    "embedded 0.1 caltech": "embedded, photographs",
    "embedded 0.1 cifar100": "embedded, CIFAR-100",
}


def reliability(stored: Mapping[str, np.ndarray], out: Path) -> None:
    """Share of known images against the mean probability, in bins of equal mass."""
    figure, axes = plt.subplots(1, len(TITLES), figsize=(11, 3), constrained_layout=True, sharey=True)
    for axis, (backbone, title) in zip(axes, TITLES.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
        for ratio, colour in RATIOS.items():
            parts = [stored[key] for key in stored if key.split()[:2] == [backbone, ratio]]
            probability, known = np.concatenate(parts, 1)
            bins = np.array_split(np.argsort(probability, kind="stable"), BINS)
            points = [(probability[each].mean(), known[each].mean()) for each in bins]
            axis.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3, label=f"ratio {ratio}")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("mean P(known)")
    axes[0].set_ylabel("share of known images")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(out / "deciding-reliability.png", dpi=100)


def rare(stored: Mapping[str, np.ndarray], out: Path) -> None:
    """Unknown images rejected against known images accepted, for every threshold; the dot is a probability of 0.5."""
    figure, axis = plt.subplots(figsize=(6.5, 4), constrained_layout=True)
    for key, title in RARE.items():
        probability, known = stored[key]
        lines = np.quantile(probability, np.linspace(0, 1, 400))
        accepted, rejected = ([100 * np.mean(probability[known == kind] >= line) for line in lines] for kind in (1, 0))
        (drawn,) = axis.plot(accepted, 100 - np.array(rejected), label=title, linewidth=1.2)
        dot = [100 * np.mean(probability[known == 1] >= 0.5)], [100 * np.mean(probability[known == 0] < 0.5)]
        axis.plot(*dot, marker="o", color=drawn.get_color(), linestyle="")
    axis.set(xlim=(70, 100.5), ylim=(0, 101), xlabel="known images accepted, %", ylabel="unknown images rejected, %")
    axis.legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(out / "deciding-rare-line.png", dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probabilities", type=Path, help="the file that `choose_field.py measure --save` wrote")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    loaded = dict(np.load(given.probabilities))
    reliability(loaded, given.out)
    rare(loaded, given.out)
