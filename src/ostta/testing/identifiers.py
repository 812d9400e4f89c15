"""The promises of an identifier."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..config.registry import component_names, find_components
from ..config.resolve import resolve
from ..core.former_names import accept_former_name
from ..core.types import Decision, Verdict
from .leaks import leak
from .methods import repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool
from .subject import Subject, differing, refused, require, require_options

SCORES = 60


def check_identifier(
    identifier: type[Any], *, options: Mapping[str, Any] | None = None, warm: int = 600, steps: int = 100
) -> None:
    """Check all that an identifier promises; a `Violation` says which promise it breaks.

    After `warm` scores its bank must be full: the `steps` after that may keep nothing more.

    >>> from ostta.identifiers import LDA
    >>> check_identifier(LDA)
    """
    declared(identifier)
    built = resolve(find_components("zero_shot", None, identifier), "reference", options or {}, {}).identifier
    for scale in (1.0, 100.0):
        decides_without_a_trace(identifier, built, scale)
        comes_back(identifier, built, scale)
    keeps_nothing_more(identifier, built, warm, steps)
    for promise in (repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool):
        promise(Subject("zero_shot", identifier, options=options or {}))


def declared(identifier: type[Any]) -> None:
    """Check the attributes that `ostta ls` and the options read, and the functions."""
    require_options(identifier, "identifier")
    accept_former_name(identifier)
    name = identifier.__qualname__
    about, needs = getattr(identifier, "about", None), getattr(identifier, "needs", "nothing said")
    require(
        isinstance(about, str) and bool(about) and "\n" not in about,
        f"The identifier {name} must have its line of `ostta ls identifiers` as `about`, not {about!r}.",
    )
    require(
        needs is None or needs in component_names("score"),
        f"`needs` of {name} is None, or the name of the only score that it can judge, not {needs!r}.",
    )
    for part in ("peek", "remember", "observe", "reset", "tensors", "load"):
        require(callable(getattr(identifier, part, None)), f"The identifier {name} must have a function `{part}`.")


def decides_without_a_trace(identifier: type[Any], options: Any, scale: float) -> None:
    """`peek` changes nothing and says what `observe` would say; equal scores give equal decisions."""
    name = identifier.__qualname__
    one, other = identifier(options, scale=scale), identifier(options, scale=scale)
    for score in _scores(one, scale):
        before = _content(one)
        decision = one.peek(score)
        require(
            isinstance(decision, Decision) and isinstance(decision.verdict, Verdict),
            f"`peek` of {name} must give a Decision, not {decision!r}.",
        )
        odd = [value for value in (decision.threshold, decision.mu_desired, decision.mu_undesired) if value is not None]
        require(all(map(math.isfinite, odd)), f"A threshold or mean of {name} is not finite: {decision}.")
        require(one.peek(score) == decision, f"`peek` of {name} gives another decision when it is asked twice.")
        require(
            not differing(before, _content(one)), f"`peek` of {name} changes what it remembers: only `remember` may."
        )
        one.remember(score)
        require(
            other.observe(score) == decision,
            f"`observe` of {name} decides otherwise than `peek` did for the same scores.",
        )
        odd_names = differing(_content(one), _content(other))
        require(not odd_names, f"`remember` and `observe` of {name} lead to different {', '.join(odd_names)}.")


def comes_back(identifier: type[Any], options: Any, scale: float) -> None:
    """Check that `load` restores `tensors`, that `reset` is a fresh start, and that `load` refuses other tensors."""
    name = identifier.__qualname__
    one, fresh = identifier(options, scale=scale), _content(identifier(options, scale=scale))
    scores = _scores(one, scale)
    for score in scores[: SCORES // 2]:
        one.remember(score)
    again = identifier(options, scale=scale)
    again.load(_content(one))
    for score in scores[SCORES // 2 :]:
        require(again.observe(score) == one.observe(score), f"After `load`, {name} decides otherwise than before.")
    require(
        refused(again, {**_content(one), "strange": torch.zeros(1)}),
        f"`load` of {name} must answer a tensor that is not its own with an ostta.Error: a file may hold anything.",
    )
    one.reset()
    require(not differing(fresh, _content(one)), f"After `reset`, {name} still remembers something.")
    require(
        one.peek(scores[0]) == identifier(options, scale=scale).peek(scores[0]),
        f"After `reset`, {name} decides otherwise than a fresh one.",
    )


def keeps_nothing_more(identifier: type[Any], options: Any, warm: int, steps: int) -> None:
    """With the bank full, no score leaves anything behind."""
    one = identifier(options, scale=1.0)
    scores = itertools.cycle(_scores(one, 1.0))
    found = leak(lambda: one.observe(next(scores)), warm=warm, steps=steps)
    require(
        found is None,
        f"{identifier.__qualname__} keeps more with every score, in {steps} scores after {warm}: {found}.",
    )


def _scores(identifier: Any, scale: float) -> list[float]:
    """Scores of two groups in turn; probabilities where the identifier wants these."""
    largest = 1.0 if identifier.needs == "msp" else scale
    noise = np.random.default_rng(0).normal(0, 0.02, SCORES)
    return [float(largest * (noise[i] + (0.3 if i % 2 else 0.2))) for i in range(SCORES)]


def _content(identifier: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in identifier.tensors().items()}
