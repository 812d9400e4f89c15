"""Cut the recorded run that ships with the tests from the full recording: the same tower, the first images, their
traces.

    python tools/cut_golden.py --from GOLDEN/veil --to tests/golden

A run is sequential, so what was recorded for the first images stands as it is. What a run says at its end does not:
`updates` and `metrics` are worked out again from the cut lists, after a check that the same sums give what the full
recording says; the norms of the LayerNorms at the end of the full run are left out, as nothing in the lists tells them.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ostta.evaluation import metrics

IMAGES = 150
MAX_BYTES = 6_000_000
TOWER = ("config.json", "model.safetensors")
AT_THE_END = ("updates", "metrics", "layernorm_sum", "layernorm_norm")
# The recording's names of the five figures, which are fractions there, and ours, which are percent.
FIGURES = {"AUC": "auroc", "FPR95": "fpr95", "ACC_D": "acc_desired", "ACC_U": "acc_undesired", "ACC_HM": "hm"}


def totals(labels: np.ndarray, lists: dict[str, Any]) -> dict[str, Any]:
    """What a run's lists say about the whole run: how many steps were taken, and the five figures."""
    scores, accepted, classes = (np.array(lists[name]) for name in ("score", "accept", "pred"))
    figures = metrics.summary(labels, scores, accepted, classes)
    return {
        "updates": sum(loss is not None for loss in lists["loss"]),
        "metrics": {theirs: figures[ours] / 100 for theirs, ours in FIGURES.items()},
    }


def check(name: str, found: dict[str, Any], recorded: dict[str, Any]) -> None:
    """The sums of this tool give what the full recording says, or nothing is cut."""
    for figure, value in {"updates": found["updates"], **found["metrics"]}.items():
        said = recorded["updates"] if figure == "updates" else recorded["metrics"][figure]
        if not math.isclose(value, said, abs_tol=1e-9):
            raise SystemExit(f"{name}: the recording says {figure} {said}, but its lists give {value}")


def cut_run(name: str, recorded: dict[str, Any], labels: np.ndarray, images: int) -> dict[str, Any]:
    """The first `images` entries of a run's lists, and its totals over them.

    A list that the run does not have is None.
    """
    lists = {key: value for key, value in recorded.items() if key not in AT_THE_END}
    check(name, totals(labels, lists), recorded)
    short = {key: None if value is None else value[:images] for key, value in lists.items()}
    return {**short, **totals(labels[:images], short)}


def cut(source: Path, target: Path, images: int) -> None:
    (target / "vision").mkdir(parents=True, exist_ok=True)
    for name in TOWER:
        shutil.copyfile(source / "vision" / name, target / "vision" / name)
    with np.load(source / "stream.npz") as stored:
        stream = {key: stored[key] for key in stored.files}
    labels = stream["labels"]
    if not 0 < images <= len(labels):
        raise SystemExit(f"--images is from 1 to the {len(labels)} that were recorded, not {images}")
    short = {**stream, "views": stream["views"][:images], "labels": labels[:images]}
    np.savez_compressed(target / "stream.npz", **short)
    traces = json.loads((source / "traces.json").read_text(encoding="utf-8"))
    cut_traces = {name: cut_run(name, recorded, labels, images) for name, recorded in traces.items()}
    (target / "traces.json").write_text(json.dumps(cut_traces, separators=(",", ":")) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, required=True, metavar="FOLDER", help="the full recording")
    parser.add_argument("--to", dest="target", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--images", type=int, default=IMAGES)
    options = parser.parse_args()
    cut(options.source, options.target, options.images)
    sizes = {path: path.stat().st_size for path in sorted(options.target.rglob("*")) if path.is_file()}
    for path, size in sizes.items():
        print(f"{path.relative_to(options.target)}: {size:,} bytes")
    if sum(sizes.values()) > MAX_BYTES:
        raise SystemExit(f"{sum(sizes.values()):,} bytes in all, more than the {MAX_BYTES:,} that may ship")


if __name__ == "__main__":
    main()
