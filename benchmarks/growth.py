"""`python -m benchmarks.growth`: how time and memory grow with classes, banks, streams, and the length of a stream.

The image tower is tiny, so that the cost around it is visible; `--shape` gives the streams of the pool a real one. The
sides of a comparison take turns, and medians of rounds count. Verdicts are scripted, except along a stream.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional

import ostta
from ostta.core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from ostta.identifiers import LDA, LDAOptions
from ostta.io import write_atomically
from ostta.live import StreamPool

from .growth_figure import Rows, plot
from .pool import CASES, CLASSES, adapter
from .shapes import SHAPES, class_names, filled, random_clip
from .timing import Call, alternate, settled_memory

WIDTH, HEADS, FEATURES, SIZE, PATCH = 64, 4, 512, 16, 8
MIXED = CASES["half reliable, half of these desired"]
QUIET, LEARNED, REPELLED = Verdict.UNRELIABLE_DESIRED, Verdict.RELIABLE_DESIRED, Verdict.RELIABLE_UNDESIRED
# Both unreliable verdicts cost the same.
KINDS = {
    QUIET: "unreliable",
    LEARNED: "reliable desired",
    REPELLED: "reliable undesired",
    Verdict.UNRELIABLE_UNDESIRED: "unreliable",
}


class Tower(nn.Module):
    """The smallest image tower: patches, one transformer block, and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.project = nn.Linear(3 * PATCH**2, WIDTH), nn.Linear(WIDTH, FEATURES, bias=False)
        self.before, self.between, self.last = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.attend, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.patches(functional.pixel_unshuffle(pixels, PATCH).flatten(2).transpose(1, 2))
        q, k, v = self.attend(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        x = x + self.down(functional.gelu(self.up(self.between(x))))
        features: torch.Tensor = self.project(self.last(x.mean(1)))
        return features


class Searching(LDA):
    """The real search in a full bank of two populations of scores, under a verdict that is given."""

    def __init__(self, verdict: Verdict, window: int = 512) -> None:
        super().__init__(LDAOptions(window=window))
        scores = np.random.default_rng(0).normal((0.2, 0.3), 0.02, (window, 2)).ravel()
        self.load({"scores": torch.from_numpy(scores)})
        self.verdict, self._coming = verdict, itertools.cycle(scores.tolist())

    def peek(self, score: float = 0.0, evidence: Evidence = NO_EVIDENCE) -> Decision:
        score = next(self._coming)
        decision = super().peek(score)
        self.bank.push(score)
        return replace(decision, verdict=self.verdict)

    def remember(self, score: float, *_: object) -> None:
        pass


def small(classes: int) -> ostta.backbones.Backbone:
    return ostta.backbones.wrap(Tower(), torch.randn(classes, FEATURES), image_size=SIZE)


def stepping(
    model: ostta.backbones.Backbone, classes: int, method: str, verdict: Verdict, window: int = 512, **options: Any
) -> tuple[Call, int]:
    """A step on one image, and the bytes of all that is kept from step to step."""
    made = filled(ostta.load(model, class_names(classes), method=method, **options))
    made.memory.identifier = Searching(verdict, window)
    views = torch.randn(2, 3, SIZE, SIZE)
    kept = (*made.state.tensors().values(), *made.identifier.tensors().values())
    return lambda: made.step_views(views), sum(tensor.nbytes for tensor in kept)


def told(what: str, values: Sequence[int]) -> Iterator[int]:
    """One plain line a value: a bar that a thread draws anew all the time would be measured with the rest."""
    for value in values:
        print(f"{what}: {value:,}", file=sys.stderr, flush=True)
        yield value


def by_classes(counts: Sequence[int], rounds: int) -> Rows:
    rows: Rows = []
    for count in told("classes", counts):
        model, sides, held = small(count), {}, {}
        for method, verdict in (("zero_shot", QUIET), ("tda", QUIET), ("rosita", QUIET), ("rosita", LEARNED)):
            what = f"{method}, {KINDS[verdict]}" if method == "rosita" else method
            sides[f"{what}, ms"], held[f"{method}, bytes"] = stepping(model, count, method, verdict)
        rows.append({"classes": count, **alternate(sides, rounds, repeat=max(3, 300 // count)), **held})
    return rows


def by_banks(sizes: Sequence[int], rounds: int, least_scores: int = 128) -> Rows:
    """The undesired bank in steps that search it, and the score bank in steps that only look."""
    rows: Rows = []
    model = small(CLASSES)
    for size in told("places in the bank", sizes):
        sides: dict[str, Call] = {"bank": stepping(model, CLASSES, "rosita", REPELLED, undesired_bank=size)[0]}
        if size >= least_scores:
            sides["scores"] = stepping(model, CLASSES, "rosita", QUIET, size)[0]
            sides["identifier"] = Searching(QUIET, size).peek
        ms = alternate(sides, rounds, repeat=20)
        alone = 1e3 * ms["identifier"] if "identifier" in ms else None
        timed = {"undesired bank, ms": ms["bank"], "score bank, ms": ms.get("scores"), "identifier, µs": alone}
        rows.append({"places in the bank": size, **timed})
    return rows


def by_streams(model: ostta.backbones.Backbone, counts: Sequence[int], rounds: int) -> Rows:
    """Images a second of the first streams of one pool, and what the streams so far have taken, each."""
    pool, side = StreamPool(model), model.preprocessing.image_size
    views, grown = torch.randn(2, 3, side, side), {}
    held = sum(tensor.nbytes for tensor in adapter(model, 0, MIXED).state.tensors().values())
    before = settled_memory()
    for count in told("streams", sorted(counts)):
        for number in range(len(pool.names), count):
            pool.add(f"{number:04}", adapter(model, number, MIXED))
        grown[count] = (settled_memory() - before) / count

    def together(count: int) -> Call:
        return lambda: pool.step(dict.fromkeys(pool.names[:count], views))

    # As many steps as there are verdicts to go round, or few streams would meet only some of them.
    ms = alternate({str(count): together(count) for count in counts}, rounds, repeat=len(MIXED))
    return [
        {"streams": n, "images a second": 1e3 * n / ms[str(n)], "tensors, bytes": held, "process, bytes": grown[n]}
        for n in counts
    ]


def by_length(steps: int, window: int) -> Rows:
    """Medians of a window's steps by verdict, and the memory of the process at its end.

    The images are noisy images of two sets, of which the classifier knows one, so that all four verdicts occur.
    """
    tower, images = Tower(), torch.randn(2 * CLASSES, 3, SIZE, SIZE)
    with torch.no_grad():
        model = ostta.backbones.wrap(tower, tower(images[:CLASSES]), image_size=SIZE)
    made, process, rows = ostta.load(model, class_names(CLASSES)), psutil.Process(), Rows()
    for end in told("images seen, at the end of this window", range(window, steps + 1, window)):
        taken: dict[Verdict, list[float]] = {verdict: [] for verdict in KINDS}
        for number in torch.randint(len(images), (window,)).tolist():
            views = images[number] + torch.randn(2, 3, SIZE, SIZE)
            began = time.perf_counter()
            verdict = made.step_views(views).verdict
            ms = 1e3 * (time.perf_counter() - began)
            assert verdict is not None, f"the features of an image after step {made.steps} are not finite"
            taken[verdict].append(ms)
        row: dict[str, float | None] = {"images seen": end}
        row["all, ms"] = statistics.median(itertools.chain(*taken.values()))
        for kind in dict.fromkeys(KINDS.values()):
            both = [ms for verdict in KINDS if KINDS[verdict] == kind for ms in taken[verdict]]
            row[f"{kind}, ms"] = statistics.median(both) if both else None
        row |= {verdict.value.replace("_", " "): len(ms) for verdict, ms in taken.items()}
        rows.append(row | {"process, bytes": process.memory_info().rss})
    return rows


def slope(rows: Rows) -> float:
    """Bytes a step by which the process grows in the last half of the stream, by least squares."""
    last = np.array([(row["images seen"], row["process, bytes"]) for row in rows[len(rows) // 2 :]], dtype=float)
    return float(np.polyfit(last[:, 0], last[:, 1], 1)[0])


def shown(console: Console, title: str, rows: Rows) -> None:
    table = Table(title=title)
    for heading in rows[0]:
        table.add_column(heading.replace("bytes", "kB"), justify="right")
    for row in rows:
        table.add_row(*("–" if value is None else _written(heading, value) for heading, value in row.items()))
    console.print(table)


def _written(heading: str, value: float) -> str:
    if heading.endswith((", ms", ", µs")):
        return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
    return f"{value / 1e3 if heading.endswith('bytes') else value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--classes", nargs="+", type=int, default=[10, 30, 100, 300, 1000, 3000, 10_000])
    parser.add_argument("--banks", nargs="+", type=int, default=[2**power for power in range(4, 15)])
    parser.add_argument("--streams", nargs="+", type=int, default=[2**power for power in range(9)])
    parser.add_argument("--shape", choices=SHAPES, help="of the tower of the pool; a tiny one if not given")
    parser.add_argument("--steps", type=int, default=100_000, help="of the longest stream")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small figures of no meaning, to see that all runs")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/growth.json"))
    parser.add_argument("--plot", type=Path, default=Path("docs/growth.png"))
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.classes, chosen.banks, chosen.streams = [10, 100, 1000], [16, 128, 1024], [1, 4, 16]
        chosen.steps, chosen.rounds = min(chosen.steps, 1000), 3
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    console, found = Console(width=150), {}
    # First, while the heap is small: memory that was freed before would hide a leak until it is used up.
    found["length"] = by_length(chosen.steps, window=min(5000, max(1, chosen.steps // 10)))
    found["classes"] = by_classes(chosen.classes, chosen.rounds)
    found["banks"] = by_banks(chosen.banks, chosen.rounds)
    found["streams"] = by_streams(
        random_clip(chosen.shape) if chosen.shape else small(CLASSES), chosen.streams, chosen.rounds
    )
    for name, rows in found.items():
        shown(console, f"{name}, {chosen.threads} threads, medians", rows)
    growth = slope(found["length"])
    console.print(f"The process grows by {growth:+.2f} bytes a step in the last half of the stream.")
    settings = {name: value for name, value in vars(chosen).items() if name not in ("out", "plot")}
    content = {
        "settings": settings,
        "machine": platform.machine(),
        "torch": torch.__version__,
        "bytes_a_step_in_the_last_half": growth,
        **found,
    }
    write_atomically(chosen.out, (json.dumps(content, indent=2) + "\n").encode())
    write_atomically(chosen.plot, plot(found, growth))
    console.print(f"Figures: {chosen.out}, {chosen.plot}")


if __name__ == "__main__":
    main()
