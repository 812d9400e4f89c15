"""`make bench`: what a step costs, method by method, beside the frozen classifier and the published plan.

All sides of a comparison run in one process and take turns; figures are medians of rounds, and ratios are of the same rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import ostta

from .parts import identifiers, overlays
from .steps import Row, as_json, measure, measure_tpt, same_decisions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["embedded", "ViT-B/32", "ViT-B/16"])
    parser.add_argument("--classes", nargs="*", type=int, default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument(
        "--tpt", nargs="*", type=int, default=[10, 250, 1000], help="class counts; none to leave TPT out"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/latest.json"))
    arguments = parser.parse_args()
    console = Console(width=150)

    parts = {**identifiers(), **overlays(ostta.backbones.load("embedded"))}
    for name, value in parts.items():
        console.print(f"{name:<40} {1e3 * value:9.1f} µs")
    rows: list[Row] = []
    equal = {}
    for shape in arguments.shapes:
        equal[shape] = same_decisions(shape)
        console.print(f"{shape}: the published plan decides alike; scores differ by at most {equal[shape]:.1e}")
        rows += _shown(console, shape, measure(shape, tuple(arguments.classes), arguments.rounds))
        if arguments.tpt:
            found = measure_tpt(shape, tuple(arguments.tpt), max(1, arguments.rounds // 4), compared=250)
            rows += _shown(console, shape, found)
    content = {
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "torch": torch.__version__,
        "parts_ms": parts,
        "largest_score_difference_to_published_plan": equal,
        "rows": as_json(rows),
    }
    arguments.out.write_text(json.dumps(content, indent=2) + "\n")
    console.print(f"Figures: {arguments.out}")


def _shown(console: Console, shape: str, rows: object) -> list[Row]:
    found = list(rows)  # type: ignore[call-overload]
    table = Table(title=f"{shape}, {torch.get_num_threads()} threads; F is one forward of the image tower, no graph")
    for heading in ("classes", "what", "ms", "in F", "peak MB"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in found:
        peak = "–" if row.peak_mb is None else f"{row.peak_mb:.0f}"
        table.add_row(str(row.classes), row.what, f"{row.ms:.2f}", f"{row.forwards:.3f}", peak)
    console.print(table)
    return found


if __name__ == "__main__":
    main()
