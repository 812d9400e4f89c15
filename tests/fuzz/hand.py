"""A small suite and its results, which two kinds of input damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ostta.bench.collected import collect_results
from ostta.bench.figures import SuiteFigures
from ostta.bench.formats import FORMATS
from ostta.bench.suite import Suite, expand
from ostta.pages.suite import suite_report

SUITE = """
title = "By hand"
what = "Section 6: tab:cifar"
labels = ["tab:cifar"]
remark = "A remark."
metrics = ["auroc", "fpr95", "hm"]
rows = ["backbone", "method"]
columns = ["stream"]
seeds = [0, 1]
limit = 100
parts = ["snow"]

[base]
identifier = "lda"
options = { lr = 0.001 }

[axes]
method = ["rosita", "zero_shot"]

[axes.backbone]
CLIP = { backbone = "openai/clip-vit-base-patch16" }

[axes.stream]
"C-10C/MNIST" = { desired = "cifar10c", undesired = "mnist:train" }
"C-10C/Tiny" = { desired = "cifar10c", undesired = "", drop = ["lr"], paper = { table = "tab:k" } }

[[skip]]
where = { method = ["zero_shot"], stream = ["C-10C/Tiny"] }
reason = "as an example"
"""


def results(suite: Suite) -> list[dict[str, Any]]:
    """Return the content of the result file of every cell."""
    quantiles = {"p50": 2.0, "p95": 3.0, "mean": 2.5}
    side = {"name": "x", "images": 100, "classes": 10, "origin": "official", "note": ""}
    metrics = {
        "auroc": 90.0,
        "fpr95": 20.0,
        "acc_desired": 65.4,
        "acc_undesired": 76.5,
        "hm": 70.0,
        "fpr95_strict": 22.0,
    }
    made = []
    for cell in expand(suite):
        made.append(
            {
                "schema_version": 1,
                "spec": cell.spec.model_dump(mode="json"),
                "options": {"method": {"k": 5, "lr": 0.001, "losses": ["d", "u"]}},
                "option_sources": {"method": {"k": "default", "lr": "backbone", "losses": "default"}},
                "stream": {"hash": "s", "identity": "i", "desired": side, "undesired": side, "seed": cell.seed},
                "weight_hash": "w",
                "class_names_hash": "c",
                "unfamiliar_classes": ["unicorn"],
                "metrics": {**metrics, "convention": "x"},
                "counts": {"desired": 100, "undesired": 100, "undesired_missing": 0},
                "updates": 41,
                "latency_ms": {"encode": quantiles, "decide": quantiles, "update": quantiles, "total": quantiles},
                "peak_memory_mb": 1.0,
                "seconds": 1.0,
                "versions": {"torch": "0"},
                "hardware": "none",
                "remarks": ["made here"],
                "records": None,
                "domains": [{"name": "snow", "images": 100, "metrics": metrics}],
                "hm_mean_domains": 70.0,
                "threads": 1,
            }
        )
    return made


def write(folder: Path, contents: list[dict[str, Any]]) -> None:
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_text(json.dumps(content))


def read_all(suite: Suite, folder: Path, pages: bool = True) -> None:
    """Read a folder of results with everything that reads one: all tables, and the page."""
    figures = SuiteFigures(collect_results(suite, folder))
    for form in FORMATS.values():
        form(figures)
    if pages:
        suite_report(figures)
