"""One step of many adapters that share a tower: the same as one step of each, with their passes computed together.

All looks are one pass without graph. Streams that propose a gradient step have their further images encoded in a second pass, replay
both with graph, and are differentiated by one backward pass of the sum of their losses: each loss depends only on the values of its
stream, so each stream gets its own gradient. Answers after an update are one more pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..adapter import Adapter
from ..core.types import Look, Prediction
from ..data.images import ImageSource
from ..data.views import Views
from ..methods.gradient import Gradient, Trained, optimiser_step
from ..methods.trained_overlay import TrainedOverlay
from ..step import Pipeline, Turn
from .batched_tower import BatchedTower, Record, Values


@dataclass(slots=True, eq=False)
class Seat:
    """One image of one stream on its way through a step, and finally its prediction or its problem."""

    pipeline: Pipeline
    views: Views
    turn: Turn = field(init=False)
    result: Prediction | BaseException | None = None

    @classmethod
    def of(cls, adapter: Adapter, image: ImageSource | torch.Tensor) -> Seat:
        """Read the image; raise an Error if it cannot be read."""
        views = adapter.views_of(image)
        _ = views.canonical  # computed here, where a problem concerns this stream only
        return cls(adapter.pipeline, views)

    @property
    def values(self) -> Values:
        """The LayerNorm values of the stream; None for those of the frozen tower."""
        overlay = self.pipeline.method.overlay(self.pipeline.memory.state)
        return None if overlay is None else overlay.parameters()

    def look(self, features: torch.Tensor) -> Look[Any]:
        return self.pipeline.method.look(self.pipeline.memory.state, features, self.views)


@dataclass(frozen=True, slots=True)
class Learner:
    """A seat that waits for the gradient of its proposal; `row` is the row of its image in the record of looks."""

    seat: Seat
    gradient: Gradient
    row: int

    @property
    def images(self) -> int:
        return 1 + self.gradient.further


def can_share(adapter: Adapter, tower: BatchedTower) -> bool:
    """Return whether the method looks through LayerNorms or the frozen tower, so that its passes can be computed with others'.

    Other groups and prompts in the tower have no batched form. Half precision is a setting of one adapter, and a subclass may have
    changed what a step does.
    """
    if type(adapter) is not Adapter or adapter.resolved.adapter.precision != "single":
        return False
    overlay = adapter.method.overlay(adapter.state)
    return overlay is None or (isinstance(overlay, TrainedOverlay) and _only_norms(overlay, tower))


def step_together(tower: BatchedTower, seats: Sequence[Seat], rows: int) -> None:
    """Set the result of each seat. At most `rows` images are in a pass that is differentiated, or those of one seat."""
    began = seats[0].pipeline.clock()
    record = _look(tower, seats)
    learners = []
    for row, seat in enumerate(seats):
        try:
            learner = _decide(tower, seat, record.features[row], row, began)
        except Exception as problem:  # the problem of one stream does not concern the others
            seat.result = problem
        else:
            learners += [] if learner is None else [learner]
    for portion in _portions(learners, rows):
        try:
            _train(tower, record, portion)
        except Exception as problem:
            for learner in portion:
                if learner.seat.turn.outcome is None and learner.seat.result is None:
                    learner.seat.result = problem
    del record  # the largest object here, which the answers do not need
    _conclude(tower, [seat for seat in seats if seat.result is None])


def _look(tower: BatchedTower, seats: Sequence[Seat]) -> Record:
    pixels, values = torch.cat([seat.views.canonical for seat in seats]), [seat.values for seat in seats]
    if any(seat.pipeline.method.looks_with_graph for seat in seats):
        return tower.record(pixels, values)
    return Record(pixels, tower.look(pixels, values), [])


def _decide(tower: BatchedTower, seat: Seat, features: torch.Tensor, row: int, began: float) -> Learner | None:
    """Decide and propose. A gradient step with a batched form is computed later with the others; any other is computed here."""
    pipeline, seen = seat.pipeline, seat.look(features)
    seat.turn = turn = Turn(pipeline.rescue(seen), began)
    pipeline.decide(turn)
    pipeline.propose(turn)
    gradient = turn.proposal.gradient
    with_graph = turn.look is seen and pipeline.method.looks_with_graph
    if gradient is not None and with_graph and _only_norms(gradient.overlay, tower):
        seat.views.augmented(gradient.augmented)  # computed here, as in `Seat.of`
        return Learner(seat, gradient, row)
    pipeline.train(turn, look_again=False)
    return None


def _only_norms(overlay: TrainedOverlay, tower: BatchedTower) -> bool:
    return not overlay.trains_text and list(overlay.tensors) == tower.names


def _portions(learners: Sequence[Learner], rows: int) -> Iterator[list[Learner]]:
    portion: list[Learner] = []
    for learner in learners:
        if portion and sum(other.images for other in portion) + learner.images > rows:
            yield portion
            portion = []
        portion.append(learner)
    if portion:
        yield portion


def _train(tower: BatchedTower, looks: Record, learners: Sequence[Learner]) -> None:
    """Compute the gradients of all learners in one backward pass, and the step of each optimiser."""
    values = [learner.gradient.overlay.parameters() for learner in learners]
    record, owners = looks.rows([learner.row for learner in learners]), list(range(len(learners)))
    further = [number for number, learner in enumerate(learners) for _ in range(learner.gradient.further)]
    if further:
        asking = [learner for learner in learners if learner.gradient.further]
        pixels = [learner.gradient.further_images(learner.seat.views) for learner in asking]
        record = record.and_then(tower.record(torch.cat(pixels), [values[number] for number in further]))
    leaves = tower.leaves(values)
    losses = _losses(learners, tower.replay(record, leaves, owners + further))
    if not losses:
        return
    total = torch.stack(list(losses.values())).sum()
    gradients = [stacked.unbind() for stacked in torch.autograd.grad(total, leaves, materialize_grads=True)]
    for number, loss in losses.items():
        own = [gradient[number] for gradient in gradients]
        learners[number].seat.turn.outcome = optimiser_step(learners[number].gradient, loss, own)


def _losses(learners: Sequence[Learner], features: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return the losses by number of the learner; a seat whose loss fails gets the problem as its result."""
    losses: dict[int, torch.Tensor] = {}
    canonical, further = features[: len(learners)].unbind(), features[len(learners) :]
    parts = torch.split(further, [learner.gradient.further for learner in learners])
    for number, learner in enumerate(learners):
        try:
            losses[number] = learner.gradient.loss(learner.seat.look(canonical[number]), parts[number])
        except Exception as problem:
            learner.seat.result = problem
    return losses


def _conclude(tower: BatchedTower, seats: Sequence[Seat]) -> None:
    """Set the predictions; images whose answer needs a second look are encoded together first."""
    asking = {seat: seat.turn.outcome for seat in seats if seat.pipeline.looks_again(seat.turn)}
    if asking:
        pixels = torch.cat([seat.views.canonical for seat in asking])
        values = [trained.overlay.parameters() for trained in asking.values() if isinstance(trained, Trained)]
        for seat, features in zip(asking, tower.look(pixels, values), strict=True):
            seat.turn.features_after = features
    for seat in seats:
        try:
            seat.result = seat.pipeline.conclude(seat.turn)
        except Exception as problem:
            seat.result = problem
