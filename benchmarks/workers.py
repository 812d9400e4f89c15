"""Warm workers compared with a new process for each run: 40 short runs, and whether the results are equal.

    OMP_NUM_THREADS=1 python -m benchmarks.workers [--parts 4] [--to workers.json]

The runs use the embedded model on the samples that ship: ten methods and rules, four seeds, 40 images each. They are
divided into parts; each part is run with new processes and with warm ones, and the order alternates. Other programs
lengthen the time on the clock, so the processor time of the workers is measured too. All fields of the results are
compared except times, memory and load, and all columns of the records except times.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet

from ostta.bench.runner import run_grid
from ostta.bench.spec import RunSpec

COSTS = ("latency_ms", "peak_memory_mb", "seconds", "load")
WAYS: list[dict[str, Any]] = [
    {"method": "zero_shot"},
    {"method": "rosita"},
    {"method": "prototypes"},
    {"method": "unient"},
    {"method": "tda"},
    {"method": "dpe"},
    {"method": "rosita", "identifier": "msp"},
    {"method": "zero_shot", "score": "field", "identifier": "field", "profile": "field"},
    {"method": "rosita", "guard": True},
    {"method": "rosita", "options": {"k": 3, "group": "full"}},
]


def specs(seeds: int, limit: int) -> list[RunSpec]:
    samples = {"desired": "sample:cifar10c", "undesired": "sample:mnist"}
    return [RunSpec(limit=limit, seed=seed, **samples, **way) for seed in range(seeds) for way in WAYS]


def carried_out(asked: list[RunSpec], out: Path, *, fresh: bool) -> dict[str, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    summary = run_grid(asked, None, out, workers=1, threads=1, keep_records=True, fresh=fresh)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if summary.done != len(asked):
        raise SystemExit(f"{summary.done} of {len(asked)} runs done; {[ending.reason for ending in summary.failed]}")
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor": processor, "load": os.getloadavg()[0]}


def contents(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in out.glob("*.json"):
        found[path.name] = {name: value for name, value in json.loads(path.read_text()).items() if name not in COSTS}
    for path in out.glob("*.parquet"):
        table = pyarrow.parquet.read_table(path)
        # As text, so that NaN equals NaN; a number's text is exact.
        found[path.name] = {
            name: repr(table.column(name).to_pylist()) for name in table.column_names if not name.startswith("ms_")
        }
    return found


def peaks(out: Path) -> dict[str, float]:
    return {path.name: json.loads(path.read_text())["peak_memory_mb"] for path in out.glob("*.json")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--to", type=Path)
    chosen = parser.parse_args()
    asked = specs(chosen.seeds, chosen.limit)
    parts = [asked[number :: chosen.parts] for number in range(chosen.parts)]
    measured: dict[str, list[dict[str, float]]] = {"new": [], "warm": []}
    with tempfile.TemporaryDirectory(prefix="ostta-workers-") as folder:
        outs = {way: Path(folder) / way for way in measured}
        for number, part in enumerate(parts):
            for way in ("new", "warm") if number % 2 == 0 else ("warm", "new"):
                measured[way].append(carried_out(part, outs[way], fresh=way == "new"))
                print(f"part {number + 1}, {way:<4} {measured[way][-1]}", flush=True)
        same = contents(outs["new"]) == contents(outs["warm"])
        files = len(contents(outs["new"]))
        apart = [peaks(outs["warm"])[name] / peak for name, peak in peaks(outs["new"]).items()]
    total = {
        way: {name: sum(part[name] for part in listed) for name in ("seconds", "processor")}
        for way, listed in measured.items()
    }
    ratios = {name: total["new"][name] / total["warm"][name] for name in ("seconds", "processor")}
    by_part = [new["seconds"] / warm["seconds"] for new, warm in zip(measured["new"], measured["warm"], strict=True)]
    loads = [part["load"] for listed in measured.values() for part in listed]
    load = f"load average {min(loads):.1f} to {max(loads):.1f}, {os.cpu_count()} cores"
    print(f"{len(asked)} runs of {2 * chosen.limit} images; {load}")
    for name, ratio in ratios.items():
        new, warm = total["new"][name], total["warm"][name]
        print(f"{name:9} {new:8.1f} s new {warm:8.1f} s warm: {ratio:.1f} times less")
    print(f"in each part, by the clock: {', '.join(f'{ratio:.1f}' for ratio in by_part)}")
    print(f"peak memory, warm / new: median {statistics.median(apart):.3f}, {min(apart):.3f} to {max(apart):.3f}")
    print(f"{files} files of results and records: {'equal' if same else 'NOT EQUAL'}")
    if chosen.to is not None:
        chosen.to.write_text(
            json.dumps(
                {"measured": measured, "total": total, "ratios": ratios, "peaks": apart, "equal": same}, indent=1
            )
            + "\n"
        )
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
