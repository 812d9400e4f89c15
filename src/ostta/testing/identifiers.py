"""Requirements of an identifier."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..config.registry import component_names, find_components
from ..config.resolve import resolve
from ..core.types import Decision, Verdict
from .methods import repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool
from .subject import Subject, cloned, differing, refuses, require, require_bounded, require_declared

SCORES = 60


def check_identifier(
    identifier: type[Any], *, options: Mapping[str, Any] | None = None, warm: int = 600, steps: int = 100
) -> None:
    """Check all requirements of an identifier; raise a `Violation` for the first that is not met.

    The bank must be full after `warm` scores, so that the next `steps` scores use no additional memory.

    >>> from ostta.identifiers import LDA
    >>> check_identifier(LDA)
    """
    declared(identifier)
    built = resolve(find_components("zero_shot", None, identifier), "reference", options or {}, {}).identifier
    for scale in (1.0, 100.0):
        decides_without_a_trace(identifier, built, scale)
        comes_back(identifier, built, scale)
    one = identifier(built, scale=1.0)
    scores = itertools.cycle(_scores(one, 1.0))
    require_bounded(lambda: one.observe(next(scores)), identifier.__qualname__, "score", warm, steps)
    for check in (repeatable_and_restorable, resets, survives_bad_input, works_in_a_pool):
        check(Subject("zero_shot", identifier, options=options or {}))


def declared(identifier: type[Any]) -> None:
    """Check the options, the functions, `about` and `needs`."""
    require_declared(identifier, "identifier", ("peek", "remember", "observe", "reset", "tensors", "load"))
    needs = getattr(identifier, "needs", "")
    require(
        needs is None or needs in component_names("score"),
        f"`needs` of {identifier.__qualname__} must be None or the name of the score that it requires, not {needs!r}.",
    )


def decides_without_a_trace(identifier: type[Any], options: Any, scale: float) -> None:
    """Check that `peek` changes nothing and agrees with `observe`, and that equal scores give equal decisions."""
    name = identifier.__qualname__
    one, other = identifier(options, scale=scale), identifier(options, scale=scale)
    for score in _scores(one, scale):
        before = cloned(one)
        decision = one.peek(score)
        require(
            isinstance(decision, Decision) and isinstance(decision.verdict, Verdict),
            f"`peek` of {name} must give a Decision, not {decision!r}.",
        )
        odd = [value for value in (decision.threshold, decision.mu_desired, decision.mu_undesired) if value is not None]
        require(all(map(math.isfinite, odd)), f"A threshold or mean of {name} is not finite: {decision}.")
        require(one.peek(score) == decision, f"`peek` of {name} gives another decision when it is called twice.")
        require(not differing(before, cloned(one)), f"`peek` of {name} changes its memory: only `remember` may do so.")
        one.remember(score)
        require(
            other.observe(score) == decision,
            f"`observe` and `peek` of {name} give different decisions for the same scores.",
        )
        odd_names = differing(cloned(one), cloned(other))
        require(not odd_names, f"`remember` and `observe` of {name} lead to different {', '.join(odd_names)}.")


def comes_back(identifier: type[Any], options: Any, scale: float) -> None:
    """Check that `load` restores `tensors`, that `reset` is a fresh start, and that `load` refuses other tensors."""
    name = identifier.__qualname__
    one, fresh = identifier(options, scale=scale), cloned(identifier(options, scale=scale))
    scores = _scores(one, scale)
    for score in scores[: SCORES // 2]:
        one.remember(score)
    again = identifier(options, scale=scale)
    again.load(cloned(one))
    for score in scores[SCORES // 2 :]:
        require(again.observe(score) == one.observe(score), f"After `load`, {name} gives other decisions than before.")
    require(
        refuses(again.load, {**cloned(one), "strange": torch.zeros(1)}),
        f"`load` of {name} must reject an additional tensor with an ostta.Error, because files are untrusted.",
    )
    one.reset()
    require(not differing(fresh, cloned(one)), f"After `reset`, the memory of {name} is not empty.")
    require(
        one.peek(scores[0]) == identifier(options, scale=scale).peek(scores[0]),
        f"After `reset`, {name} gives other decisions than a new instance.",
    )


def _scores(identifier: Any, scale: float) -> list[float]:
    """Return scores that alternate between two groups; probabilities if the identifier requires them."""
    largest = 1.0 if identifier.needs == "msp" else scale
    noise = np.random.default_rng(0).normal(0, 0.02, SCORES)
    return [float(largest * (noise[i] + (0.3 if i % 2 else 0.2))) for i in range(SCORES)]
