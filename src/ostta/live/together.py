"""One step of many adapters that share a tower: the same as one step of each, with their passes taken together.

The looks of all are one pass without graph. Streams that then want a gradient have their augmented views encoded in a
second one, replay both with graph, and are differentiated by one backward of the sum of their losses: each loss depends on
its own stream's values only, so each stream finds its own gradient. Answers after an update are one more pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from ..adapter import Adapter, Turn
from ..core.types import Look, Outcome, Prediction
from ..data.views import Views
from ..methods.protocol import SharesTower
from ..methods.tuning import Proposal, Training, Tuned, move
from .batched import BatchedTower, Record, Values


@dataclass(slots=True, eq=False)
class Seat:
    """One image of one stream on its way through a step, and in the end its prediction or what went wrong with it."""

    adapter: Adapter
    views: Views
    turn: Turn = field(init=False)
    outcome: Outcome | None = None
    result: Prediction | Exception | None = None

    @classmethod
    def of(cls, adapter: Adapter, image: Any) -> Seat:
        """An Error where the image cannot be read."""
        views = adapter.views_of(image)
        _ = views.canonical  # made here, where a trouble with it is this stream's alone
        return cls(adapter, views)

    @property
    def values(self) -> Values:
        """The LayerNorm values of the stream; None for the frozen tower's."""
        overlay = self._method.overlay(self.adapter.state)
        return None if overlay is None else overlay.parameters()

    def look(self, features: torch.Tensor) -> Look:
        return self._method.look(self.adapter.state, self.views, features)

    @property
    def _method(self) -> SharesTower:
        method = self.adapter.method
        assert isinstance(method, SharesTower)
        return method


@dataclass(frozen=True, slots=True)
class Learner:
    """A seat that waits for the gradient of its proposal; `row` is its image's in the record of looks."""

    seat: Seat
    proposal: Proposal
    row: int

    @property
    def images(self) -> int:
        return 1 + self.proposal.augmented

    def give_up(self, problem: Exception) -> None:
        """Leave no trace in the stream, unless its step was taken already."""
        if self.seat.outcome is None and self.seat.result is None:
            self.seat.result = problem
            self.proposal.settle(Outcome(failed=True))


def can_share(adapter: Adapter, tower: BatchedTower) -> bool:
    """Whether the adapter's step can be taken together with others': whether its method looks through LayerNorms or nothing.

    Other groups and prompts in the tower have no batched form here, half precision is a matter of the adapter's own, and a
    subclass may have changed what a step is.
    """
    method = adapter.method
    if type(adapter) is not Adapter or not isinstance(method, SharesTower):
        return False
    if adapter.resolved.adapter.precision != "single":
        return False
    overlay = method.overlay(adapter.state)
    if overlay is None:
        return True
    return isinstance(overlay, Tuned) and not overlay.trains_text and list(overlay.tensors) == tower.names


def step_together(tower: BatchedTower, seats: Sequence[Seat], rows: int) -> None:
    """Fill in each seat's result. At most `rows` images are in a pass that is differentiated, or those of one seat."""
    began = perf_counter()
    record = _looks(tower, seats)
    learners = []
    for row, seat in enumerate(seats):
        try:
            proposal = _decide(seat, record.features[row], began)
        except Exception as problem:  # one stream's trouble is not the others'
            seat.result = problem
        else:
            learners += [] if proposal is None else [Learner(seat, proposal, row)]
    for some in _portions(learners, rows):
        try:
            _learn(tower, record, some)
        except Exception as problem:
            for learner in some:
                learner.give_up(problem)
    del record  # by far the largest thing here, and of no use to the answers
    _answer(tower, [seat for seat in seats if seat.result is None])


def _looks(tower: BatchedTower, seats: Sequence[Seat]) -> Record:
    pixels, values = torch.cat([seat.views.canonical for seat in seats]), [seat.values for seat in seats]
    if any(isinstance(seat.adapter.method, Training) for seat in seats):
        return tower.record(pixels, values)
    return Record(pixels, tower.look(pixels, values), [])


