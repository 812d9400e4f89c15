"""Run an image tower, frozen or with adapted values. The values of the tower itself never change.

An overlay maps parameter names of a module to its own leaf tensors. `encode` runs the image tower with them in place of
the module's own, as `torch.func.functional_call` does. Here only the submodules that own these parameters are changed,
because `functional_call` visits every parameter of the module at every call (measured in `benchmarks/step_parts.py`).
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Self

import torch
from torch import nn

from .checks import require_names, stored
from .losses import cosines, unit
from .types import Error, Look

# Modules that stay in single precision when a tower is put in half precision.
NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)

# One lock for each module: two threads that use two adapters on one backbone must not see each other's tensors.
_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


# --- modes of torch ---------------------------------------------------------------------------------------------------
def outside_inference() -> AbstractContextManager[object]:
    """Leave a caller's `torch.inference_mode()`, because tensors created in it cannot be trained."""
    # The mode is checked first: leaving it is slow, also if it is off.
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


def learning() -> AbstractContextManager[object]:
    """Enable gradients, also inside a caller's `torch.no_grad()` or `torch.inference_mode()`."""
    # Leaving inference mode enables gradients.
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else torch.enable_grad()


@contextmanager
def answering() -> Iterator[None]:
    """Disable gradients. Not by inference mode, because tensors created in it cannot be trained."""
    with outside_inference(), torch.no_grad():
        yield


