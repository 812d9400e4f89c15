"""`make bench`: cost of a step of each method, beside the frozen classifier and the published implementation.

All sides of a comparison take turns in one process; figures are medians of rounds, and ratios are of the same round.
`python -m benchmarks --targets A.json B.json` shows the targets for earlier runs.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import ostta

from .prompts import PART, measure_prompts
from .step_parts import identifiers, overlays
from .steps import Row, measure, same_decisions
from .targets import TARGETED, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["embedded", "ViT-B/32", "ViT-B/16"])
    parser.add_argument("--classes", nargs="*", type=int, default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", nargs="*", type=int, help="class counts for methods that tune prompts, else all")
    parser.add_argument("--plans", nargs="*", type=int, help="class counts for TPT's published plan; minutes each")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/latest.json"))
    parser.add_argument("--targets", nargs="*", type=Path, help="only show the targets in these files")
    arguments = parser.parse_args()
    console = Console(width=150)
    if arguments.targets:
        console.print(table([json.loads(path.read_text())["rows"] for path in arguments.targets]))
        return

    parts = {**identifiers(), **overlays(ostta.backbones.load("embedded"))}
    for name, value in parts.items():
        console.print(f"{name:<40} {1e3 * value:9.1f} µs")
    rows: list[Row] = []
    equal = {}
    for shape in arguments.shapes:
        equal[shape] = same_decisions(shape)
        console.print(f"{shape}: the published plan decides alike; scores differ by at most {equal[shape]:.1e}")
        rows += _shown(console, shape, measure(shape, tuple(arguments.classes), arguments.rounds))
        counts = arguments.classes if arguments.prompts is None else arguments.prompts
        plans = [PART, *([1000] if shape == TARGETED else [])] if arguments.plans is None else arguments.plans
        rows += _shown(console, shape, measure_prompts(shape, tuple(counts), tuple(plans)))
    content = {
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "torch": torch.__version__,
        "parts_ms": parts,
        "largest_score_difference_to_published_plan": equal,
        "rows": [asdict(row) for row in rows],
    }
    console.print(table([content["rows"]]))  # type: ignore[list-item]
    arguments.out.write_text(json.dumps(content, indent=2) + "\n")
    console.print(f"Figures: {arguments.out}")


def _shown(console: Console, shape: str, rows: Iterator[Row]) -> list[Row]:
    shown = Table(
        title=f"{shape}, {torch.get_num_threads()} threads; F is one forward of the public image tower, no graph"
    )
    for heading in ("classes", "what", "ms", "in F", "lowest", "highest", "peak MB"):
        shown.add_column(heading, justify="left" if heading == "what" else "right")
    found = []
    for row in rows:
        found.append(row)
        peak = "–" if row.peak_mb is None else f"{row.peak_mb:.0f}"
        ratios = (f"{value:.3f}" for value in (row.forwards, min(row.rounds), max(row.rounds)))
        shown.add_row(str(row.classes), row.what, f"{row.ms:.2f}", *ratios, peak)
        if console.is_terminal:
            console.print(f"[dim]{shape}, {row.classes} classes: {row.what}", end="\r")
    console.print(shown)
    return found


if __name__ == "__main__":
    main()
