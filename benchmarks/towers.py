"""The image tower in other forms that compute the same or nearly the same, and passes without and with a graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ostta.core.losses import unit
from ostta.core.overlay import Overlay, twin

Pass = Callable[[], torch.Tensor]


class WrittenNorm(nn.LayerNorm):
    """A LayerNorm out of elementary operations."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        spread = centred.square().mean(-1, keepdim=True)
        return centred * torch.rsqrt(spread + self.eps) * self.weight + self.bias


def with_eager_attention(vision: nn.Module) -> nn.Module:
    made: Any = twin(vision)
    made.vision_model.set_attn_implementation("eager")
    return made  # type: ignore[no-any-return]


def with_written_norms(vision: nn.Module) -> nn.Module:
    made = twin(vision)
    for part in made.modules():
        if isinstance(part, nn.LayerNorm):
            part.__class__ = WrittenNorm
    return made


def in_channels_last(vision: nn.Module) -> nn.Module:
    made: nn.Module = copy.deepcopy(vision).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def in_int8(vision: nn.Module) -> nn.Module:
    with warnings.catch_warnings():  # of its successor, a package of its own
        warnings.simplefilter("ignore")
        quantised = torch.ao.quantization.quantize_dynamic  # type: ignore[attr-defined, unused-ignore]
        made: nn.Module = quantised(vision, {nn.Linear}, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    return made


def lazily(form: Callable[[nn.Module], nn.Module], vision: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """A form that is made at its first pass, which may fail where the machine does not have it."""
    made: list[nn.Module] = []

    def call(pixels: torch.Tensor) -> torch.Tensor:
        if not made:
            made.append(form(vision))
        features: torch.Tensor = made[0](pixels)
        return features

    return call


class Autocast(nn.Module):
    """A tower under autocast to bfloat16; frozen weights are cast at every pass."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features: torch.Tensor = self.tower(pixels)
        return features.float()


class Bfloat16(nn.Module):
    """A copy of a tower in bfloat16 altogether; only its features are not."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower = copy.deepcopy(tower).bfloat16()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.tower(pixels)
        return features.float()


def look(tower: Callable[..., torch.Tensor], pixels: torch.Tensor, mode: Any = torch.no_grad) -> Pass:
    def call() -> torch.Tensor:
        with mode():
            return unit(tower(pixels).float())

    return call


class Learning:
    """Passes with graph, and backwards, of one overlay over one tower."""

    def __init__(self, tower: nn.Module, names: list[str], shown: list[str], compiled: bool = False) -> None:
        self.overlay, self.shown = Overlay(tower, names), shown
        self._tower: Any = torch.compile(tower) if compiled else tower

    def features(self, pixels: torch.Tensor) -> torch.Tensor:
        with self.overlay.applied():
            return unit(self._tower(pixels))

    def gradient(self, *batches: torch.Tensor) -> torch.Tensor:
        """The unit gradient of the `shown` parameters; one backward through all batches, each a forward of its own."""
        found = torch.autograd.grad(
            loss_of(torch.cat([self.features(pixels) for pixels in batches])), self.overlay.parameters()
        )
        named = dict(zip(self.overlay.tensors, found, strict=True))
        return joined([named[name] for name in self.shown])


def loss_of(features: torch.Tensor) -> torch.Tensor:
    """Some direction for the features, always the same."""
    return (features @ unit(torch.linspace(-1.0, 1.0, features.shape[1]).cos())).sum()


def joined(gradients: Iterable[torch.Tensor]) -> torch.Tensor:
    return unit(torch.cat([gradient.flatten() for gradient in gradients]))
