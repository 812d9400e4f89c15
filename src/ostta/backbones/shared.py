"""A model that somebody has loaded already, as a frozen one of the same structure over the same numbers."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ..core.modes import learning
from ..core.types import Error

PRECISIONS = (torch.float32, torch.bfloat16, torch.float16)


def shared_copy(model: nn.Module) -> tuple[nn.Module, torch.device, torch.dtype]:
    """The copy, in eval mode and without gradients, where it is, and the precision of its matrices.

    The numbers are not copied, so it takes hardly any memory. The modes, gradients and modules of `model` stay as they are, and what
    is done to them later does not reach the copy; only a training step, which writes into the numbers themselves, would.
    """
    weights = list(model.parameters())
    if not weights:
        raise Error(f"The model, a {type(model).__name__}, has no weights.")
    devices, odd = {tensor.device for tensor in weights}, {tensor.dtype for tensor in weights} - set(PRECISIONS)
    if len(devices) > 1 or "meta" in {device.type for device in devices}:
        places = " and ".join(sorted(map(str, devices)))
        raise Error(f"The weights of the model are on {places}: all of them must be on one device, in memory.")
    if odd:
        raise Error(f"The model has weights of type {odd.pop()}: they must be float32, bfloat16 or float16.")
    precision = next((tensor.dtype for tensor in weights if tensor.ndim > 1), weights[0].dtype)
    with learning():
        known: dict[int, object] = {id(tensor): nn.Parameter(_alias(tensor), requires_grad=False) for tensor in weights}
        known |= {id(tensor): _alias(tensor) for tensor in model.buffers()}
        try:
            copied = copy.deepcopy(model, known)
        except Exception as problem:  # somebody else's module: anything may come
            reason = " ".join(str(problem).split())[:200].rstrip(".")
            raise Error(
                f"The structure of the model, a {type(model).__name__}, cannot be copied: {reason}."
            ) from problem
    return copied.eval(), devices.pop(), precision


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    # What was made in inference mode can never be learned through, so of such a tensor the numbers are copied.
    return tensor.clone() if tensor.is_inference() else tensor.detach()
