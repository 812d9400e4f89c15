"""The tensors that adapt, held apart from a backbone that never changes.

An overlay maps parameter names of a module to its own leaf tensors. `Overlay.__call__` runs the module with them in place of the
module's own, which is what `torch.func.functional_call` does; done here by hand on the few owning submodules, because
`functional_call` walks every parameter of the module at every call (measured in `benchmarks/parts.py`).
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from .checks import require_names, stored
from .types import Error

# One lock a module: two threads that step two adapters on one backbone must not see each other's tensors half swapped in.
_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


def lock_of(module: nn.Module) -> threading.RLock:
    """What is held while tensors are swapped into `module`."""
    with _locks_guard:
        return _locks.setdefault(module, threading.RLock())


def twin(module: nn.Module) -> nn.Module:
    """The same structure over the same weights."""
    with lock_of(module):  # or an overlay of another thread could be copied in place of the weights
        shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        return copy.deepcopy(module, shared)


class Overlay:
    """Adapted copies of some parameters of `module`, and of `free` tensors that adapt but belong to no module.

    `guard` is the module that overlays of one backbone share, where `module` is not that one itself.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Iterable[str],
        free: Mapping[str, torch.Tensor] | None = None,
        guard: nn.Module | None = None,
    ) -> None:
        self.module = module
        self._guard = module if guard is None else guard
        self._free = {} if free is None else dict(free)
        self.tensors: dict[str, torch.Tensor] = {}
        self._owners: list[tuple[nn.Module, str, str]] = []
        for name in names:
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            self._owners.append((owner, leaf, name))
            # fp32 whatever the module's own precision: small updates would be lost in half precision.
            self.tensors[name] = owner.get_parameter(leaf).detach().float().clone().requires_grad_()
        for name, initial in self._free.items():
            self.tensors[name] = initial.detach().float().clone().requires_grad_()
        if not self.tensors:
            raise Error("There is nothing to adapt: the image tower has no parameter of the chosen group.")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        with self.applied():
            return self.module(*arguments, **keywords)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module with the overlay's tensors in place of its own, for the time of the block."""
        with lock_of(self._guard):
            originals = [owner._parameters[leaf] for owner, leaf, _ in self._owners]
            try:
                for owner, leaf, name in self._owners:
                    owner._parameters[leaf] = self.tensors[name]  # type: ignore[assignment]
                yield
            finally:
                for (owner, leaf, _), original in zip(self._owners, originals, strict=True):
                    owner._parameters[leaf] = original

    @torch.no_grad()
    def reset(self) -> None:
        """Back to the module's own values."""
        for owner, leaf, name in self._owners:
            self.tensors[name].copy_(owner.get_parameter(leaf))
        for name, initial in self._free.items():
            self.tensors[name].copy_(initial)

    def moved(self, tensors: Mapping[str, torch.Tensor]) -> Self:
        """The same overlay with other values, which are not copied; this one does not change."""
        other = copy.copy(self)
        other.tensors = dict(tensors)
        return other

    def snapshot(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    @torch.no_grad()
    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over values; refused whole if a name, a type or a shape does not fit, or a value is not finite."""
        require_names(tensors, self.tensors)
        for name, mine in self.tensors.items():
            stored(tensors, name, torch.float32, mine.shape)
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)

    def parameters(self) -> list[torch.Tensor]:
        return list(self.tensors.values())
