"""Result files: made by hand, and compared without machine-dependent fields."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet

from ostta.bench.result import Result
from ostta.bench.spec import RunSpec, stream_key


def made(spec: RunSpec, hm: float | None, *, origin: str = "official", **changes: object) -> Result:
    """Return a result with the given figures; all other figures are arbitrary numbers."""
    quantiles = {"p50": 2.0, "p95": 3.0, "mean": 2.5}
    side = {"name": "x", "images": 100, "classes": 10, "origin": origin}
    content = {
        "spec": spec.model_dump(mode="json"),
        "options": {"method": {"k": 5, "undesired_bank": 64, "lr": 0.001}},
        "option_sources": {"method": {"k": "default", "undesired_bank": "default", "lr": "backbone"}},
        "stream": {
            "hash": "s", "identity": f"{stream_key(spec)} {spec.seed}", "desired": side,
            "undesired": side | {"origin": "official"},
            "seed": spec.seed,
        },
        "weight_hash": "w" + spec.backbone,
        "class_names_hash": "c",
        "unfamiliar_classes": [],
        "metrics": {
            "auroc": 90.0, "fpr95": 20.0, "acc_desired": 65.4, "acc_undesired": 76.5, "hm": hm, "fpr95_strict": 22.0,
        },
        "counts": {"desired": 100, "undesired": 100, "undesired_missing": 0},
        "updates": 0 if spec.method == "zero_shot" else 41,
        "latency_ms": {
            "encode": quantiles, "decide": quantiles, "update": quantiles,
            "total": {"p50": 11.0, "p95": 20.0, "mean": 12.5},
        },
        "peak_memory_mb": 1.0,
        "seconds": 1.0,
        "versions": {"torch": "0"},
        "hardware": "none",
        "remarks": [f"cifar10c: made here, seed {spec.seed}; not the official files."],
    }  # fmt: skip
    return Result.model_validate(content | changes)


# Times, memory, and nothing else, may differ between two runs of one spec.
COSTS = ("latency_ms", "peak_memory_mb", "seconds", "load")


def bare_result(path: Path) -> dict:
    content = json.loads(path.read_text())
    return {name: value for name, value in content.items() if name not in COSTS}


def bare_records(path: Path) -> dict:
    table = pyarrow.parquet.read_table(path)
    # As text, so that NaN equals NaN; a number's text is exact.
    return {name: repr(table.column(name).to_pylist()) for name in table.column_names if not name.startswith("ms_")}
