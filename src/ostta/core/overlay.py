"""The tensors that adapt, held apart from a backbone that never changes.

An overlay maps parameter names of a module to its own leaf tensors. `encode` runs the image tower with them in place of the
module's own, which is what `torch.func.functional_call` does; done here by hand on the few owning submodules, because
`functional_call` walks every parameter of the module at every call (measured in `benchmarks/step_parts.py`).
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import torch
from torch import nn

from .checks import require_names, stored
from .devices import in_single, own_precision
from .scores import unit
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


def encode(vision: nn.Module, pixels: torch.Tensor, overlay: Overlay | None = None) -> torch.Tensor:
    """Unit features [B, D] of images [B, 3, H, W]: the one place where an image tower runs, frozen or under an overlay.

    The lock is held either way: the tower's own values are read, and another thread may have its overlay in their place.
    """
    tower = vision if overlay is None else overlay.vision
    with lock_of(vision) if overlay is None else overlay.applied(), own_precision(tower):
        raw: torch.Tensor = tower(pixels)
    # Under `precision=mixed` the features of a tower in single precision stay as autocast made them.
    return unit(in_single(raw, tower))


class Overlay:
    """Adapted values of some parameters of `module`, and of `free` tensors that adapt but belong to no module.

    An overlay never changes: `moved` gives another one with other values. `guard` is the module that overlays of one backbone
    share, where `module` is not that one itself.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Iterable[str],
        free: Mapping[str, torch.Tensor] | None = None,
        guard: nn.Module | None = None,
    ) -> None:
        self.vision = module
        self._lock = lock_of(module if guard is None else guard)
        # Where the module's own values are, in the order of `names`: the parameters of the owning submodule, and a name in them.
        self._places: list[tuple[dict[str, nn.Parameter | None], str]] = []
        initial: dict[str, torch.Tensor] = {}
        with self._lock:  # or an overlay of another thread could be copied in place of the weights
            for name in names:
                path, _, leaf = name.rpartition(".")
                owner = module.get_submodule(path)
                self._places.append((owner._parameters, leaf))
                initial[name] = owner.get_parameter(leaf)
            initial |= {} if free is None else free
            if not initial:
                raise Error("There is nothing to adapt: the image tower has no parameter of the chosen group.")
            # fp32 whatever the module's own precision: small updates would be lost in half precision.
            self.tensors = {name: _leaf(tensor.detach().float().clone()) for name, tensor in initial.items()}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module with the overlay's tensors in place of its own, for the time of the block."""
        with self._lock:
            originals = [parameters[leaf] for parameters, leaf in self._places]
            try:
                # The first of the tensors are the module's, and free ones follow.
                for (parameters, leaf), tensor in zip(self._places, self.tensors.values(), strict=False):
                    parameters[leaf] = tensor  # type: ignore[assignment]
                yield
            finally:
                for (parameters, leaf), original in zip(self._places, originals, strict=True):
                    parameters[leaf] = original

    def moved(self, values: Iterable[torch.Tensor]) -> Self:
        """The same overlay with other values, in the order of `parameters`; they are taken over, not copied."""
        other = copy.copy(self)
        other.tensors = dict(zip(self.tensors, map(_leaf, values), strict=True))
        return other

    def stored(self) -> dict[str, torch.Tensor]:
        """The values by name, for a state file."""
        return {name: tensor.detach() for name, tensor in self.tensors.items()}

    def restored(self, tensors: Mapping[str, torch.Tensor]) -> Self:
        """The same overlay with values that `stored` gave; refused if a name, type or shape does not fit, or one is not finite."""
        require_names(tensors, self.tensors)
        values = [stored(tensors, name, torch.float32, mine.shape) for name, mine in self.tensors.items()]
        return self.moved(
            value.to(mine.device, copy=True) for value, mine in zip(values, self.parameters(), strict=True)
        )

    def parameters(self) -> list[torch.Tensor]:
        return list(self.tensors.values())


@torch.no_grad()
def distance(one: Overlay, other: Overlay) -> float:
    """How far the values of two overlays of one kind are apart, by the length of the other's."""
    values, others = one.parameters(), other.parameters()
    apart, length = (
        float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors))))
        for tensors in (torch._foreach_sub(values, others), others)
    )
    return apart / max(length, 1e-12)


def _leaf(values: torch.Tensor) -> torch.Tensor:
    return (values.detach() if values.requires_grad else values).requires_grad_()
