"""One step of several adapters that share a tower, equivalent to separate steps but with batched passes.

All looks are computed in one pass without an autograd graph. For streams that propose a gradient step, the additional
images are encoded in a second pass, both passes are replayed with a graph, and the sum of the losses is differentiated
in one backward pass. Each loss depends only on the values of its stream, so the gradients are separate. Answers after
an update need one more pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..adapter import Adapter
from ..core.optimisers import ProposedStep, StepResult, optimiser_step
from ..core.overlay import TrainedOverlay
from ..core.types import Look, Prediction
from ..data.images import ImageSource
from ..data.views import Views
from ..memory import Turn
from ..step import Pipeline
from .batched_tower import BatchedTower, Record, Values


@dataclass(slots=True, eq=False)
class Seat:
    """One image of one stream during a step, and finally its prediction or error."""

    pipeline: Pipeline
    views: Views
    turn: Turn = field(init=False)
    result: Prediction | BaseException | None = None

    @classmethod
    def of(cls, adapter: Adapter, image: ImageSource | torch.Tensor) -> Seat:
        """Read the image; raise an Error if it cannot be read."""
        views = adapter.pipeline.views(image)
        _ = views.canonical  # computed here, so that an error affects only this stream
        return cls(adapter.pipeline, views)

    @property
    def values(self) -> Values:
        """The LayerNorm values of the stream; None for those of the frozen tower."""
        overlay = self.pipeline.method.overlay(self.pipeline.memory.state)
        return None if overlay is None else overlay.parameters()

    def look(self, features: torch.Tensor) -> Look[Any]:
        return self.pipeline.method.look(self.pipeline.memory.state, features, self.views)


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A seat that waits for the gradient of its proposal; `row` is the row of its image in the record of looks."""

    seat: Seat
    gradient: ProposedStep
    row: int

    @property
    def images(self) -> int:
        return 1 + self.gradient.further


def can_share(adapter: Adapter, tower: BatchedTower) -> bool:
    """Return whether the method only changes LayerNorms, or nothing, so that its images can be batched with others.

    Other parameter groups and prompts in the tower cannot be batched. Half precision is a setting of one adapter, and a
    subclass may override the step.
    """
    if type(adapter) is not Adapter or adapter.resolved.adapter.precision != "single":
        return False
    overlay = adapter.method.overlay(adapter.state)
    return overlay is None or (isinstance(overlay, TrainedOverlay) and _only_norms(overlay, tower))


def step_together(tower: BatchedTower, seats: Sequence[Seat], rows: int) -> None:
    """Set the result of each seat. A differentiated pass has at most `rows` images, or the images of one seat."""
    began = seats[0].pipeline.clock()
    record = _look(tower, seats)
    pending = []
    for row, seat in enumerate(seats):
        try:
            step = _decide(tower, seat, record.features[row], row, began)
        except Exception as problem:  # an error in one stream must not affect the others
            seat.result = problem
        else:
            pending += [] if step is None else [step]
    for portion in _portions(pending, rows):
        try:
            _train(tower, record, portion)
        except Exception as problem:
            for step in portion:
                if step.seat.turn.outcome is None and step.seat.result is None:
                    step.seat.result = problem
    del record  # free the largest object, which is not needed for the answers
    _conclude(tower, [seat for seat in seats if seat.result is None])


def _look(tower: BatchedTower, seats: Sequence[Seat]) -> Record:
    pixels, values = torch.cat([seat.views.canonical for seat in seats]), [seat.values for seat in seats]
    if any(seat.pipeline.method.looks_with_graph for seat in seats):
        return tower.record(pixels, values)
    return Record(pixels, tower.look(pixels, values), [])


def _decide(tower: BatchedTower, seat: Seat, features: torch.Tensor, row: int, began: float) -> PendingStep | None:
    """Decide and propose. Gradient steps of LayerNorms are computed later in a batch, all others here."""
    pipeline, seen = seat.pipeline, seat.look(features)
    seat.turn = turn = Turn(pipeline.rescue(seen), began)
    pipeline.decide(turn)
    pipeline.propose(turn)
    gradient = turn.proposal.gradient
    with_graph = turn.look is seen and pipeline.method.looks_with_graph
    if gradient is not None and with_graph and _only_norms(gradient.overlay, tower):
        seat.views.augmented(gradient.augmented)  # computed here, as in `Seat.of`
        return PendingStep(seat, gradient, row)
    pipeline.train(turn, look_again=False)
    return None


def _only_norms(overlay: TrainedOverlay, tower: BatchedTower) -> bool:
    return not overlay.trains_text and list(overlay.tensors) == tower.names


def _portions(pending: Sequence[PendingStep], rows: int) -> Iterator[list[PendingStep]]:
    portion: list[PendingStep] = []
    for step in pending:
        if portion and sum(other.images for other in portion) + step.images > rows:
            yield portion
            portion = []
        portion.append(step)
    if portion:
        yield portion


def _train(tower: BatchedTower, looks: Record, pending: Sequence[PendingStep]) -> None:
    """Compute the gradients of all pending steps in one backward pass, and the step of each optimiser."""
    values = [step.gradient.overlay.parameters() for step in pending]
    record, owners = looks.rows([step.row for step in pending]), list(range(len(pending)))
    further = [number for number, step in enumerate(pending) for _ in range(step.gradient.further)]
    if further:
        asking = [step for step in pending if step.gradient.further]
        pixels = [step.gradient.further_images(step.seat.views) for step in asking]
        record = record.and_then(tower.record(torch.cat(pixels), [values[number] for number in further]))
    leaves = tower.leaves(values)
    losses = _losses(pending, tower.replay(record, leaves, owners + further))
    if not losses:
        return
    total = torch.stack(list(losses.values())).sum()
    gradients = [stacked.unbind() for stacked in torch.autograd.grad(total, leaves, materialize_grads=True)]
    for number, loss in losses.items():
        own = [gradient[number] for gradient in gradients]
        pending[number].seat.turn.outcome = optimiser_step(pending[number].gradient, loss, own)


def _losses(pending: Sequence[PendingStep], features: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return the losses by number of the step; a seat whose loss fails gets the problem as its result."""
    losses: dict[int, torch.Tensor] = {}
    canonical, further = features[: len(pending)].unbind(), features[len(pending) :]
    parts = torch.split(further, [step.gradient.further for step in pending])
    for number, step in enumerate(pending):
        try:
            losses[number] = step.gradient.loss(step.seat.look(canonical[number]), parts[number])
        except Exception as problem:
            step.seat.result = problem
    return losses


def _conclude(tower: BatchedTower, seats: Sequence[Seat]) -> None:
    """Set the predictions; images whose answer needs a second look are encoded together first."""
    asking = {seat: seat.turn.outcome for seat in seats if seat.pipeline.looks_again(seat.turn)}
    if asking:
        pixels = torch.cat([seat.views.canonical for seat in asking])
        values = [trained.overlay.parameters() for trained in asking.values() if isinstance(trained, StepResult)]
        for seat, features in zip(asking, tower.look(pixels, values), strict=True):
            seat.turn.features_after = features
    for seat in seats:
        try:
            seat.result = seat.pipeline.conclude(seat.turn)
        except Exception as problem:
            seat.result = problem
