"""`python -m benchmarks.coverage`: how often 95 % intervals of a difference contain the difference on other streams.

Each seed draws its own images (300 known, 300 unknown) from the test sets. `make` carries out the runs, `show` reads
their records. For each method, the difference to the frozen classifier has an interval from

- one seed: the bootstrap over images alone, and
- three seeds and six seeds: the nested interval over images and seeds (`ostta.evaluation.intervals`).

The reference value is the mean over the seeds that are not part of the interval. This mean has an error itself, so the
coverage of a correct interval is somewhat below 95 %; the column "expected" has the value for normally distributed
differences.

    python -m benchmarks.coverage make --data DATA --out RUNS
    python -m benchmarks.coverage show --out RUNS --to benchmarks/results/coverage.json
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import t as student

from ostta.bench.folder import ResultFolder
from ostta.bench.records import PAIRED, read_records
from ostta.evaluation.intervals import LEVEL, Outcomes, Resampling, Values, interval
from ostta.io import write_atomically

SEEDS = 24
METRICS = ("auroc", "hm")
GROUPS = (1, 3, 6)
SUITE = f"""\
title = "Coverage of intervals"
seeds = {list(range(SEEDS))}
limit = 300
records = true
[base]
desired = "cifar10c"
draw = "images"
[axes.method]
zero_shot = {{ method = "zero_shot" }}
tda = {{ method = "tda" }}
rosita = {{ method = "rosita" }}
field = {{ profile = "field" }}
[axes.undesired]
mnist = {{ undesired = "mnist" }}
tiny = {{ undesired = "tiny_imagenet20" }}
"""


def make(data: str, out: Path) -> None:
    """Carry out the runs; runs that have a result are skipped."""
    out.mkdir(parents=True, exist_ok=True)
    suite = out / "coverage.toml"
    suite.write_text(SUITE, encoding="utf-8")
    ostta = [sys.executable, "-c", "from ostta.cli import main; main()"]
    run = ["bench", "run", str(suite), "--data", data, "--out", str(out), "--threads", "1"]
    subprocess.run([*ostta, *run], check=True)


def outcomes(out: Path) -> dict[tuple[str, str], dict[int, Outcomes]]:
    """The records by unknown set and method, then by seed."""
    found: dict[tuple[str, str], dict[int, Outcomes]] = {}
    for stored in ResultFolder(out).newest.values():
        result = stored.result
        spec = result.spec
        name = "field" if spec.profile == "field" else spec.method
        if result.records is not None and spec.undesired is not None:
            found.setdefault((spec.undesired, name), {})[spec.seed] = read_records(
                out / result.records, PAIRED
            ).outcomes
    return found


def groups(seeds: Sequence[int], size: int) -> list[list[int]]:
    """Disjoint groups of seeds: all single seeds, or several random partitions."""
    if size == 1:
        return [[seed] for seed in seeds]
    chance = np.random.default_rng(size)
    parts = [chance.permutation(seeds)[: len(seeds) // size * size].reshape(-1, size) for _ in range(10)]
    return [group.tolist() for part in parts for group in part]


def covered(by_seed: dict[int, Values], size: int) -> dict[str, float]:
    """The share of groups of `size` seeds whose interval contains the mean over all other seeds."""
    seeds, hits, widths = sorted(by_seed), [], []
    for group in groups(seeds, size):
        found = interval(np.stack([by_seed[seed] for seed in group]))
        reference = float(np.mean([by_seed[seed][0] for seed in seeds if seed not in group]))
        hits.append(found.low <= reference <= found.high)
        widths.append(found.high - found.low)
    return {"coverage": 100 * float(np.mean(hits)), "width": float(np.mean(widths)), "groups": len(hits)}


def expected(size: int, seeds: int) -> float:
    """Coverage of a correct interval if the reference is the mean over the other seeds, in percent."""
    degrees = size - 1 if size > 1 else math.inf
    shrink = 1 / math.sqrt(1 + size / (seeds - size))
    return 100 * (1 - 2 * float(student.sf(student.ppf((1 + LEVEL) / 2, degrees) * shrink, degrees)))


def measure(out: Path) -> list[dict[str, Any]]:
    """One row for each unknown set, method, metric and number of seeds."""
    runs, rows = outcomes(out), []
    for (undesired, method), ours in sorted(runs.items()):
        frozen = runs[undesired, "zero_shot"]
        seeds = sorted(set(ours) & set(frozen))
        if method == "zero_shot" or len(seeds) < 2 * max(GROUPS):
            continue
        drawn = Resampling([ours[seed] for seed in seeds])
        for metric in METRICS:
            first, second = (drawn.values_by_run([side[seed] for seed in seeds], metric) for side in (ours, frozen))
            by_seed = dict(zip(seeds, first - second, strict=True))
            for size in GROUPS:
                row = {"undesired": undesired, "method": method, "metric": metric, "seeds": size, "of": len(seeds)}
                rows.append({**row, **covered(by_seed, size), "expected": expected(size, len(seeds))})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("what", choices=["make", "show"])
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder of the result files")
    parser.add_argument("--to", type=Path, help="JSON file of the figures")
    arguments = parser.parse_args()
    if arguments.what == "make":
        make(arguments.data, arguments.out)
        return
    rows = measure(arguments.out)
    table = Table("unknown", "method", "metric", "seeds", "coverage %", "expected %", "mean width")
    for row in rows:
        figures = (f"{row['coverage']:.0f}", f"{row['expected']:.0f}", f"{row['width']:.1f}")
        table.add_row(row["undesired"], row["method"], row["metric"], str(row["seeds"]), *figures)
    Console(width=110).print(table)
    if arguments.to is not None:
        write_atomically(arguments.to, f"{json.dumps(rows, indent=1)}\n".encode())


if __name__ == "__main__":
    main()
