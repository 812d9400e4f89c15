"""Requirements of a score."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch

from ..adapter import Adapter
from ..backbones.protocol import Backbone
from ..core.overlay import learning
from ..core.types import Decision, Look, Scored, Verdict
from .methods import repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool
from .subject import (
    Subject,
    cloned,
    differing,
    images,
    refuses,
    require,
    require_bounded,
    require_declared,
    small_backbone,
)

# Enough images for a score that waits for a few images of each kind.
IMAGES = 40


def check_score(
    score: type[Any],
    *,
    backbone: Backbone | None = None,
    options: Mapping[str, Any] | None = None,
    warm: int = 300,
    steps: int = 100,
) -> None:
    """Check all requirements of a score; raise a `Violation` for the first that is not met.

    The score runs on `backbone`, by default a small tower, also with a method that trains if the backbone permits. The
    banks must be full after `warm` images, so that the next `steps` images use no additional memory.

    >>> from ostta.scores import MaxSoftmax
    >>> check_score(MaxSoftmax)
    """
    require_declared(score, "score", ("value", "remember", "memories", "reset", "tensors", "load"))
    backbone = backbone or small_backbone()
    for method in ("zero_shot", "tda", "rosita") if backbone.trainable else ("zero_shot", "tda"):
        subject = Subject(method, backbone=backbone, options=options or {}, score=score)
        values_without_a_trace(subject)
        comes_back(subject)
    subject = Subject("zero_shot", backbone=backbone, options=options or {}, score=score)
    for check in (repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool):
        check(subject)
    adapter, pictures = subject.adapter(), itertools.cycle(images(IMAGES))
    require_bounded(lambda: adapter.step(next(pictures)), score.__qualname__, "image", warm, steps)


def values_without_a_trace(subject: Subject) -> None:
    """Check that `value` changes nothing, and is finite, repeatable and within the declared scale."""
    one = subject.adapter()
    name, scale = type(one.score).__qualname__, one.score.scale
    require(
        scale is None or (math.isfinite(scale) and scale > 0),
        f"`scale` of {name} is the largest value, or None if there is none, not {scale!r}.",
    )
    for image in images(IMAGES):
        before = cloned(one.score)
        look = _look(one, image)
        scored = one.score.value(look)
        require(
            isinstance(scored, Scored) and math.isfinite(scored.value),
            f"`value` of {name} must be finite, not {scored}.",
        )
        require(
            all(math.isfinite(number) for number in scored.evidence.values()),
            f"The evidence of {name} must be finite numbers, not {dict(scored.evidence)}.",
        )
        # Rounding may move cosines above 1 or below 0, and a best cosine may be negative.
        require(
            scale is None or -scale <= scored.value <= 1.001 * scale,
            f"{name} gives {scored.value}, and its `scale` says that {scale} is the largest value.",
        )
        require(one.score.value(look) == scored, f"`value` of {name} gives another number when it is called twice.")
        require(
            not differing(before, cloned(one.score)),
            f"`value` of {name} changes its memory: only `remember` may do so.",
        )
        one.step(image)


def comes_back(subject: Subject) -> None:
    """Check that `load` restores `tensors`, that `reset` is a fresh start, and that `load` refuses other tensors."""
    one, again = subject.adapter(), subject.adapter()
    name, fresh = type(one.score).__qualname__, cloned(subject.adapter().score)
    pictures = images(IMAGES)
    for number, image in enumerate(pictures):
        _remember(one, image, list(Verdict)[number % 4])
    again.score.load(cloned(one.score))
    for number, image in enumerate(pictures[::3]):
        values = [adapter.score.value(_look(adapter, image)).value for adapter in (one, again)]
        require(values[0] == values[1], f"After `load`, {name} gives other values than before.")
        for adapter in (one, again):
            _remember(adapter, image, list(Verdict)[number % 4])
    require(
        not differing(cloned(one.score), cloned(again.score)), f"After `load`, {name} stores other content than before."
    )
    require(
        refuses(again.score.load, {**cloned(one.score), "strange": torch.zeros(1)}),
        f"`load` of {name} must reject an additional tensor with an ostta.Error, because files are untrusted.",
    )
    one.score.reset()
    require(not differing(fresh, cloned(one.score)), f"After `reset`, the memory of {name} is not empty.")


def _look(adapter: Adapter, image: Any) -> Look[Any]:
    with learning():
        return adapter.pipeline.look_now(adapter.pipeline.views(image))


def _remember(adapter: Adapter, image: Any, verdict: Verdict) -> None:
    look = _look(adapter, image)
    adapter.score.remember(look, adapter.score.value(look), Decision(verdict, None, None, None))
