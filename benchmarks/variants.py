"""`python -m benchmarks.variants`: where the time of a step goes, and which speed-ups of the image tower help on a CPU.

The weights are random in CLIP's shape, because the time does not depend on them. The variants of a section take turns
in one process. A ratio is taken within a round, and the median over the rounds counts. The table also shows how much
each variant changes the result.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn
from torch._inductor.utils import fresh_cache

from ostta.core.overlay import twin
from ostta.io import write_atomically
from ostta.live.batched_tower import BatchedTower
from ostta.methods.groups import layernorm_names

from .compare import Row, Way, compare, plain_table, table
from .profile import arithmetic, images, profiles, small_numbers, text_tower
from .shapes import SHAPES, public_tower, random_clip
from .timing import Call
from .towers import (
    Autocast,
    Bfloat16,
    Learning,
    Pass,
    in_channels_last,
    in_int8,
    joined,
    lazily,
    look,
    loss_of,
    with_eager_attention,
    with_written_norms,
)

# Instructions that make small numbers quick; without them they are emulated.
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "avx_vnni", "avx512_vnni", "amx_int8")
NO_GRAPH, GRAPH, LEARN = "without graph", "graph at once", "graph at once, backward"
ALL_TOKENS = "last layer for all tokens"
RECORD, REPLAY = "recorded for a replay", "recorded, replayed, backward"


def looks(vision: nn.Module, public: nn.Module, pixels: torch.Tensor, compiled: bool) -> Iterator[Way]:
    """A look without graph."""
    batched = BatchedTower(vision, pixels.shape[-1])
    own = [vision.get_parameter(name).detach() for name in batched.names]
    ways: dict[str, Call] = {
        "no_grad": look(vision, pixels),
        ALL_TOKENS: look(public, pixels),
        "inference_mode": look(vision, pixels, torch.inference_mode),
        "channels_last": look(in_channels_last(vision), pixels.contiguous(memory_format=torch.channels_last)),
        "attention eager": look(with_eager_attention(vision), pixels),
        "LayerNorm written out": look(with_written_norms(vision), pixels),
        "LayerNorm, affine part apart": lambda: batched.look(pixels, [own]),
        "autocast bf16": look(Autocast(vision), pixels),
        "whole tower bf16": look(Bfloat16(vision), pixels),
        "int8 linear layers": look(lazily(in_int8, vision), pixels),
    }
    if compiled:
        ways["compiled"] = look(torch.compile(twin(vision)), pixels)
    return (Way(what, call, "no_grad") for what, call in ways.items())


def graphs(vision: nn.Module, public: nn.Module, pixels: torch.Tensor, compiled: bool) -> Iterator[Way]:
    """With graph, for an image that does not learn, and for one that does."""
    names, batched = layernorm_names(vision), BatchedTower(vision, pixels.shape[-1])
    own = [vision.get_parameter(name).detach() for name in names]
    plain = Learning(vision, names, names)

    def replayed() -> torch.Tensor:
        record, leaves = batched.record(pixels, [own]), batched.leaves([own])
        return joined(torch.autograd.grad(loss_of(batched.replay(record, leaves, [0])), leaves))

    yield Way(GRAPH, partial(plain.features, pixels), GRAPH)
    yield Way(NO_GRAPH, look(vision, pixels), GRAPH)
    yield Way(RECORD, lambda: batched.record(pixels, [own]).features, GRAPH)
    yield Way(LEARN, partial(plain.gradient, pixels), LEARN)
    yield Way(REPLAY, replayed, LEARN)
    yield Way(f"{ALL_TOKENS}, backward", partial(Learning(public, names, names).gradient, pixels), LEARN)
    for what, form in (("attention eager", with_eager_attention), ("LayerNorm written out", with_written_norms)):
        yield Way(f"{what}, backward", partial(Learning(form(vision), names, names).gradient, pixels), LEARN)
    everything = [name for name, _ in vision.named_parameters()]
    yield Way("gradients of all weights", partial(Learning(vision, everything, names).gradient, pixels), LEARN)
    if compiled:
        made = Learning(twin(vision), names, names, compiled=True)
        yield Way("compiled, backward", partial(made.gradient, pixels), LEARN)


def views(vision: nn.Module, pair: torch.Tensor) -> Iterator[Way]:
    """The canonical and the augmented view."""
    names = layernorm_names(vision)
    plain, one, other = Learning(vision, names, names), pair[:1], pair[1:]
    yield Way(
        "one after the other", lambda: torch.cat([look(vision, one)(), look(vision, other)()]), "one after the other"
    )
    yield Way("batch of two", look(vision, pair), "one after the other")
    apart = "one after the other, graph, one backward"
    yield Way(apart, partial(plain.gradient, one, other), apart)
    yield Way("batch of two, graph, one backward", partial(plain.gradient, pair), apart)


def threads(vision: nn.Module, pixels: torch.Tensor, most: int) -> Iterator[Way]:
    """One thread against `most`."""
    names = layernorm_names(vision)
    plain = Learning(vision, names, names)

    def on(count: int, call: Pass) -> torch.Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            return call()
        finally:
            torch.set_num_threads(before)

    for what, call in (("look", look(vision, pixels)), ("graph, backward", partial(plain.gradient, pixels))):
        yield Way(f"{what}, one thread", partial(on, 1, call), f"{what}, one thread")
        yield Way(f"{what}, {most} threads", partial(on, most, call), f"{what}, one thread")


def break_even(rows: list[Row]) -> dict[str, float]:
    """Return the share of learning images below which a deferred graph saves time, by a replay or by a second pass."""
    ms = {row.what: row.ms for row in rows if row.ms is not None}
    found = {}
    for way, saved, lost in (
        ("replay", ms[GRAPH] - ms[RECORD], ms[REPLAY] - ms[LEARN]),
        ("second pass", ms[GRAPH] - ms[NO_GRAPH], ms[NO_GRAPH]),
    ):
        found[f"{way}: ms saved on an image that does not learn"] = saved
        found[f"{way}: ms lost on an image that learns"] = lost
        found[f"{way}: share of learning images up to which it saves"] = (
            0.0 if saved <= 0 else 1.0 if lost <= 0 else saved / (saved + lost)
        )
    return found


def processor() -> list[str]:
    """Which instructions for small numbers there are; none where Linux is not."""
    file = Path("/proc/cpuinfo")
    words = set(file.read_text().split()) if file.exists() else set()
    return [flag for flag in FLAGS if flag in words]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.variants", description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="ViT-B/16")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two blocks and two rounds: does it run at all?")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--hm", action="store_true", help="only what small numbers do to HM, on the embedded model")
    parser.add_argument("--out", type=Path, help="benchmarks/variants.json, or benchmarks/variants_hm.json with --hm")
    chosen = parser.parse_args()
    out = chosen.out or Path(f"benchmarks/variants{'_hm' if chosen.hm else ''}.json")
    torch.set_num_threads(chosen.threads)
    console = Console(width=170)
    content: dict[str, Any] = {
        "settings": {name: value for name, value in vars(chosen).items() if name != "out"},
        "torch": torch.__version__,
        "processor": processor(),
    }
    console.print(f"{chosen.threads} threads, torch {torch.__version__}, processor with {', '.join(processor())}")
    if chosen.hm:
        content["hm"] = small_numbers(console, 60 if chosen.quick else 300)
    else:
        # Compiled code of an earlier run would hide what compiling costs.
        with nullcontext() if chosen.no_compile else fresh_cache():
            content |= measure(chosen, console)
    write_atomically(out, (json.dumps(content, indent=2) + "\n").encode())
    console.print(f"Figures: {out}")


def measure(chosen: argparse.Namespace, console: Console) -> dict[str, Any]:
    backbone = random_clip(chosen.shape)
    vision: Any = backbone.vision
    rounds, compiled = (2 if chosen.quick else chosen.rounds), not chosen.no_compile
    if chosen.quick:
        vision.vision_model.encoder.layers = vision.vision_model.encoder.layers[:2]
    public, size = public_tower(backbone), backbone.preprocessing.image_size
    pair = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    sections: dict[str, Iterable[Way]] = {
        "A look without graph": looks(vision, public, pair[:1], compiled),
        "Graph and backward": graphs(vision, public, pair[:1], compiled),
        "Canonical and augmented view": views(vision, pair),
        "Threads": threads(vision, pair[:1], max(2, chosen.threads)),
        "A JPEG of 640 x 480, and images made ahead": images(backbone),
    }
    rows = []
    for section, ways in sections.items():
        found = compare(section, ways, rounds)
        console.print(table(section, found))
        rows += found
    deferred, texts, shares = break_even(rows), text_tower(backbone, chosen.quick), profiles(backbone)
    floor = arithmetic(backbone, rounds)
    for title, figures in (("A graph that is made only when an image learns", deferred), ("Text tower", texts)):
        console.print(plain_table(title, {what: {"": value} for what, value in figures.items()}))
    console.print(plain_table("Time inside a step of ROSITA, percent by verdict", shares))
    console.print(plain_table("Dense layers, and what they would take at the rate of a large matrix product", floor))
    return {
        "rows": [asdict(row) for row in rows],
        "deferred_graph": deferred,
        "text_tower": texts,
        "percent_of_a_step": shares,
        "arithmetic": floor,
    }


if __name__ == "__main__":
    main()
