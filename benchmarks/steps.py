"""What a step costs, by method and verdict, in forwards of the image tower; beside it the published plan.

Methods that tune prompts are in `prompts.py`.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch

import ostta
from ostta.core.types import Verdict

from .published import PublishedRosita
from .shapes import Scripted, class_names, filled, public_tower, random_clip, scripted
from .timing import Call, peak_megabytes, rounds_of

VERDICTS = {
    "unreliable": Verdict.UNRELIABLE_DESIRED,
    "reliable undesired": Verdict.RELIABLE_UNDESIRED,
    "reliable desired": Verdict.RELIABLE_DESIRED,
}
# At this count ROSITA at ten classes takes part in the same rounds, so that the two can be set against each other.
MANY_BESIDE_FEW = 1000
TWO_VIEWS = ("zero_shot", "prototypes", "unient", "entropy", "tda", "dpe")


@dataclass(frozen=True)
class Row:
    """One side of one comparison: median milliseconds, and the times of each round over that of F in the same round."""

    shape: str
    classes: int
    what: str
    ms: float
    rounds: list[float]
    peak_mb: float | None

    @property
    def forwards(self) -> float:
        return statistics.median(self.rounds)


def backbone_of(shape: str) -> Any:
    return ostta.backbones.load("embedded") if shape == "embedded" else random_clip(shape)


def measure(shape: str, counts: tuple[int, ...], rounds: int) -> Iterator[Row]:
    """All methods but those that tune prompts."""
    backbone = backbone_of(shape)
    views = views_for(backbone, 2)
    plan = PublishedRosita(backbone)
    for count in counts:
        # The published plan hardly depends on the count, and takes its time.
        beside = None if min(counts) < count < max(counts) else plan
        # A tower of a few milliseconds is repeated, or a moment's disturbance would be most of a round.
        yield from _rows(shape, count, backbone, views, beside, rounds, repeat=5 if shape == "embedded" else 1)


def _rows(
    shape: str,
    count: int,
    backbone: Any,
    views: torch.Tensor,
    plan: PublishedRosita | None,
    rounds: int,
    repeat: int,
) -> Iterator[Row]:
    one, sides = forward(backbone, views), dict(_sides(backbone, class_names(count), views, plan))
    # Memory first: what an earlier call keeps for later would not be counted.
    peaks = {what: peak_megabytes(call) for what, call in {"F": one, **sides}.items()}
    ms = rounds_of(_with_units(sides, one), rounds, repeat)
    units = [
        statistics.median(some) for some in zip(*(ms.pop(name) for name in list(ms) if _is_unit(name)), strict=True)
    ]
    for what, own in {"F": units, **ms}.items():
        ratios = [mine / unit for mine, unit in zip(own, units, strict=True)]
        yield Row(shape, count, what, statistics.median(own), ratios, peaks[what])
    yield from _beside(shape, backbone, count, views, statistics.median(units), rounds)


def _with_units(sides: Mapping[str, Call], one: Call) -> dict[str, Call]:
    """F before every third side: every ratio of a round is taken to it, so it must be surer than a single call."""
    mixed: dict[str, Call] = {}
    for place, (what, call) in enumerate(sides.items()):
        if place % 3 == 0:
            mixed[f"F {place}"] = one
        mixed[what] = call
    return mixed


def _is_unit(what: str) -> bool:
    return what.startswith("F ")


def views_for(backbone: Any, count: int) -> torch.Tensor:
    size = backbone.preprocessing.image_size
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def loaded_with(backbone: Any, classes: list[str], method: str, **options: Any) -> ostta.Adapter:
    with warnings.catch_warnings():  # the embedded model does not know these words, and need not
        warnings.simplefilter("ignore")
        return ostta.load(backbone, classes, method=method, **options)


def forward(backbone: Any, views: torch.Tensor) -> Call:
    """F: one image through the public tower."""
    return _pass(public_tower(backbone), views)


def _pass(tower: torch.nn.Module, views: torch.Tensor) -> Call:
    @torch.no_grad()
    def call() -> object:
        return tower(views[:1])

    return call


def _sides(
    backbone: Any, classes: list[str], views: torch.Tensor, plan: PublishedRosita | None
) -> Iterator[tuple[str, Call]]:
    def stepping(
        method: str, verdict: Verdict = Verdict.RELIABLE_DESIRED, names: list[str] = classes, **options: Any
    ) -> Call:
        adapter = _ready(backbone, names, method, verdict, **options)
        return lambda: adapter.step_views(views)

    yield "one pass of the tower", _pass(backbone.vision, views)
    yield "zero_shot, msp", stepping("zero_shot", identifier="msp")
    for method in TWO_VIEWS:
        yield method, stepping(method, **({"confidence": 0.0} if method == "entropy" else {}))
    for name, verdict in VERDICTS.items():
        yield f"rosita, {name}", stepping("rosita", verdict)
        if plan is not None:
            yield f"published plan, {name}", partial(plan.begin(backbone.classifier(classes)).step, views, verdict)
    yield "rosita, reliable desired, answer before", stepping("rosita", answer_from="before")
    if len(classes) == MANY_BESIDE_FEW:
        for name, verdict in VERDICTS.items():
            yield f"rosita of 10 classes, {name}", stepping("rosita", verdict, class_names(10))


def _ready(backbone: Any, classes: list[str], method: str, verdict: Verdict, **options: Any) -> ostta.Adapter:
    """With full banks and a verdict that is given; an identifier that is asked for by name keeps its own."""
    adapter = filled(loaded_with(backbone, classes, method, **options))
    return adapter if "identifier" in options else scripted(adapter, verdict)


def _beside(shape: str, backbone: Any, count: int, views: torch.Tensor, ms: float, rounds: int) -> Iterator[Row]:
    """What a step does beside the tower, over one pass of it."""
    for name, verdict in VERDICTS.items():
        own = Beside(_ready(backbone, class_names(count), "rosita", verdict), views)
        taken = [own.milliseconds() for _ in range(rounds + 1)][1:]
        ratios = [one / ms for one in taken]
        yield Row(shape, count, f"beside the tower, {name}", statistics.median(taken), ratios, None)


class Beside:
    """The part of a step that is not spent in passes of the tower: forwards, and the backward from the loss."""

    def __init__(self, adapter: ostta.Adapter, views: torch.Tensor) -> None:
        self.adapter, self.views, self.inside = adapter, views, 0.0

    def milliseconds(self) -> float:
        """Of one step. The backward is clocked with that of the loss, which is a few numbers long."""
        self.inside = 0.0
        vision, gradient = self.adapter.backbone.vision, torch.autograd.grad
        with (
            mock.patch.object(vision, "forward", self._clocked(vision.forward)),
            mock.patch.object(torch.autograd, "grad", self._clocked(gradient)),
        ):
            began = time.perf_counter()
            self.adapter.step_views(self.views)
            return 1e3 * (time.perf_counter() - began - self.inside)

    def _clocked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.inside += time.perf_counter() - began

        return call


def same_decisions(shape: str, steps: int = 30) -> float:
    """The largest difference of scores between the published plan and ours over a stream; an error if a class differs.

    Verdicts go round, so that after a while the banks are full enough for all three losses.
    """
    backbone = backbone_of(shape)
    size = backbone.preprocessing.image_size
    adapter = loaded_with(backbone, class_names(10), "rosita", lr=1e-3)
    adapter.memory.identifier = Scripted(*VERDICTS.values())  # type: ignore[assignment]
    plan = PublishedRosita(backbone).begin(adapter.classifier, full=False)
    generator, worst, learned = torch.Generator().manual_seed(1), 0.0, 0
    for _ in range(steps):
        views = torch.randn(2, 3, size, size, generator=generator)
        prediction = adapter.step_views(views)
        assert prediction.verdict is not None
        score, label = plan.step(views, prediction.verdict)
        worst = max(worst, abs(score - prediction.score))
        learned += prediction.adapted and prediction.verdict is Verdict.RELIABLE_UNDESIRED
        assert label == prediction.index or not prediction.known, "the published plan names another class"
    assert learned, "the stream was too short for the banks"
    return worst
