"""Check the tensors of a state file against its description, before anything is built from them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Protocol, runtime_checkable

import torch

from ..core.checks import LARGEST_COUNT, require_intact, shown
from ..core.types import Error
from .description import Description

# Tensors with numbers of steps, which the stream has already reached.
STEPS = ("guard/shadow/steps", "guard/snapshots/*/step")


@runtime_checkable
class DecidesShapes(Protocol):
    """Options that determine the shapes of some tensors of the state."""

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[Any, ...]]:
        """Return the shapes by name pattern, for this number of classes and features of this width.

        Each pattern must match at least one tensor. An ellipsis at the end of a shape matches all further dimensions.
        """


def require_consistent(tensors: dict[str, torch.Tensor], description: Description, width: int) -> None:
    """Raise an Error if an adapter with these classes, options and steps could not have written the tensors."""
    options, classes = description.options, len(description.classes)
    shapes: dict[str, tuple[Any, ...]] = {"levels/count": (classes,)} if options.adapter.answer == "levelled" else {}
    if isinstance(options.method, DecidesShapes):
        own = options.method.stored_shapes(classes, width)
        shapes |= {f"method/{pattern}": shape for pattern, shape in own.items()}
    for pattern, shape in shapes.items():
        _require(tensors, pattern, shape)
    for name, tensor in {"step": torch.tensor(description.step), **tensors}.items():
        is_step = any(fnmatchcase(name, pattern) for pattern in STEPS)
        most = description.step if is_step else LARGEST_COUNT
        if tensor.dtype == torch.int64 and tensor.numel():
            require_intact(tensor.max() <= most, f"tensor {shown(name)}", f"its values must be at most {most}")


def _require(tensors: dict[str, torch.Tensor], pattern: str, shape: tuple[Any, ...]) -> None:
    """Require that tensors match `pattern` and that all have `shape`; an ellipsis matches the rest."""
    shapes = [tuple(tensor.shape) for name, tensor in tensors.items() if fnmatchcase(name, pattern)]
    exact = shape[-1:] != (...,)
    expected = shape if exact else shape[:-1]
    wrong = [own for own in shapes if (own if exact else own[: len(expected)]) != expected]
    if wrong or not shapes:
        has = f"has shape {list(wrong[0])}" if wrong else "is not there"
        raise Error(
            f"The tensor {shown(pattern)} {has}; its options require {list(expected)}{'' if exact else ' and more'}.",
            code="state-mismatch",
        )
