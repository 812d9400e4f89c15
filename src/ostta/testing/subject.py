"""Shared parts of the checks: an adapter with the component under test, a small tower, and a short stream of images."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from PIL import Image
from torch import nn

from .. import backbones
from ..adapter import Adapter, load
from ..backbones.protocol import Backbone
from ..core.types import Error, Prediction
from ..data.by_name import open_dataset
from .leaks import leak

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Length of a short stream in which both kinds of images occur several times.
STEPS = 12


class Violation(AssertionError):  # noqa: N818 - it says what it is, as ostta.Error does
    """A requirement that is not met, in one sentence."""


def require(kept: bool, sentence: str) -> None:
    """Raise a `Violation` with `sentence` unless the requirement is met."""
    if not kept:
        raise Violation(sentence)


class SmallTower(nn.Module):
    """A custom encoder with two convolutions and two LayerNorms."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.GELU(), nn.Conv2d(width, width, 2, 2), nn.Flatten(2))
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.mix(self.norm(self.stem(x).transpose(1, 2))).mean(1)
        return features


@cache
def small_backbone() -> Backbone:
    """Return a fast backbone: a small tower with fixed random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return backbones.wrap(SmallTower(), torch.randn(len(CLASSES), 16), image_size=32)


@cache
def images(count: int) -> tuple[Image.Image, ...]:
    """Return real images that alternate between snowy CIFAR images of the sample and digits."""
    desired, undesired = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    return tuple((desired if i % 2 == 0 else undesired).image(i // 2) for i in range(count))


@dataclass(frozen=True)
class Subject:
    """A method with a score and an identifier on a backbone, and the options for the checks."""

    method: str | type[Any]
    identifier: str | type[Any] = "lda"
    backbone: Backbone = field(default_factory=small_backbone)
    options: Mapping[str, Any] = field(default_factory=dict)
    score: str | type[Any] | None = None
    classes: Sequence[str] = CLASSES

    def adapter(self, seed: int = 0, classes: Sequence[str] | None = None, **options: Any) -> Adapter:
        """Return a fresh adapter; `options` are added to those of the subject or replace them."""
        return load(
            self.backbone,
            self.classes if classes is None else classes,
            method=self.method,
            score=self.score,
            identifier=self.identifier,
            seed=seed,
            options={**self.options, **options},
        )

    @property
    def name(self) -> str:
        """Name of the method in messages."""
        return self.method if isinstance(self.method, str) else self.method.__qualname__


def require_declared(of: type[Any], kind: str, functions: Sequence[str]) -> None:
    """Require the options, the functions and, for a score or an identifier, the line `about` of a class."""
    _require_options(of, kind)
    name = of.__qualname__
    if kind != "method":
        about = getattr(of, "about", None)
        require(
            isinstance(about, str) and bool(about) and "\n" not in about,
            f"The {kind} {name} must have its line of `ostta ls {kind}s` as `about`, not {about!r}.",
        )
    for part in functions:
        require(callable(getattr(of, part, None)), f"The {kind} {name} must have a function `{part}`.")


def require_bounded(step: Callable[[], object], name: str, unit: str, warm: int, steps: int) -> None:
    """Require that `step` keeps no additional objects after `warm` calls; `unit` is what one call processes."""
    growth = leak(step, warm=warm, steps=steps)
    require(
        growth is None,
        f"{name} keeps more with every {unit}, in {steps} {unit}s after {warm}: {growth}. Its memory must be bounded, "
        "and tensors in it must be detached.",
    )


def _require_options(of: type[Any], kind: str) -> None:
    """Require that the options are a frozen dataclass whose fields all have defaults."""
    options = getattr(of, "Options", None)
    require(
        inspect.isclass(options) and dataclasses.is_dataclass(options),
        f"The {kind} {of.__qualname__} must have its options as `Options`, a dataclass.",
    )
    parameters: Any = getattr(options, "__dataclass_params__", None)
    require(
        parameters.frozen,
        f"The options of {of.__qualname__} must be frozen: @dataclass(frozen=True).",
    )
    lacking = [
        each.name
        for each in dataclasses.fields(options)  # type: ignore[arg-type]
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    require(not lacking, f"All options of {of.__qualname__} must have defaults, and {', '.join(lacking)} has none.")


def trace(predictions: Iterable[Prediction]) -> list[tuple[object, ...]]:
    """Return all values that must be equal in two equal runs: everything except timings."""
    return [(p.label, p.index, p.score, p.threshold, str(p.verdict), p.adapted, p.loss, p.reason) for p in predictions]


def full_trace(predictions: Iterable[Prediction]) -> list[tuple[object, ...]]:
    """Return `trace` with the diagnostics of each step."""
    listed = list(predictions)
    # As text, so that two NaN values compare equal.
    numbers = [sorted((name, repr(value)) for name, value in each.diagnostics.items()) for each in listed]
    return [(*values, *pairs) for values, pairs in zip(trace(listed), numbers, strict=True)]


def content(adapter: Adapter) -> dict[str, torch.Tensor]:
    """Return the complete memory of an adapter."""
    return cloned(adapter.pipeline) | {"steps": torch.tensor(adapter.steps)}


def cloned(component: Any) -> dict[str, torch.Tensor]:
    """Return copies of the tensors of a component."""
    return {name: tensor.clone() for name, tensor in component.tensors().items()}


def differing(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that are not bit-equal."""
    both = [name for name in first if name in second]
    return [*(first.keys() ^ second.keys()), *(name for name in both if not first[name].equal(second[name]))]


def refuses(function: Callable[[Any], object], argument: Any, word: str = "") -> bool:
    """Return whether `function` raises an ostta.Error for `argument`, with `word` in its message."""
    try:
        function(argument)
    except Exception as problem:
        return isinstance(problem, Error) and word in str(problem)
    return False
