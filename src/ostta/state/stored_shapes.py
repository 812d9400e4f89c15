"""Check the sizes of stored tensors against the options before memory is allocated."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

import torch

from ..core.checks import shown
from ..core.types import Error
from .description import Description


@runtime_checkable
class DecidesShapes(Protocol):
    """Options that determine the shapes of some tensors of the state."""

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[Any, ...]]:
        """Return the shapes by name pattern, for this number of classes and features of this width.

        Each pattern must match at least one tensor. An ellipsis at the end of a shape matches all further dimensions.
        """


def require_stored_shapes(tensors: dict[str, torch.Tensor], description: Description, width: int) -> None:
    """Raise an Error if the options could not have produced the tensors."""
    options: Any = description.options.method
    if isinstance(options, DecidesShapes):
        for pattern, shape in options.stored_shapes(len(description.classes), width).items():
            _require(tensors, pattern, shape)


def _require(tensors: dict[str, torch.Tensor], pattern: str, shape: tuple[Any, ...]) -> None:
    """Require that tensors of the method match `pattern` and that all have `shape`; an ellipsis matches the rest."""
    shapes = [tuple(tensor.shape) for name, tensor in tensors.items() if fnmatchcase(name, f"method/{pattern}")]
    exact = shape[-1:] != (...,)
    expected = shape if exact else shape[:-1]
    wrong = [own for own in shapes if (own if exact else own[: len(expected)]) != expected]
    if wrong or not shapes:
        has = f"has shape {list(wrong[0])}" if wrong else "is not there"
        raise Error(
            f"The tensor {shown(pattern)} {has}; its options require {list(expected)}{'' if exact else ' and more'}.",
            code="state-mismatch",
        )
