"""A second device that exists only in tests: it computes on the processor, and refuses to mix with it.

Tensors on it are a wrapper subclass that says it is on a PrivateUse1 device, called "pretended". A line of code that
forgets a device makes a tensor on the processor, and the first operation on both raises `MixedDevicesError`. What may
cross is what may cross with a GPU: explicit copies, `.cpu()`, `.tolist()`, `float()`, scalars of no dimension, and
indices from the processor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "pretended"


class Backend(_DummyBackendModule):
    """Functions that torch requires from the module of a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_setup_privateuseone_for_python_backend(NAME, Backend())


class MixedDevicesError(RuntimeError):
    """Raised if one operation uses tensors of both devices."""


class Pretended(torch.Tensor):
    """A tensor that reports another device. `inner` holds its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Pretended:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device(NAME, 0), requires_grad=False,
        )  # fmt: skip
        made.inner = inner
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Pretended({self.inner!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied = Pretended(self.inner.clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return dispatched(function, arguments, keywords or {})


def dispatched(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    """Run one operation on the inner values, if it is allowed."""
    operation = torch.ops.aten
    leaves = [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor)]
    if function in (operation._to_copy.default, operation.copy_.default):
        return _copied(function, arguments, keywords)
    here = any(isinstance(leaf, Pretended) for leaf in leaves)
    plain = [leaf for leaf in leaves if not isinstance(leaf, Pretended)]
    indexing = function in (operation.index.Tensor, operation.index_put_.default, operation._index_put_impl_.default)
    if here and any(leaf.dim() for leaf in plain) and not indexing:
        raise MixedDevicesError(
            f"{function} mixes the processor with the device: {[tuple(leaf.shape) for leaf in plain]}"
        )
    inner = tree_map(lambda leaf: leaf.inner if isinstance(leaf, Pretended) else leaf, (arguments, keywords))
    asked = inner[1].get("device")
    if asked is not None:
        inner[1]["device"] = torch.device("cpu")
    found = function(*inner[0], **inner[1])
    if torch.Tag.inplace_view in function.tags:
        with no_dispatch():  # the shape of the wrapper changes too
            function(*arguments, **keywords)
    given = {id(leaf.inner): leaf for leaf in leaves if isinstance(leaf, Pretended)}
    stays = here if asked is None else asked.type == NAME

    def wrapped(leaf: Any) -> Any:
        # An operation in place gives back the tensor that it was called on.
        return (
            given.get(id(leaf))
            if id(leaf) in given
            else Pretended(leaf)
            if stays and isinstance(leaf, torch.Tensor)
            else leaf
        )

    return tree_map(wrapped, found)


def _copied(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    """Copy between the devices, which is the only operation that may use both."""
    if function is torch.ops.aten.copy_.default:
        target, source = arguments[0], arguments[1]
        plain_target = target.inner if isinstance(target, Pretended) else target
        plain_target.copy_(source.inner if isinstance(source, Pretended) else source)
        return target
    source = arguments[0]
    asked = keywords.pop("device", None)
    keywords.pop("pin_memory", None)
    copy = torch.ops.aten._to_copy.default(source.inner if isinstance(source, Pretended) else source, **keywords)
    stays = isinstance(source, Pretended) if asked is None else torch.device(asked).type == NAME
    return Pretended(copy) if stays else copy


def _empty(size: Any, dtype: torch.dtype | None = None, **_: Any) -> Pretended:
    return Pretended(torch.empty(size, dtype=dtype))


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype | None = None, **_: Any) -> Pretended:
    return Pretended(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return _copied(torch.ops.aten.copy_.default, (target, source), {})


# Whatever makes a tensor on the device begins with one of the first two, also in the threads that autograd has for a
# device.
_library = torch.library.Library("aten", "IMPL")
_library.impl("empty.memory_format", _empty, "PrivateUse1")
_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
DEVICE = torch.device(NAME, 0)
