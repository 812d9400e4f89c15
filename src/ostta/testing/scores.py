"""The promises of a score."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch

from ..adapter import Adapter
from ..core.former_names import accept_former_name
from ..core.modes import learning
from ..core.types import Decision, Look, Scored, Verdict
from .leaks import leak
from .methods import repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool
from .subject import Subject, differing, images, refused, require, require_options

# Enough for a score that waits for a few images of each kind.
IMAGES = 40


def check_score(
    score: type[Any], *, options: Mapping[str, Any] | None = None, warm: int = 300, steps: int = 100
) -> None:
    """Check all that a score promises; a `Violation` says which promise it breaks.

    After `warm` images its banks must be full: the `steps` after that may keep nothing more.

    >>> from ostta.scores import MaxSoftmax
    >>> check_score(MaxSoftmax)
    """
    declared(score)
    for method in ("zero_shot", "tda", "rosita"):
        subject = Subject(method, options=options or {}, score=score)
        values_without_a_trace(subject)
        comes_back(subject)
    subject = Subject("zero_shot", options=options or {}, score=score)
    for promise in (repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool):
        promise(subject)
    adapter, pictures = subject.adapter(), itertools.cycle(images(IMAGES))
    found = leak(lambda: adapter.step(next(pictures)), warm=warm, steps=steps)
    require(
        found is None, f"{score.__qualname__} keeps more with every image, in {steps} images after {warm}: {found}."
    )


def declared(score: type[Any]) -> None:
    """Check the attributes that `ostta ls` and the options read, and the functions."""
    require_options(score, "score")
    accept_former_name(score)
    name, about = score.__qualname__, getattr(score, "about", None)
    require(
        isinstance(about, str) and bool(about) and "\n" not in about,
        f"The score {name} must have its line of `ostta ls scores` as `about`, not {about!r}.",
    )
    for part in ("value", "remember", "memories", "reset", "tensors", "load"):
        require(callable(getattr(score, part, None)), f"The score {name} must have a function `{part}`.")


def values_without_a_trace(subject: Subject) -> None:
    """`value` changes nothing, is finite, the same when asked twice, and within the scale that is declared."""
    one = subject.adapter()
    name, scale = type(one.score).__qualname__, one.score.scale
    require(
        scale is None or (math.isfinite(scale) and scale > 0),
        f"`scale` of {name} is the largest value, or None if there is none, not {scale!r}.",
    )
    for image in images(IMAGES):
        before = _content(one)
        look = _look(one, image)
        found = one.score.value(look)
        require(
            isinstance(found, Scored) and math.isfinite(found.value), f"`value` of {name} must be finite, not {found}."
        )
        require(
            all(math.isfinite(number) for number in found.evidence.values()),
            f"The evidence of {name} must be finite numbers, not {dict(found.evidence)}.",
        )
        # Cosines may exceed 1, and fall below 0, by rounding; a best cosine may be negative as well.
        require(
            scale is None or -scale <= found.value <= 1.001 * scale,
            f"{name} gives {found.value}, and its `scale` says that {scale} is the largest value.",
        )
        require(one.score.value(look) == found, f"`value` of {name} gives another number when it is asked twice.")
        require(
            not differing(before, _content(one)), f"`value` of {name} changes what it remembers: only `remember` may."
        )
        one.step(image)


def comes_back(subject: Subject) -> None:
    """Check that `load` restores `tensors`, that `reset` is a fresh start, and that `load` refuses other tensors."""
    one, again = subject.adapter(), subject.adapter()
    name, fresh = type(one.score).__qualname__, _content(subject.adapter())
    pictures = images(IMAGES)
    for number, image in enumerate(pictures):
        _remember(one, image, list(Verdict)[number % 4])
    again.score.load(_content(one))
    for number, image in enumerate(pictures[::3]):
        values = [adapter.score.value(_look(adapter, image)).value for adapter in (one, again)]
        require(values[0] == values[1], f"After `load`, {name} gives other values than before.")
        for adapter in (one, again):
            _remember(adapter, image, list(Verdict)[number % 4])
    require(not differing(_content(one), _content(again)), f"After `load`, {name} remembers otherwise than before.")
    require(
        refused(again.score, {**_content(one), "strange": torch.zeros(1)}),
        f"`load` of {name} must answer a tensor that is not its own with an ostta.Error: a file may hold anything.",
    )
    one.score.reset()
    require(not differing(fresh, _content(one)), f"After `reset`, {name} still remembers something.")


def _look(adapter: Adapter, image: Any) -> Look[Any]:
    with learning():
        return adapter.pipeline.look_now(adapter.views_of(image))


def _remember(adapter: Adapter, image: Any, verdict: Verdict) -> None:
    look = _look(adapter, image)
    adapter.score.remember(look, adapter.score.value(look), Decision(verdict, None, None, None))


def _content(adapter: Adapter) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in adapter.score.tensors().items()}
