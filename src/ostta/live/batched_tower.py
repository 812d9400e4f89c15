"""One image tower for many overlays: each image of a batch has its own LayerNorm parameters.

Only streams that learn need an autograd graph, and these streams are determined after the first pass. The first pass
therefore runs without a graph and records the outputs of the dense layers. For the images of learning streams, `replay`
runs the tower again with a graph and reuses the recorded outputs, so only the operations between dense layers are
computed. A replay costs about a tenth of a full pass and gives the same gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..core.losses import unit
from ..core.overlay import Overlay, encode, in_half, in_single, own_precision, twin
from ..core.types import Error
from ..methods.groups import layernorm_names

# LayerNorm parameters of one image in the order of `BatchedTower.names`, or None for those of the tower.
Values = Sequence[torch.Tensor] | None
# Maximum difference between batched and individual features, in single and in half precision.
SAME, SAME_IN_HALF = 1e-4, 2e-2


class Recorder:
    """Shared state of the dense layers of a tower: the list to record to, or the record to replay."""

    recording: list[torch.Tensor] | None = None
    replaying: Iterator[torch.Tensor | None] | None = None

    def replayed(self) -> torch.Tensor | None:
        """Return the recorded output of this call, or None if there is none."""
        return None if self.replaying is None else next(self.replaying, None)

    def record(self, output: torch.Tensor) -> torch.Tensor:
        """Record the output during a recording, and return it."""
        if self.recording is not None:
            self.recording.append(output)
        return output


class RecordedLinear(nn.Linear):
    """A linear layer that records its outputs, or replays recorded ones."""

    recorder: Recorder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = self.recorder.replayed()
        if known is not None:
            return _KnownLinear.apply(x, self.weight, known)  # type: ignore[no-any-return, no-untyped-call]
        return self.recorder.record(super().forward(x))


class RecordedConv2d(nn.Conv2d):
    """A convolution that records its outputs, or replays recorded ones if no layer before it is trained."""

    recorder: Recorder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        known = self.recorder.replayed()
        return known if known is not None and not x.requires_grad else self.recorder.record(super().forward(x))


class RowNorm(nn.LayerNorm):
    """A LayerNorm with a separate weight and bias for each image of the batch while `rows` is set."""

    rows: tuple[torch.Tensor | None, torch.Tensor | None] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.rows is None:
            return super().forward(x)
        weight, bias = self.rows
        y = functional.layer_norm(x, self.normalized_shape, None, None, self.eps)
        between = (1,) * (x.ndim - 1 - len(self.normalized_shape))
        shape = (-1, *between, *self.normalized_shape)
        if weight is None or len(weight) != len(x) or len(shape) != x.ndim:
            raise Error(
                f"a LayerNorm sees a tensor of {list(x.shape)}, which does not have the images first",
                code="image-tower-not-shareable",
            )
        return y * weight.view(shape) if bias is None else torch.addcmul(bias.view(shape), y, weight.view(shape))


@dataclass(frozen=True, slots=True)
class Record:
    """A pass without a graph: images, unit features [B, D], and outputs of the dense layers in call order."""

    pixels: torch.Tensor
    features: torch.Tensor
    outputs: list[torch.Tensor | None]

    def rows(self, chosen: Sequence[int]) -> Record:
        """Return the record of some of the images."""
        if list(chosen) == list(range(len(self.pixels))):
            return self
        index = torch.tensor(chosen, dtype=torch.long, device=self.pixels.device)
        return Record(
            self.pixels[index],
            self.features[index],
            [None if known is None else known[index] for known in self.outputs],
        )

    def and_then(self, other: Record) -> Record:
        """Return the concatenation of both records."""
        outputs = [
            None if mine is None or theirs is None else torch.cat([mine, theirs])
            for mine, theirs in zip(self.outputs, other.outputs, strict=True)
        ]
        return Record(torch.cat([self.pixels, other.pixels]), torch.cat([self.features, other.features]), outputs)


class BatchedTower:
    """A copy of the modules of `vision` that shares its weights. It is not thread-safe.

    names: names of the LayerNorm parameters, as in an overlay over `vision`.
    bytes_an_image: size of the record of one image; a pass with a graph needs a few times that.
    """

    def __init__(self, vision: nn.Module, image_size: int) -> None:
        self.names = layernorm_names(vision)
        for name, part in vision.named_modules():
            if isinstance(part, nn.LayerNorm) and type(part) is not nn.LayerNorm:
                raise Error(
                    f"Streams cannot share this image tower: its LayerNorm {name!r} is a {type(part).__name__} with a "
                    "computation of its own, and only plain torch.nn.LayerNorm can be given values for each image.",
                    code="image-tower-not-shareable",
                )
        self._recorder = Recorder()
        self._tower = twin(vision)
        # Single precision, like the parameters of streams.
        self._own = [self._tower.get_parameter(name).detach().float() for name in self.names]
        for part in self._tower.modules():
            self._convert(part)
        self._norms = [part for part in self._tower.modules() if isinstance(part, RowNorm)]
        # Replayable calls of dense layers: the first output dimension is the batch, and the output is not modified.
        self._replayable: list[bool] | None = None
        self.bytes_an_image = 0
        self._check(vision, image_size)

    def look(self, pixels: torch.Tensor, values: Sequence[Values]) -> torch.Tensor:
        """Return unit features [B, D] of images [B, 3, H, W], each with its own parameters, without a graph."""
        with torch.no_grad(), self._with_rows(values):
            return self._features(pixels)

    def record(self, pixels: torch.Tensor, values: Sequence[Values]) -> Record:
        """Run `look` and record the pass for a replay."""
        outputs: list[torch.Tensor] = []
        self._recorder.recording = outputs
        try:
            features = self.look(pixels, values)
        finally:
            self._recorder.recording = None
        replayable = self._replayable
        if replayable is None:
            replayable = [_is_unmodified(output, len(pixels)) for output in outputs]
        kept = [output if usable else None for output, usable in zip(outputs, replayable, strict=True)]
        return Record(pixels, features, kept)

    def leaves(self, values: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """Return the parameters of several streams, stacked by parameter, as leaves of an autograd graph."""
        return [torch.stack([own.detach() for own in column]).requires_grad_() for column in zip(*values, strict=True)]

    def replay(self, record: Record, leaves: list[torch.Tensor], owners: Sequence[int]) -> torch.Tensor:
        """Return the features of `record` with gradients to `leaves`. Image i belongs to stream owners[i]."""
        index = torch.tensor(owners, dtype=torch.long, device=record.pixels.device)
        self._recorder.replaying = iter(record.outputs)
        try:
            with torch.enable_grad(), self._applied([leaf[index] for leaf in leaves]):
                return self._features(record.pixels)
        finally:
            self._recorder.replaying = None

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        with own_precision(self._tower):
            raw: torch.Tensor = self._tower(pixels)
        return unit(in_single(raw, self._tower))

    @contextmanager
    def _with_rows(self, values: Sequence[Values]) -> Iterator[None]:
        if all(own is None for own in values):
            yield  # the frozen tower, whose LayerNorms are faster
            return
        columns = zip(*(self._own if own is None else own for own in values), strict=True)
        with self._applied([torch.stack(column) for column in columns]):
            yield

    @contextmanager
    def _applied(self, rows: list[torch.Tensor]) -> Iterator[None]:
        waiting = iter(rows)
        try:
            for norm in self._norms:
                weight = None if norm.weight is None else next(waiting)
                norm.rows = None if weight is None else (weight, None if norm.bias is None else next(waiting))
            yield
        finally:
            for norm in self._norms:
                norm.rows = None

    def _convert(self, part: nn.Module) -> None:
        """Replace the class of a module of the copy. Its parameters and its name do not change."""
        if type(part) is nn.LayerNorm:
            part.__class__ = RowNorm
            # The encoder layers of torch have a fast path that reads the LayerNorm weights without calling the
            # LayerNorms. A hook on a submodule disables it.
            part.register_forward_pre_hook(_no_fast_path)
        elif type(part) in (nn.Linear, nn.Conv2d):
            part.__class__ = RecordedLinear if type(part) is nn.Linear else RecordedConv2d
            part.recorder = self._recorder  # type: ignore[assignment]

    def _check(self, vision: nn.Module, image_size: int) -> None:
        """Raise an Error if the features of an image depend on other images of its batch."""
        chance, count = torch.Generator().manual_seed(0), 3
        device = next((tensor.device for tensor in vision.parameters()), torch.device("cpu"))
        pixels = torch.randn(count, 3, image_size, image_size, generator=chance).to(device)
        values = [
            [own + 0.1 * torch.randn(own.shape, generator=chance).to(own) for own in self._own] for _ in range(count)
        ]
        alone = torch.cat([_alone(vision, self.names, pixels[i : i + 1], values[i]) for i in range(count)])
        try:
            record = self.record(pixels, values)
            self._replayable = [known is not None for known in record.outputs]
            self.bytes_an_image = sum(known.nbytes for known in record.outputs if known is not None) // count
            again = self.replay(record.rows([2, 0]), self.leaves(values), [2, 0]).detach()
        except Exception as problem:  # a user module may raise any exception
            raise Error(
                f"Streams cannot share this image tower: {str(problem).rstrip('.')}.", code="image-tower-not-shareable"
            ) from problem
        apart = max(float((record.features - alone).abs().max()), float((again - alone[[2, 0]]).abs().max()))
        if not apart < (SAME if not in_half(vision) else SAME_IN_HALF):
            raise Error(
                f"Streams cannot share this image tower: an image's unit features in a batch differ by {apart:.1g} "
                "from those it has alone, so the images of a batch are not kept apart.",
                code="image-tower-not-shareable",
            )


class _KnownLinear(torch.autograd.Function):
    """A linear layer with a precomputed output, which computes only the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return known.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return gradients[0] @ weight, None, None


def _is_unmodified(output: torch.Tensor, images: int) -> bool:
    """Return whether an output has one row per image and was not modified in place."""
    return output.ndim > 1 and len(output) == images and output._version == 0


def _no_fast_path(*_: object) -> None:
    return None


@torch.no_grad()
def _alone(vision: nn.Module, names: list[str], pixels: torch.Tensor, values: Sequence[torch.Tensor]) -> torch.Tensor:
    return encode(vision, pixels, Overlay(vision, names).moved(values) if names else None)
