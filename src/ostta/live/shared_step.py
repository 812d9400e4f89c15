"""One step of many adapters that share a tower: the same as one step of each, with their passes taken together.

The looks of all are one pass without graph. Streams that then want a gradient have their further images encoded in a
second one, replay both with graph, and are differentiated by one backward of the sum of their losses: each loss depends on
its own stream's values only, so each stream finds its own gradient. Answers after an update are one more pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..adapter import Adapter, Turn
from ..core.types import Look, Prediction
from ..data.images import ImageSource
from ..data.views import Views
from ..methods.protocol import Failure, Gradient, Proposal, Trained
from ..methods.trained_overlay import Tuned
from ..methods.tuning import led_to, take
from .batched_tower import BatchedTower, Record, Values


@dataclass(slots=True, eq=False)
class Seat:
    """One image of one stream on its way through a step, and in the end its prediction or what went wrong with it."""

    adapter: Adapter
    views: Views
    turn: Turn = field(init=False)
    proposal: Proposal = field(init=False)
    outcome: Trained | Failure | None = None
    result: Prediction | BaseException | None = None

    @classmethod
    def of(cls, adapter: Adapter, image: ImageSource | torch.Tensor) -> Seat:
        """An Error where the image cannot be read."""
        views = adapter.views_of(image)
        _ = views.canonical  # made here, where a trouble with it is this stream's alone
        return cls(adapter, views)

    @property
    def values(self) -> Values:
        """The LayerNorm values of the stream; None for the frozen tower's."""
        overlay = self.adapter.method.overlay(self.adapter.state)
        return None if overlay is None else overlay.parameters()

    def look(self, features: torch.Tensor) -> Look[Any]:
        return self.adapter.method.look(self.adapter.state, features, self.views)


@dataclass(frozen=True, slots=True)
class Learner:
    """A seat that waits for the gradient of its proposal; `row` is its image's in the record of looks."""

    seat: Seat
    gradient: Gradient
    row: int

    @property
    def images(self) -> int:
        return 1 + self.gradient.further


def can_share(adapter: Adapter, tower: BatchedTower) -> bool:
    """Whether the adapter's looks can be taken together with others': whether its method looks through LayerNorms or nothing.

    Other groups and prompts in the tower have no batched form here, half precision is a matter of the adapter's own, and a
    subclass may have changed what a step is.
    """
    if type(adapter) is not Adapter or adapter.resolved.adapter.precision != "single":
        return False
    overlay = adapter.method.overlay(adapter.state)
    return overlay is None or (isinstance(overlay, Tuned) and _only_norms(overlay, tower))


def step_together(tower: BatchedTower, seats: Sequence[Seat], rows: int) -> None:
    """Fill in each seat's result. At most `rows` images are in a pass that is differentiated, or those of one seat."""
    began = seats[0].adapter.clock()
    record = _looks(tower, seats)
    learners = []
    for row, seat in enumerate(seats):
        try:
            learner = _decide(tower, seat, record.features[row], row, began)
        except Exception as problem:  # one stream's trouble is not the others'
            seat.result = problem
        else:
            learners += [] if learner is None else [learner]
    for some in _portions(learners, rows):
        try:
            _learn(tower, record, some)
        except Exception as problem:
            for learner in some:
                if learner.seat.outcome is None and learner.seat.result is None:
                    learner.seat.result = problem
    del record  # by far the largest thing here, and of no use to the answers
    _answer(tower, [seat for seat in seats if seat.result is None])


def _looks(tower: BatchedTower, seats: Sequence[Seat]) -> Record:
    pixels, values = torch.cat([seat.views.canonical for seat in seats]), [seat.values for seat in seats]
    if any(seat.adapter.method.looks_with_graph for seat in seats):
        return tower.record(pixels, values)
    return Record(pixels, tower.look(pixels, values), [])


def _decide(tower: BatchedTower, seat: Seat, features: torch.Tensor, row: int, began: float) -> Learner | None:
    """Look and decide. A gradient step that has a batched form waits for the others'; any other is taken here."""
    adapter, method = seat.adapter, seat.adapter.method
    seen = seat.look(features)
    look = adapter.rescued(seen, seat.views)
    seat.turn = adapter.decide(look, began)
    seat.proposal = Proposal()
    if seat.turn.decision is None:
        return None
    seat.proposal = adapter.propose(seat.turn, seat.turn.decision)
    gradient = seat.proposal.gradient
    if gradient is None:
        return None
    if look is seen and method.looks_with_graph and _only_norms(gradient.overlay, tower):
        seat.views.augmented(gradient.augmented)  # made here, as in `Seat.of`
        return Learner(seat, gradient, row)
    seat.outcome = take(gradient, look)
    return None


def _only_norms(overlay: Tuned, tower: BatchedTower) -> bool:
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


def _learn(tower: BatchedTower, looks: Record, learners: Sequence[Learner]) -> None:
    """One backward for all, and where each one's optimiser leads to."""
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
        learners[number].seat.outcome = led_to(learners[number].gradient, loss, own)


def _losses(learners: Sequence[Learner], features: torch.Tensor) -> dict[int, torch.Tensor]:
    """The losses by number of learner; one whose loss cannot be worked out gives up."""
    losses: dict[int, torch.Tensor] = {}
    canonical, further = features[: len(learners)].unbind(), features[len(learners) :]
    parts = torch.split(further, [learner.gradient.further for learner in learners])
    for number, learner in enumerate(learners):
        try:
            losses[number] = learner.gradient.loss(learner.seat.look(canonical[number]), parts[number])
        except Exception as problem:
            learner.seat.result = problem
    return losses


def _answer(tower: BatchedTower, seats: Sequence[Seat]) -> None:
    """The predictions, those of an update's image with the class that it has now."""
    after: dict[Seat, torch.Tensor] = {}
    asking: dict[Seat, Trained] = {}
    for seat in seats:
        if isinstance(seat.outcome, Trained) and seat.adapter.looks_again(seat.turn, seat.proposal):
            asking[seat] = seat.outcome
    if asking:
        pixels = torch.cat([seat.views.canonical for seat in asking])
        features = tower.look(pixels, [trained.overlay.parameters() for trained in asking.values()])
        after = dict(zip(asking, features, strict=True))
    for seat in seats:
        try:
            seat.result = seat.adapter.conclude(seat.turn, seat.proposal, seat.outcome, after.get(seat))
        except Exception as problem:
            seat.result = problem