# --- precision --------------------------------------------------------------------------------------------------------
def set_precision(tower: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Move a tower to a device and convert it to `dtype`; normalisations stay in single precision."""
    tower.to(device=device)
    for part in tower.modules():
        if not isinstance(part, NORMALISATIONS):
            for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
                tensor.data = tensor.data.to(dtype) if tensor.is_floating_point() else tensor.data
    run_in(tower, device, dtype)


def run_in(tower: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Set the precision in which a tower runs.

    A tower in half precision runs under autocast; its overlays stay in single precision.
    """
    tower.runs_in = None if dtype == torch.float32 else (device.type, dtype)  # type: ignore[assignment]


def _runs_in(tower: object) -> tuple[str, torch.dtype] | None:
    # Not by `getattr`, which is slow for an attribute that a module does not have.
    precision: tuple[str, torch.dtype] | None = vars(tower).get("runs_in")
    return precision


def in_half(tower: object) -> bool:
    """Return whether the tower runs in half precision."""
    return _runs_in(tower) is not None


def in_single(features: torch.Tensor, tower: object) -> torch.Tensor:
    """Return features of a tower in half precision in single precision; others are returned unchanged."""
    return features.float() if in_half(tower) else features


def own_precision(tower: object) -> AbstractContextManager[object]:
    """Run the block in the precision of the tower."""
    runs_in = _runs_in(tower)
    return nullcontext() if runs_in is None else torch.autocast(runs_in[0], dtype=runs_in[1])


# --- towers -----------------------------------------------------------------------------------------------------------
def lock_of(module: nn.Module) -> threading.RLock:
    """Return the lock that is held while tensors of `module` are replaced."""
    with _locks_guard:
        return _locks.setdefault(module, threading.RLock())


def twin(module: nn.Module) -> nn.Module:
    """Return a copy of the structure that shares the weights."""
    with lock_of(module):  # an overlay of another thread must not be copied in place of the weights
        shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        return copy.deepcopy(module, shared)


def encode(vision: nn.Module, pixels: torch.Tensor, overlay: Overlay | None = None) -> torch.Tensor:
    """Return unit features [B, D] of images [B, 3, H, W]. This is the only place where an image tower runs.

    The lock is held also without an overlay, because another thread may have replaced values of the tower.
    """
    tower = vision if overlay is None else overlay.vision
    with lock_of(vision) if overlay is None else overlay.applied(), own_precision(tower):
        raw: torch.Tensor = tower(pixels)
    # With `precision=mixed`, features of a tower in single precision stay as autocast returned them.
    return unit(in_single(raw, tower))


class Overlay:
    """Adapted values of some parameters of `module`, and of `free` tensors that adapt but belong to no module.

    An overlay never changes: `moved` returns another one with other values.

    vision:  the image tower, if it is only a part of `module`.
    shared:  the module whose lock is used, if it is not `module` itself.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Iterable[str],
        free: Mapping[str, torch.Tensor] | None = None,
        vision: nn.Module | None = None,
        shared: nn.Module | None = None,
    ) -> None:
        self.vision = module if vision is None else vision
        self._lock = lock_of(module if shared is None else shared)
        # Places of the module's own values in the order of `names`: the parameters of the owning submodule, and a name
        # in them.
        self._places: list[tuple[dict[str, nn.Parameter | None], str]] = []
        initial: dict[str, torch.Tensor] = {}
        with self._lock:  # an overlay of another thread must not be copied in place of the weights
            for name in names:
                path, _, leaf = name.rpartition(".")
                owner = module.get_submodule(path)
                self._places.append((owner._parameters, leaf))
                initial[name] = owner.get_parameter(leaf)
            initial |= {} if free is None else free
            if not initial:
                raise Error(
                    "There is nothing to adapt: the image tower has no parameter of the chosen group.",
                    code="group-unsupported",
                )
            # Always in single precision: small updates would be lost in half precision.
            self.tensors = {name: _leaf(tensor.detach().float().clone()) for name, tensor in initial.items()}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the values of the module by those of the overlay during the block."""
        with self._lock:
            originals = [parameters[leaf] for parameters, leaf in self._places]
            try:
                # Tensors of the module come first; free ones follow.
                for (parameters, leaf), tensor in zip(self._places, self.tensors.values(), strict=False):
                    parameters[leaf] = tensor  # type: ignore[assignment]
                yield
            finally:
                for (parameters, leaf), original in zip(self._places, originals, strict=True):
                    parameters[leaf] = original

    def moved(self, values: Iterable[torch.Tensor]) -> Self:
        """Return the overlay with other values, in the order of `parameters`. The tensors are not copied."""
        other = copy.copy(self)
        other.tensors = dict(zip(self.tensors, map(_leaf, values), strict=True))
        return other

    def stored(self) -> dict[str, torch.Tensor]:
        """Return the values by name, for a state file."""
        return {name: tensor.detach() for name, tensor in self.tensors.items()}

    def restored(self, tensors: Mapping[str, torch.Tensor]) -> Self:
        """Return the overlay with values from `stored`; raise an Error if they do not fit or are not finite."""
        require_names(tensors, self.tensors)
        values = [stored(tensors, name, torch.float32, mine.shape) for name, mine in self.tensors.items()]
        return self.moved(
            value.to(mine.device, copy=True) for value, mine in zip(values, self.parameters(), strict=True)
        )

    def parameters(self) -> list[torch.Tensor]:
        return list(self.tensors.values())


class TrainedOverlay(Overlay):
    """Trained values of both towers, and the classifier under these values.

    embed_classes:  computes the classifier from the tensors of the overlay, if the text side is trained.
    """

    def __init__(
        self,
        module: nn.Module,
        names: list[str],
        classifier: torch.Tensor,
        embed_classes: Callable[[Mapping[str, torch.Tensor]], torch.Tensor] | None = None,
        free: Mapping[str, torch.Tensor] | None = None,
        vision: nn.Module | None = None,
        shared: nn.Module | None = None,
    ) -> None:
        super().__init__(module, names, free, vision, shared)
        self._frozen, self._embed_classes = classifier, embed_classes
        self._classifier: torch.Tensor | None = classifier
        self.trains_vision, self.trains_text = bool(names), embed_classes is not None

    @property
    def classifier(self) -> torch.Tensor:
        """The present classifier without graph, computed on first use."""
        if self._classifier is None:
            # In full precision also inside autocast: later looks use it outside.
            with torch.no_grad(), torch.autocast(self._frozen.device.type, enabled=False):
                self._classifier = self.differentiable_classifier()
        return self._classifier

    def differentiable_classifier(self) -> torch.Tensor:
        """Return the present classifier, with graph if the text side is trained."""
        if self._embed_classes is None:
            return self._frozen
        with self.applied():
            return unit(self._embed_classes(self.tensors))

    def differentiable(self, look: Look[object]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the classifier and the cosines of a look, both with graph where something is trained."""
        if self._embed_classes is None:
            return self._frozen, look.cosines
        classifier = self.differentiable_classifier()
        return classifier, cosines(look.features, classifier)

    def moved(self, values: Iterable[torch.Tensor]) -> Self:
        other = super().moved(values)
        other._classifier = None if self.trains_text else self._frozen
        return other


@torch.no_grad()
def distance(one: Overlay, other: Overlay) -> float:
    """Return the distance between the values of two overlays, relative to the length of the second."""
    values, others = one.parameters(), other.parameters()
    moved, length = (
        float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors))))
        for tensors in (torch._foreach_sub(values, others), others)
    )
    return moved / max(length, 1e-12)


def _leaf(values: torch.Tensor) -> torch.Tensor:
    return (values.detach() if values.requires_grad else values).requires_grad_()
