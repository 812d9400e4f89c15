"""The rows of `make bench` in two source trees, before and after a change, in one table.

`python -m benchmarks.before_after OLD_TREE NEW_TREE --runs 5 -- --shapes embedded --classes 10 --prompts --plans`

The trees take turns, one run of `python -m benchmarks` each, with the arguments after `--`. Figures are in F of the
same round, so a machine that is slower for a while slows both sides of a ratio. The exit code is 1 if a row is worse.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

# A row may be so much slower.
ALLOWED = 0.03
# Of a row: its shape, its number of classes, and what it is about.
Key = tuple[str, int, str]
Rounds = Mapping[Key, list[float]]


@dataclass(frozen=True)
class Change:
    """One row in both trees, in F: medians, and the middle half of the rounds on each side."""

    before: float
    after: float
    before_half: tuple[float, float]
    after_half: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def verdict(self) -> str:
        """It is "worse" only beyond the spread: the middle halves of the rounds must lie apart."""
        if self.ratio > 1 + ALLOWED:
            return "worse" if self.after_half[0] > self.before_half[1] else "within spread"
        return "better" if self.ratio < 1 - ALLOWED and self.after_half[1] < self.before_half[0] else "same"


def rounds_of_rows(runs: Iterable[Iterable[Mapping[str, Any]]]) -> dict[Key, list[float]]:
    """The rounds of all runs by row."""
    found: dict[Key, list[float]] = {}
    for rows in runs:
        for row in rows:
            found.setdefault((row["shape"], row["classes"], row["what"]), []).extend(row["rounds"])
    return found


def changes(before: Rounds, after: Rounds) -> dict[Key, Change]:
    """Each row that both have, apart from F itself, which is always one."""
    return {
        key: Change(statistics.median(own), statistics.median(after[key]), _middle_half(own), _middle_half(after[key]))
        for key, own in before.items()
        if key in after and key[2] != "F"
    }


def _middle_half(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def table(found: Mapping[Key, Change]) -> Table:
    made = Table(title=f"In F, medians and the middle half of the rounds; {ALLOWED:.0%} more is allowed")
    for heading in ("shape", "classes", "what", "before", "its half", "after", "its half", "change", "verdict"):
        made.add_column(heading, justify="left" if heading in ("shape", "what", "verdict") else "right")
    for (shape, classes, what), change in found.items():
        sides = ((change.before, change.before_half), (change.after, change.after_half))
        figures = (text for value, (low, high) in sides for text in (f"{value:.3f}", f"{low:.3f}-{high:.3f}"))
        made.add_row(shape, str(classes), what, *figures, f"{100 * (change.ratio - 1):+.1f} %", change.verdict)
    return made


def _run(tree: Path, arguments: list[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        subprocess.run(
            [sys.executable, "-m", "benchmarks", *arguments, "--out", str(out)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_after", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="of each tree")
    parser.add_argument("--out", type=Path, help="where all rounds are written as JSON")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    chosen, arguments = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    trees = {"before": chosen.before.resolve(), "after": chosen.after.resolve()}
    runs: dict[str, list[list[dict[str, Any]]]] = {side: [] for side in trees}
    for number in range(chosen.runs):
        for side in list(trees)[:: -1 if number % 2 else 1]:
            runs[side].append(_run(trees[side], arguments))
            print(f"run {number + 1} of {chosen.runs}, {side}", file=sys.stderr)
    found = changes(rounds_of_rows(runs["before"]), rounds_of_rows(runs["after"]))
    Console(width=170).print(table(found))
    if chosen.out:
        chosen.out.write_text(json.dumps(runs, indent=2) + "\n")
    sys.exit(any(change.verdict == "worse" for change in found.values()))


if __name__ == "__main__":
    main()
