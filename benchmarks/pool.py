"""`python -m benchmarks.pool`: sixteen streams in a pool compared with sixteen adapters, on the shape of CLIP ViT-B/32.

The weights are random, because the time of a pass does not depend on them. In a round, both sides process one image of
each stream, on the same views. Ratios are taken within a round, so that other load on the machine affects both sides,
and the median over the rounds counts. Verdicts are scripted: the cost of a step depends on its verdict, and this way
the shares of the verdicts are known.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

import ostta
from ostta.backbones.clip import Clip
from ostta.core.types import Verdict
from ostta.live import StreamPool
from ostta.live.batched_tower import BatchedTower, Record

from .shapes import Scripted, class_names, filled, random_clip
from .timing import Call, Clock, peak_megabytes, rounds_of, settled_memory

SHAPE, CLASSES, SIZE = "ViT-B/32", 10, 224
UNRELIABLE = (Verdict.UNRELIABLE_DESIRED, Verdict.UNRELIABLE_UNDESIRED)
RELIABLE = (Verdict.RELIABLE_DESIRED, Verdict.RELIABLE_UNDESIRED)
CASES = {
    "no updates": UNRELIABLE,
    "half reliable, half of these desired": (UNRELIABLE[0], RELIABLE[0], UNRELIABLE[1], RELIABLE[1]),
    "half reliable, all of these desired": (UNRELIABLE[0], RELIABLE[0]),
    "all reliable, half of these desired": RELIABLE,
}


# Model of a GPU: seconds of a kernel launch, operations of one pass of ViT-B/32, and assumed rates.
LAUNCH, GIGAFLOPS, TERAFLOPS = 6e-6, 8.2, (5, 20, 60)
# Passes per image of ROSITA by verdict, with a backward pass counted as one.
PASSES = dict(zip((*UNRELIABLE, *RELIABLE), (1, 1, 5, 2), strict=True))


def adapter(model: ostta.backbones.Backbone, number: int, verdicts: tuple[Verdict, ...]) -> ostta.Adapter:
    """A stream whose banks are full."""
    made = filled(ostta.load(model, class_names(CLASSES), method="rosita", seed=number))
    made.memory.identifier = Scripted(*verdicts, start=number)  # type: ignore[assignment]
    return made


def compare(
    model: Clip, streams: int, batch: int, verdicts: tuple[Verdict, ...], rounds: int, clock: Clock
) -> tuple[float, float, list[float]]:
    """Median images a second of adapters in turn and of the pool, and the ratio in each round."""
    pool = StreamPool(model, batch=batch)
    alone = [adapter(model, number, verdicts) for number in range(streams)]
    for number in range(streams):
        pool.add(str(number), adapter(model, number, verdicts))
    views = torch.randn(streams, 2, 3, SIZE, SIZE)
    sides: dict[str, Call] = {
        "turn": lambda: [one.step_views(own) for one, own in zip(alone, views, strict=True)],
        "pool": lambda: pool.step({str(number): views[number] for number in range(streams)}),
    }
    ms = rounds_of(sides, rounds, clock=clock)
    ratios = [turn / pooled for turn, pooled in zip(ms["turn"], ms["pool"], strict=True)]
    return 1e3 * streams / statistics.median(ms["turn"]), 1e3 * streams / statistics.median(ms["pool"]), ratios


def passes(model: Clip, batch: int, rounds: int, clock: Clock) -> dict[str, float]:
    """Milliseconds an image of the ways to a gradient, and of one image alone."""
    tower = BatchedTower(model.vision, SIZE)
    own = [parameter.detach() for name, parameter in model.vision.named_parameters() if name in set(tower.names)]
    pixels, values = torch.randn(batch, 3, SIZE, SIZE), [own] * batch
    record = tower.record(pixels, values)
    blank = Record(pixels, record.features, [None] * len(record.outputs))

    def backward(known: Record) -> None:
        leaves = tower.leaves(values)
        torch.autograd.grad(tower.replay(known, leaves, range(batch)).sum(), leaves)

    def alone() -> None:
        with torch.no_grad():
            model.vision(pixels[:1])

    ways: dict[str, Call] = {
        "one image alone, without graph": alone,
        "batch, without graph": lambda: tower.look(pixels, values),
        "batch, without graph, recorded": lambda: tower.record(pixels, values),
        "batch, graph and backward": lambda: backward(blank),
        "batch, replay of the record and backward": lambda: backward(record),
    }
    ms = rounds_of(ways, rounds, clock=clock)
    return {name: statistics.median(own) / (1 if ways[name] is alone else batch) for name, own in ms.items()}


def memory(model: Clip, extra: int = 64) -> dict[str, float]:
    """Kilobytes of one more stream: what its tensors take, and what the process grows by."""
    pool = StreamPool(model)
    before = settled_memory()
    for number in range(extra):
        pool.add(str(number), adapter(model, number, UNRELIABLE))
    grown = settled_memory() - before
    with pool.held("0") as one:
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in one.state.tensors().items()}
    overlay = sum(size for name, size in sizes.items() if name.startswith("overlay/"))
    return {
        "LayerNorm values": overlay / 1e3,
        "banks": (sum(sizes.values()) - overlay) / 1e3,
        "growth of the process": grown / extra / 1e3,
    }


def peak(model: Clip, batch: int) -> dict[str, float | None]:
    """Return the peak memory in MB of a step of one adapter, and of a full batch in which all learn from two views."""
    pool, views = StreamPool(model, batch=batch), torch.randn(2, 3, SIZE, SIZE)
    one = adapter(model, 0, RELIABLE[:1])
    for number in range(batch):
        pool.add(str(number), adapter(model, number, RELIABLE[:1]))
    found = {}
    for name, step in {
        "step of one adapter": lambda: one.step_views(views),
        f"step of {batch} streams together": lambda: pool.step(dict.fromkeys(pool.names, views)),
    }.items():
        found[name] = peak_megabytes(step)
    return found


class Launches(TorchDispatchMode):
    """Counts the operations that would be kernels on a GPU: all but those that only return a view of a tensor."""

    VIEWS = (
        "view", "t", "transpose", "as_strided", "expand", "slice", "select", "unsqueeze", "permute", "detach",
        "alias", "_unsafe_view", "unbind", "split", "split_with_sizes", "squeeze",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += operation.__name__.split(".")[0] not in self.VIEWS
        return operation(*args, **(kwargs or {}))


def launches(model: Clip, streams: int, verdicts: tuple[Verdict, ...]) -> tuple[float, float]:
    """Operations an image, of adapters in turn and of a pool with all streams in one batch."""
    pool, views = StreamPool(model, batch=streams), torch.randn(2, 3, SIZE, SIZE)
    alone = [adapter(model, number, verdicts) for number in range(streams)]
    for number in range(streams):
        pool.add(str(number), adapter(model, number, verdicts))
    with Launches() as in_turn:
        for one in alone[: len(verdicts)]:
            one.step_views(views)
    with Launches() as together:
        pool.step(dict.fromkeys(pool.names, views))
    return in_turn.count / len(verdicts), together.count / streams


def gpu_gain(in_turn: float, together: float, passes: float, teraflops: float) -> float:
    """A model, not a measurement: a step takes as long as its launches or its arithmetic, whichever is longer."""
    arithmetic = passes * GIGAFLOPS / teraflops / 1e3
    return max(in_turn * LAUNCH, arithmetic) / max(together * LAUNCH, arithmetic)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: processor time of this process")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/pool.json"))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    clock = time.perf_counter if chosen.clock == "wall" else time.process_time
    model, console = random_clip(SHAPE), Console()
    settings = {name: value for name, value in vars(chosen).items() if name != "out"}
    about = (
        f"{chosen.streams} streams, batch {chosen.batch}, {chosen.threads} threads, {chosen.clock} clock, "
        f"{chosen.rounds} rounds"
    )
    table = Table(title=f"The shape of CLIP {SHAPE}: {about}")
    for heading in ("stream", "in turn, images/s", "pool, images/s", "ratio, median", "lowest", "highest"):
        table.add_column(heading, justify="left" if heading == "stream" else "right")
    compared = {}
    for name, verdicts in CASES.items():
        turn, pooled, ratios = compare(model, chosen.streams, chosen.batch, verdicts, chosen.rounds, clock)
        compared[name] = {"in_turn": turn, "pool": pooled, "ratio": statistics.median(ratios), "ratios": ratios}
        spread = (statistics.median(ratios), min(ratios), max(ratios))
        table.add_row(name, f"{turn:.2f}", f"{pooled:.2f}", *(f"{value:.2f}" for value in spread))
    console.print(table)
    ways, kilobytes = passes(model, chosen.batch, chosen.rounds, clock), memory(model)
    megabytes = peak(model, chosen.batch)
    for title, figures, unit in (
        ("Passes", ways, "ms an image"),
        ("One more stream", kilobytes, "kB"),
        ("For the time of a step", megabytes, "MB"),
    ):
        small = Table(title=title)
        small.add_column("what")
        small.add_column(unit, justify="right")
        for name, value in figures.items():
            small.add_row(name, "–" if value is None else f"{value:.1f}")
        console.print(small)
    gpu = Table(title="What a GPU would gain, by a model (see docs/pool.md)")
    for heading in ("stream", "launches in turn", "in a pool", *(f"ratio at {rate} TFLOP/s" for rate in TERAFLOPS)):
        gpu.add_column(heading, justify="left" if heading == "stream" else "right")
    modelled = {}
    for name, verdicts in CASES.items():
        counts = launches(model, chosen.streams, verdicts)
        work = statistics.mean(PASSES[verdict] for verdict in verdicts)
        gains = {str(rate): gpu_gain(*counts, work, rate) for rate in TERAFLOPS}
        modelled[name] = {"launches_in_turn": counts[0], "launches_in_pool": counts[1], "ratio_by_teraflops": gains}
        gpu.add_row(name, *(f"{count:.0f}" for count in counts), *(f"{gain:.1f}" for gain in gains.values()))
    console.print(gpu)
    content = {
        "settings": settings,
        "images_a_second": compared,
        "ms_an_image": ways,
        "kilobytes_a_stream": kilobytes,
        "megabytes_of_a_step": megabytes,
        "model_of_a_gpu": modelled,
    }
    chosen.out.write_text(json.dumps(content, indent=2) + "\n")
    print(chosen.out)


if __name__ == "__main__":
    main()
