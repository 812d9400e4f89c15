"""Profile of a step: operators by verdict, decoding and views, the text tower; and the effect of rounding on HM."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

import ostta
from ostta.backbones.clip import Clip
from ostta.core.types import Verdict
from ostta.data.by_name import open_dataset
from ostta.data.images import read_image
from ostta.data.views import Views
from ostta.evaluation.loop import evaluate
from ostta.streams import SingleDomain, prefetched

from .compare import Way, plain_table
from .shapes import class_names, filled, scripted
from .steps import VERDICTS, forward
from .timing import Call, alternate
from .towers import Autocast, Bfloat16

# Operators by parts of their names, without underscores; the first that fits counts. Names of backwards are among them.
GROUPS = {
    "attention": ("attention",),
    "layer norm": ("layernorm",),
    "linear": ("addmm", "::mm", "bmm", "mmbackward", "linear", "matmul"),
    "activation": ("gelu", "sigmoid", "::mul", "mulbackward"),
    "convolution": ("conv",),
    "outside operators": ("whole step",),
    "the rest": ("",),
}
# Images of a loop: enough to be ahead, few enough for many rounds.
LOOP = 4


def profiles(backbone: Clip) -> dict[str, dict[str, float]]:
    """Percent of the time of a step of ROSITA, group of operators -> verdict."""
    size = backbone.preprocessing.image_size
    views = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    adapter = filled(ostta.load(backbone, class_names(10), method="rosita"))
    found: dict[str, dict[str, float]] = {group: {} for group in GROUPS}
    for name, verdict in VERDICTS.items():
        scripted(adapter, verdict).step_views(views)
        with profile(activities=[ProfilerActivity.CPU]) as seen, record_function("whole step"):
            adapter.step_views(views)
        events = seen.key_averages()
        total = sum(event.self_cpu_time_total for event in events)
        for group in GROUPS:
            own = sum(event.self_cpu_time_total for event in events if _group(event.key) == group)
            found[group][name] = 100 * own / total
    return found


def _group(name: str) -> str:
    plain = name.lower().replace("_", "")
    return next(group for group, parts in GROUPS.items() if any(part in plain for part in parts))


def arithmetic(backbone: Clip, rounds: int) -> dict[str, dict[str, float]]:
    """Return the least possible time: only the dense layers of a step, at the rate of one large matrix product.

    torch does not count the products inside attention on a CPU; they are a thirtieth of the operations.
    """
    size, side = backbone.preprocessing.image_size, 2048
    views = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    adapter, square = filled(ostta.load(backbone, class_names(10), method="rosita")), torch.randn(side, side)
    steps: dict[str, Call] = {"one pass of the public tower, no graph": forward(backbone, views)}
    for name, verdict in VERDICTS.items():
        steps[name] = partial(_stepped, adapter, verdict, views)
    found = {}
    for name, call in steps.items():
        with FlopCounterMode(display=False) as counter:
            call()
        found[name] = {"GFLOP": counter.get_total_flops() / 1e9}
    product = "a product of two matrices, 2048 x 2048"
    ms = alternate({**steps, product: lambda: square @ square}, rounds)
    found[product] = {"GFLOP": 2 * side**3 / 1e9}
    best, one = found[product]["GFLOP"] / ms[product], ms[next(iter(steps))]
    for name, own in found.items():
        own["GFLOP/s"], own["in F"] = 1e3 * own["GFLOP"] / ms[name], ms[name] / one
        own["in F at the product's rate"] = own["GFLOP"] / best / one
    return found


def _stepped(adapter: ostta.Adapter, verdict: Verdict, views: torch.Tensor) -> object:
    return scripted(adapter, verdict).step_views(views)


def photo() -> bytes:
    """A JPEG of 640 x 480 with large shapes and some noise, as photos have."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (15, 20, 3), np.uint8)).resize((640, 480), Image.Resampling.BICUBIC)
    pixels = np.clip(np.asarray(coarse) + rng.normal(0, 8, (480, 640, 3)), 0, 255).astype(np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "JPEG", quality=90)
    return stored.getvalue()


def images(backbone: Clip) -> Iterator[Way]:
    """What stands before the tower, beside one pass of it; and loops with and without a thread that is ahead."""
    stored = photo()
    image = read_image(stored)

    def views(decoded: Image.Image) -> Views:
        return Views.of_image(decoded, backbone.preprocessing, 0, 0)

    @torch.no_grad()
    def seen(pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = backbone.vision(pixels)
        return features

    def decoded() -> Iterator[Image.Image]:
        return (read_image(stored) for _ in range(LOOP))

    def ready() -> Iterator[torch.Tensor]:
        return (views(one).canonical for one in decoded())

    tower, loop = "one pass of the tower, no graph", f"{LOOP} images, one after the other"
    pixels = views(image).canonical
    yield Way(tower, lambda: seen(pixels), tower)
    yield Way("decode", lambda: read_image(stored), tower)
    yield Way("canonical view of the decoded image", lambda: views(image).canonical, tower)
    yield Way("both views of the decoded image", lambda: views(image).augmented(1), tower)
    yield Way(loop, lambda: [seen(one) for one in ready()], loop)
    yield Way(
        f"{LOOP} images, decoded ahead", lambda: [seen(views(one).canonical) for one in prefetched(decoded())], loop
    )
    yield Way(f"{LOOP} images, decoded and resized ahead", lambda: [seen(one) for one in prefetched(ready())], loop)


def text_tower(backbone: Clip, quick: bool) -> dict[str, float]:
    """Seconds in which classes are encoded, once, and the passes of the text tower in the steps that follow."""
    found: dict[str, float] = {}
    calls: list[None] = []
    for count in (10, 100) if quick else (10, 100, 1000):
        began = time.perf_counter()
        backbone.classifier(class_names(count))
        found[f"seconds for {count} classes"] = time.perf_counter() - began
    size = backbone.preprocessing.image_size
    adapter = ostta.load(backbone, class_names(10), method="rosita")
    counting = backbone.text.register_forward_hook(lambda *_: calls.append(None))
    try:
        for verdict in VERDICTS.values():
            scripted(adapter, verdict).step_views(torch.zeros(2, 3, size, size))
    finally:
        counting.remove()
    found["passes in the steps after that"] = float(len(calls))
    return found


def small_numbers(console: Console, limit: int) -> dict[str, dict[str, float]]:
    """HM and its parts of ROSITA on the embedded model, in several precisions."""
    desired, undesired = (open_dataset(f"sample:{name}", limit=limit) for name in ("cifar10c", "mnist"))
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "single": (lambda tower: tower, {}),
        "precision=mixed": (lambda tower: tower, {"precision": "mixed"}),
        "autocast bf16": (Autocast, {}),
        "whole tower bf16": (Bfloat16, {}),
    }
    found = {}
    for what, (around, options) in ways.items():
        backbone = ostta.backbones.load("embedded")
        backbone.vision = around(backbone.vision).eval()
        adapter = ostta.load(backbone, desired.classes, method="rosita", **options)
        began = time.perf_counter()
        records = evaluate(adapter, SingleDomain(desired, undesired))
        milliseconds = 1e3 * (time.perf_counter() - began) / len(records)
        metrics = {name: value for name, value in records.metrics().items() if value is not None}
        found[what] = {**metrics, "updates": float(records.column("adapted").sum()), "ms an image": milliseconds}
        console.print(f"{what}: HM {metrics.get('hm', float('nan')):.2f}")
    console.print(plain_table(f"ROSITA, embedded model, {limit} images of cifar10c and {limit} of mnist", found))
    return found
