"""Check the sizes of stored tensors against the options, before memory of that size is allocated."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

import torch

from ..core.checks import shown
from ..core.types import Error
from .description import Description


@runtime_checkable
class DecidesShapes(Protocol):
    """Options that decide the shapes of some tensors of the state."""

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes by name, for this number of classes and features of this width."""


@runtime_checkable
class DecidesLengths(Protocol):
    """Options that decide the first dimension of some tensors of the state."""

    def stored_lengths(self) -> dict[str, int]:
        """Return the lengths by a pattern of names; there must be such tensors."""


def require_stored_shapes(tensors: dict[str, torch.Tensor], description: Description, width: int) -> None:
    """Raise an Error if the options could not have produced the tensors."""
    options: Any = description.options.method
    if isinstance(options, DecidesShapes):
        for name, shape in options.stored_shapes(len(description.classes), width).items():
            _require(tensors, name, shape)
    if isinstance(options, DecidesLengths):
        for pattern, length in options.stored_lengths().items():
            _require(tensors, pattern, (length, ...))


def _require(tensors: dict[str, torch.Tensor], pattern: str, shape: tuple[Any, ...]) -> None:
    """Require tensors of the method with such names, all of this shape, of which an ellipsis leaves the rest open."""
    found = [tuple(tensor.shape) for name, tensor in tensors.items() if fnmatchcase(name, f"method/{pattern}")]
    exact = shape[-1:] != (...,)
    expected = shape if exact else shape[:-1]
    wrong = [own for own in found if (own if exact else own[: len(expected)]) != expected]
    if wrong or not found:
        has = f"has shape {list(wrong[0])}" if wrong else "is not there"
        raise Error(
            f"The tensor {shown(pattern)} {has}, and its options ask for {list(expected)}{'' if exact else ' and more'}.",
            code="state-mismatch",
        )
