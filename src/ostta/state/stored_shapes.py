"""Whether the stored tensors are as large as the options say: known before storage of that size is asked for."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch

from ..core.checks import shown
from ..core.types import Error
from .description import Description


@runtime_checkable
class DecidesShapes(Protocol):
    """Options that decide how large some tensors of the state are."""

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """The shapes by name, for so many classes and features of that width."""


def require_stored_shapes(tensors: dict[str, torch.Tensor], description: Description, width: int) -> None:
    """Refuse tensors that the options would not have made."""
    options: Any = description.options.method
    if isinstance(options, DecidesShapes):
        for name, shape in options.stored_shapes(len(description.classes), width).items():
            found = tensors.get(f"method/{name}")
            if found is None or tuple(found.shape) != shape:
                has = "is not there" if found is None else f"has shape {list(found.shape)}"
                raise Error(f"The tensor {shown(name)} {has}, and its options ask for {list(shape)}.")
    if getattr(options, "group", None) == "lora":
        ranks = {tensor.shape[:1] for name, tensor in tensors.items() if ".lora_A." in name}
        if ranks != {torch.Size([options.rank])}:
            raise Error(f"The LoRA tensors are not there or not of rank {options.rank}, which the options ask for.")
