"""The pictures of docs/deciding.md, from the results of the suites beyond and rare.

ostta bench run embedded/beyond --data DATA ... && ostta bench run embedded/rare --data DATA ...
python tools/draw_deciding.py --runs ostta-runs --out docs
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as parquet

KNOWN, UNKNOWN, GREY = "#2a6fdb", "#d9822b", "#888888"
RATIOS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0)


def results(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    return [(path, json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]


def kind(spec: dict[str, Any]) -> str:
    if spec["profile"] == "field":
        return "field"
    own = spec["method"] == "zero_shot" and spec.get("score") is None and spec["identifier"] == "lda"
    return "frozen" if own else "other"


def scores(found: list[tuple[Path, dict[str, Any]]], out: Path) -> None:
    """What the score of each kind sees: known and unknown images of three streams."""
    streams = {"snow / MNIST": "mnist", "snow / SVHN": "svhn", "snow / CIFAR-100C": "cifar100c"}
    figure, axes = plt.subplots(2, 3, figsize=(10, 4.6), constrained_layout=True)
    for column, (title, undesired) in enumerate(streams.items()):
        for row, which in enumerate(("frozen", "field")):
            (path,) = [
                path
                for path, result in found
                if kind(result["spec"]) == which
                and (result["spec"]["limit"], result["spec"]["seed"]) == (1000, 0)
                and (result["spec"]["corruption"], result["spec"]["undesired"]) == ("snow", undesired)
            ]
            table = parquet.read_table(path.with_suffix(".parquet")).to_pandas()
            late = table.iloc[256:]
            known = late["label"] >= 0
            low, high = np.quantile(late["score"], [0.002, 0.998])
            bins = np.linspace(low, high, 50)
            axis = axes[row, column]
            axis.hist(late["score"][known], bins, color=KNOWN, alpha=0.6, label="known")
            axis.hist(late["score"][~known], bins, color=UNKNOWN, alpha=0.6, label="unknown")
            cuts = late["threshold"].dropna()
            if len(cuts):
                axis.axvline(cuts.median(), color="black", linewidth=1, linestyle="--")
            axis.set_yticks([])
            for side in ("top", "right", "left"):
                axis.spines[side].set_visible(False)
            axis.set_title(f"{title}, {'max' if which == 'frozen' else 'neighbours'}", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(out / "deciding-scores.png", dpi=100)


def rare(found: list[tuple[Path, dict[str, Any]]], out: Path) -> None:
    """Known images accepted and unknown ones rejected, by the share of unknown images."""
    values: dict[tuple[str, str, float], list[tuple[float, float]]] = defaultdict(list)
    for _, result in found:
        spec, metrics = result["spec"], result["metrics"]
        if (spec["limit"], spec["corruption"]) == (2000, "snow") and kind(spec) != "other":
            group = {"mnist": "far", "svhn": "far", "": "none"}.get(spec["undesired"] or "", "near")
            rejected = metrics["acc_undesired"]
            pair = (metrics["accepted_desired"], np.nan if rejected is None else rejected)
            values[kind(spec), group, spec["ratio"]].append(pair)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), constrained_layout=True, sharey=True)
    for axis, group, title in zip(
        axes, ("far", "near"), ("far unknowns: MNIST, SVHN", "near: CIFAR-100C, Tiny"), strict=True
    ):
        for which, style in (("frozen", "--"), ("field", "-")):
            for number, (colour, what) in enumerate(((KNOWN, "known accepted"), (UNKNOWN, "unknown rejected"))):
                drawn = [(ratio, values.get((which, group if ratio else "none", ratio))) for ratio in RATIOS]
                points = [(ratio, float(np.mean([pair[number] for pair in pairs]))) for ratio, pairs in drawn if pairs]
                places = [RATIOS.index(ratio) for ratio, _ in points]
                axis.plot(places, [value for _, value in points], style, color=colour, marker="o", markersize=3,
                          label=f"{what}, {which}")  # fmt: skip
        axis.set_xticks(range(len(RATIOS)), [f"{ratio:g}" for ratio in RATIOS])
        axis.set_xlabel("unknown images for each known one")
        axis.set_ylim(0, 101)
        axis.set_title(title, fontsize=9)
        axis.grid(color=GREY, alpha=0.2)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[0].set_ylabel("%")
    axes[1].legend(frameon=False, fontsize=8)
    figure.savefig(out / "deciding-rare.png", dpi=100)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("ostta-runs"))
    parser.add_argument("--out", type=Path, default=Path("docs"))
    given = parser.parse_args()
    everything = results(given.runs)
    scores(everything, given.out)
    rare(everything, given.out)
