"""Cost of an accepted image for methods that tune prompts, in passes of the image tower, beside TPT's published code.

A step has 64 views and a text tower and takes up to minutes, so each step is measured once; it is already an average
over 64 passes. F is measured before every step, and its median counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import ostta
from ostta.backbones.maple import Maple, new_prompts
from ostta.backbones.protocol import Statistics
from ostta.core.types import Verdict

from .published import PublishedTPT
from .shapes import class_names, scripted
from .steps import Row, backbone_of, forward, loaded_with, views_for
from .timing import Call, alternate, timed_peak

VIEWS = 64
# The published code keeps the graph of 77 positions of every class at once. More classes than this do not fit into
# 24 GB, so they are processed in parts of this size, with the same passes and less memory.
PART = 250


def measure_prompts(shape: str, counts: tuple[int, ...], plans: tuple[int, ...]) -> Iterator[Row]:
    """All prompt methods at the class counts `counts`, and TPT beside its published plan at `plans`."""
    backbone = backbone_of(shape)
    views = views_for(backbone, VIEWS)
    for count in counts:
        yield from _once(backbone, count, dict(_sides(backbone, class_names(count), views)), views)
    for count in plans:
        yield from _beside_published(backbone, count, views)


def _once(backbone: Any, count: int, sides: dict[str, Call], views: torch.Tensor) -> Iterator[Row]:
    for what, call in sides.items():
        one = alternate({"F": forward(backbone, views)}, 3)["F"]
        ms, peak = timed_peak(call)
        yield Row(backbone.id, count, what, ms, [ms / one], peak)


def accepted(backbone: Any, classes: list[str], method: str, views: torch.Tensor) -> Call:
    adapter = scripted(loaded_with(backbone, classes, method), Verdict.RELIABLE_DESIRED)
    return lambda: adapter.step_views(views)


def _sides(backbone: Any, classes: list[str], views: torch.Tensor) -> Iterator[tuple[str, Call]]:
    yield from ((method, accepted(backbone, classes, method, views)) for method in ("tpt", "tpt_c"))
    maple = with_maple(backbone)
    yield from ((f"{method}, MaPLe", accepted(maple, classes, method, views)) for method in ("palign", "palign_c"))


def with_maple(backbone: Any) -> Any:
    """The embedded model's own prompts, or untrained ones, whose cost is the same."""
    if backbone.id == "embedded":
        return ostta.backbones.load("embedded+maple")
    torch.manual_seed(0)
    prompts, config = new_prompts(backbone), backbone.vision.vision_model.config
    tokens = (config.image_size // config.patch_size) ** 2 + 1 + len(prompts.ctx)
    shape = (config.num_hidden_layers, tokens, config.hidden_size)
    return Maple(backbone, prompts, f"{backbone.id}+maple", Statistics(torch.zeros(shape), torch.ones(shape)))


def _beside_published(backbone: Any, count: int, views: torch.Tensor) -> list[Row]:
    """An error if the two answer differently."""
    classes, answers = class_names(count), {}
    adapter = scripted(loaded_with(backbone, classes, "tpt", class_scores=True), Verdict.RELIABLE_DESIRED)
    plan = PublishedTPT(backbone, classes, part=PART)

    def ours() -> None:
        prediction = adapter.step_views(views)
        answers["ours"] = torch.tensor([prediction.score, *(prediction.class_scores or {}).values()])

    def theirs() -> None:
        score, logits = plan.step(views)
        answers["theirs"] = torch.tensor([score, *logits.tolist()])

    ours()  # the first call of a process reserves room that later ones have
    sides: dict[str, Call] = {"tpt, beside its plan": ours, "published plan of tpt": theirs}
    rows = list(_once(backbone, count, sides, views))
    worst = float((answers["ours"] - answers["theirs"]).abs().max())
    assert worst < 5e-3, f"the published plan of TPT answers differently, by {worst}"
    return rows
