"""What a step costs, by method and verdict, in forwards of the image tower; beside it the published plan and the tower alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

import ostta
from ostta.core.types import Verdict

from .published import PublishedRosita, PublishedTPT
from .shapes import class_names, random_clip, scripted, warmed
from .timing import Call, alternate, peak_megabytes

VERDICTS = {
    "unreliable": Verdict.UNRELIABLE_DESIRED,
    "reliable undesired": Verdict.RELIABLE_UNDESIRED,
    "reliable desired": Verdict.RELIABLE_DESIRED,
}
TWO_VIEWS = ("zero_shot", "prototypes", "unient", "entropy", "tda", "dpe")


@dataclass(frozen=True)
class Row:
    """One side of one comparison. `forwards` is its time over that of F from the same rounds."""

    shape: str
    classes: int
    what: str
    ms: float
    forwards: float
    peak_mb: float | None


def backbone_of(shape: str) -> Any:
    return ostta.backbones.load("embedded") if shape == "embedded" else random_clip(shape)


def measure(shape: str, counts: tuple[int, ...], rounds: int) -> Iterator[Row]:
    """All methods but those that tune prompts."""
    backbone = backbone_of(shape)
    size = backbone.preprocessing.image_size
    views = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    for count in counts:
        sides = {"F": _forward(backbone, views)} | dict(_sides(backbone, class_names(count), views))
        ms = alternate(sides, rounds)
        for what, call in sides.items():
            yield Row(shape, count, what, ms[what], ms[what] / ms["F"], peak_megabytes(call))


def _loaded(backbone: Any, classes: list[str], method: str, **options: Any) -> ostta.Adapter:
    with warnings.catch_warnings():  # the embedded model does not know these words, and need not
        warnings.simplefilter("ignore")
        return ostta.load(backbone, classes, method=method, **options)


def _forward(backbone: Any, views: torch.Tensor) -> Call:
    @torch.no_grad()
    def call() -> object:
        return backbone.vision(views[:1])

    return call


def _sides(backbone: Any, classes: list[str], views: torch.Tensor) -> Iterator[tuple[str, Call]]:
    loaded = partial(_loaded, backbone, classes)

    def stepping(adapter: ostta.Adapter) -> Call:
        return lambda: adapter.step_views(views)

    yield "zero_shot, msp", stepping(loaded("zero_shot", identifier="msp"))
    for method in TWO_VIEWS:
        options = {"prototypes": {"wait": 0}, "entropy": {"confidence": 0.0}}.get(method, {})
        yield method, stepping(warmed(loaded(method, **options), views))
    for name, verdict in VERDICTS.items():
        yield f"rosita, {name}", stepping(scripted(warmed(loaded("rosita"), views), verdict))
        yield f"tower alone, {name}", _tower(loaded("rosita"), views, verdict)
        yield f"published plan, {name}", _published(backbone, loaded("zero_shot").classifier, views, verdict)
    before = warmed(loaded("rosita", answer_from="before"), views)
    yield "rosita, reliable desired, answer before", stepping(scripted(before, Verdict.RELIABLE_DESIRED))


def _tower(adapter: ostta.Adapter, views: torch.Tensor, verdict: Verdict) -> Call:
    """The forwards and backwards that a step of ROSITA cannot do without, and nothing else."""
    overlay = adapter.state.overlay
    count = {Verdict.RELIABLE_UNDESIRED: 1, Verdict.RELIABLE_DESIRED: 2}.get(verdict, 0)

    def call() -> object:
        if not count:
            return overlay.features(views[:1])
        seen = [overlay.features(views[number : number + 1]) for number in range(count)]
        torch.autograd.grad(torch.cat(seen).sum(), overlay.parameters())
        if count == 1:
            return None
        with torch.no_grad():
            return overlay.features(views[:1])

    return call


def _published(backbone: Any, classifier: torch.Tensor, views: torch.Tensor, verdict: Verdict) -> Call:
    plan = PublishedRosita(backbone, classifier)
    for warm in (Verdict.RELIABLE_UNDESIRED, Verdict.RELIABLE_DESIRED):
        for _ in range(7):
            plan.step(views, warm)
    return lambda: plan.step(views, verdict)


def same_decisions(shape: str, steps: int = 60) -> float:
    """The largest difference of scores between the published plan and ours over a stream; an error if a class differs."""
    backbone = backbone_of(shape)
    size = backbone.preprocessing.image_size
    classes = class_names(10)
    adapter = _loaded(backbone, classes, "rosita", lr=1e-3)
    plan = PublishedRosita(backbone, adapter.classifier)
    generator, worst = torch.Generator().manual_seed(1), 0.0
    for _ in range(steps):
        views = torch.randn(2, 3, size, size, generator=generator)
        prediction = adapter.step_views(views)
        assert prediction.verdict is not None
        score, label = plan.step(views, prediction.verdict)
        worst = max(worst, abs(score - prediction.score))
        assert label == prediction.index or not prediction.known, "the published plan names another class"
    return worst


def measure_tpt(shape: str, counts: tuple[int, ...], rounds: int, compared: int) -> Iterator[Row]:
    """An accepted image of TPT; its published plan is run up to `compared` classes, above which it would not fit."""
    backbone = backbone_of(shape)
    size = backbone.preprocessing.image_size
    views = torch.randn(64, 3, size, size, generator=torch.Generator().manual_seed(0))
    for count in counts:
        classes = class_names(count)
        adapter = scripted(_loaded(backbone, classes, "tpt", class_scores=True), Verdict.RELIABLE_DESIRED)
        sides: dict[str, Callable[[], Any]] = {
            "F": _forward(backbone, views),
            "tpt": lambda a=adapter: a.step_views(views),
        }  # type: ignore[misc]
        if count <= compared:
            plan = PublishedTPT(backbone, classes)
            sides["published plan of tpt"] = lambda p=plan: p.step(views)  # type: ignore[misc]
            ours, (score, theirs) = adapter.step_views(views), plan.step(views)
            assert abs(ours.score - score) < 1e-4
            worst = float((torch.tensor(ours.class_scores) - theirs).abs().max())
            assert worst < 5e-3, f"the published plan of TPT answers differently, by {worst}"
        ms = alternate(sides, rounds)
        for what, call in sides.items():
            yield Row(shape, count, what, ms[what], ms[what] / ms["F"], peak_megabytes(call))


def as_json(rows: list[Row]) -> list[dict[str, object]]:
    return [asdict(row) for row in rows]