def _decide(seat: Seat, features: torch.Tensor, began: float) -> Proposal | None:
    """Look and decide; the outcome as well, unless it waits for the gradient of the proposal that is returned."""
    adapter, method = seat.adapter, seat.adapter.method
    seat.turn = adapter.decide(seat.look(features), began)
    if seat.turn.decision is None:
        seat.outcome = Outcome()
        return None
    next_part = method.propose if isinstance(method, Training) else method.learn
    proposed = next_part(adapter.state, seat.turn.look, seat.turn.decision)
    if isinstance(proposed, Outcome):
        seat.outcome = proposed
        return None
    try:
        seat.views.augmented(proposed.augmented)  # made here, as in `Seat.of`
    except Exception:
        proposed.settle(Outcome(failed=True))
        raise
    return proposed


def _portions(learners: Sequence[Learner], rows: int) -> Iterator[list[Learner]]:
    portion: list[Learner] = []
    for learner in learners:
        if portion and sum(other.images for other in portion) + learner.images > rows:
            yield portion
            portion = []
        portion.append(learner)
    if portion:
        yield portion


@torch.enable_grad()
def _learn(tower: BatchedTower, looks: Record, learners: Sequence[Learner]) -> None:
    """One backward for all, and one step of each one's optimiser."""
    values = [learner.seat.values or () for learner in learners]
    record, owners = looks.rows([learner.row for learner in learners]), list(range(len(learners)))
    augmented = [number for number, learner in enumerate(learners) for _ in range(learner.proposal.augmented)]
    if augmented:
        pixels = [learner.seat.views.augmented(learner.proposal.augmented) for learner in learners]
        record = record.and_then(tower.record(torch.cat(pixels), [values[number] for number in augmented]))
    leaves = tower.leaves(values)
    losses = _losses(learners, tower.replay(record, leaves, owners + augmented))
    if not losses:
        return
    total = torch.stack(list(losses.values())).sum()
    gradients = [stacked.unbind() for stacked in torch.autograd.grad(total, leaves, materialize_grads=True)]
    for number, loss in losses.items():
        seat, proposal = learners[number].seat, learners[number].proposal
        own = [gradient[number] for gradient in gradients]
        # The answer waits for a pass of its own; a method that has a quicker one puts it in the place of this.
        seat.outcome = proposal.settle(move(seat.adapter.state.overlay, proposal.optimiser, loss, own, _answered_later))


def _losses(learners: Sequence[Learner], features: torch.Tensor) -> dict[int, torch.Tensor]:
    """The losses by number of learner; one whose loss cannot be worked out gives up."""
    losses: dict[int, torch.Tensor] = {}
    canonical, augmented = features[: len(learners)].unbind(), features[len(learners) :]
    parts = torch.split(augmented, [learner.proposal.augmented for learner in learners])
    for number, learner in enumerate(learners):
        try:
            losses[number] = learner.proposal.loss(learner.seat.look(canonical[number]), parts[number])
        except Exception as problem:
            learner.give_up(problem)
    return losses


def _answer(tower: BatchedTower, seats: Sequence[Seat]) -> None:
    """The predictions, those of an update's image with the class that it has now."""
    after: dict[Seat, torch.Tensor] = {}
    asking = [seat for seat in seats if seat.outcome and seat.adapter.wants_answer(seat.turn, seat.outcome)]
    together = [seat for seat in asking if seat.outcome and seat.outcome.answer is _answered_later]
    if together:
        pixels = torch.cat([seat.views.canonical for seat in together])
        features = tower.look(pixels, [seat.values for seat in together])
        after = {seat: seat.look(row).logits for seat, row in zip(together, features, strict=True)}
    for seat in seats:
        assert seat.outcome is not None
        try:
            if seat in asking and seat not in after and seat.outcome.answer is not None:
                after[seat] = seat.outcome.answer()
            seat.result = seat.adapter.conclude(seat.turn, seat.outcome, after.get(seat))
        except Exception as problem:
            seat.result = problem


def _answered_later() -> torch.Tensor:
    raise AssertionError("The answers of a pool come from a pass of their own.")
