"""What is checked, and with what: an adapter of the thing to be checked, a small tower, a short real stream."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping, Sequence
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

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# A short stream in which both kinds of images come several times.
STEPS = 12


class Violation(AssertionError):  # noqa: N818 - it says what it is, as ostta.Error does
    """A promise that was not kept, in one sentence."""


def require(kept: bool, sentence: str) -> None:
    """Raise a `Violation` unless the promise was kept."""
    if not kept:
        raise Violation(sentence)


class SmallTower(nn.Module):
    """Some encoder of a user's own: two convolutions, two LayerNorms."""

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
    """A backbone that is quick: a small tower with random weights, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return backbones.wrap(SmallTower(), torch.randn(len(CLASSES), 16), image_size=32)


@cache
def images(count: int) -> tuple[Image.Image, ...]:
    """Real images in turn: one of the sample's snowy CIFAR images, one digit."""
    desired, undesired = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    return tuple((desired if i % 2 == 0 else undesired).image(i // 2) for i in range(count))


@dataclass(frozen=True)
class Subject:
    """A method with a score and an identifier on a backbone, and the options with which it is to be checked."""

    method: str | type[Any]
    identifier: str | type[Any] = "lda"
    backbone: Backbone = field(default_factory=small_backbone)
    options: Mapping[str, Any] = field(default_factory=dict)
    score: str | type[Any] | None = None
    classes: Sequence[str] = CLASSES

    def adapter(self, seed: int = 0, classes: Sequence[str] | None = None, **options: Any) -> Adapter:
        """A fresh adapter; `options` beside or in place of the subject's own."""
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
        """For sentences."""
        return self.method if isinstance(self.method, str) else self.method.__qualname__


def require_options(of: type[Any], kind: str) -> None:
    """Options are a frozen dataclass, all of whose fields have defaults."""
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
    """What must be equal between two runs that are meant to be the same: all but the clock."""
    return [(p.label, p.index, p.score, p.threshold, str(p.verdict), p.adapted, p.loss, p.reason) for p in predictions]


def full_trace(predictions: Iterable[Prediction]) -> list[tuple[object, ...]]:
    """`trace` with the diagnostics of each step."""
    listed = list(predictions)
    # As text, so that two NaN are equal.
    numbers = [sorted((name, repr(value)) for name, value in each.diagnostics.items()) for each in listed]
    return [(*values, *pairs) for values, pairs in zip(trace(listed), numbers, strict=True)]


def content(adapter: Adapter) -> dict[str, torch.Tensor]:
    """Everything an adapter remembers."""
    remembered = {name: tensor.clone() for name, tensor in adapter.pipeline.tensors().items()}
    return remembered | {"steps": torch.tensor(adapter.steps)}


def differing(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of the tensors that are not the same to the last bit."""
    both = [name for name in first if name in second]
    return [*(first.keys() ^ second.keys()), *(name for name in both if not first[name].equal(second[name]))]


def refused(load_into: Any, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether `load_into.load` answers tensors that are not its own with an Error."""
    try:
        load_into.load(dict(tensors))
    except Error:
        return True
    except Exception:  # anything else is what must not come
        return False
    return False
