"""Cases of the conformance suite: methods, scores, identifiers and kinds of backbones, and a short real stream."""

from __future__ import annotations

import itertools
from functools import cache

import torch

import ostta
from ostta import Decision, Verdict
from ostta.config.registry import ALL_METHODS as METHODS
from ostta.config.registry import ALL_SCORES as SCORES
from ostta.core.types import Look
from ostta.data.views import Views
from ostta.identifiers import IDENTIFIERS
from ostta.methods.base import Proposal
from ostta.testing.subject import CLASSES, SmallTower, Subject, content, differing, images, small_backbone, trace

__all__ = ["CLASSES", "SmallTower", "content", "images", "trace"]

BACKBONES = ("embedded", "embedded+maple", "wrapped")
# A wrapped backbone has no text tower to tune a prompt on, and only MaPLe has tokens to align.
PROMPT_METHODS, MAPLE_METHODS = ("tpt", "tpt_c", "palign", "palign_c"), ("palign", "palign_c")


def sensible(method: str, kind: str) -> bool:
    """Return whether the method works on this kind of backbone."""
    return kind == "embedded+maple" or (
        method not in MAPLE_METHODS if kind == "embedded" else method not in PROMPT_METHODS
    )


def usual(method: str) -> str:
    """Return the fastest kind of backbone for the method."""
    return next(kind for kind in ("wrapped", "embedded", "embedded+maple") if sensible(method, kind))


# Every method on every kind of backbone.
CASES = tuple(case for case in itertools.product(METHODS, BACKBONES) if sensible(*case))


def combinations() -> list[tuple[str, str, str]]:
    """Return triples (method, score, identifier) in which every compatible pair occurs at least once."""
    found = []
    for i, method in enumerate(METHODS):
        for j, (identifier, of) in enumerate(IDENTIFIERS.items()):
            score = of.needs or list(SCORES)[(i + j) % len(SCORES)]
            found.append((method, score, identifier))
    # Whatever the turns have left out.
    for method, score in itertools.product(METHODS, SCORES):
        if (method, score) not in {case[:2] for case in found}:
            found.append((method, score, "lda"))
    free = [name for name, of in IDENTIFIERS.items() if of.needs is None]
    for score, identifier in itertools.product(SCORES, free):
        if (score, identifier) not in {case[1:] for case in found}:
            found.append(("rosita", score, identifier))
    return found


@cache
def backbone(name: str):
    if name != "wrapped":
        return ostta.backbones.load(name)
    return small_backbone()


# Options that let a method act within a short stream, and in short time.
EARLY = {"prototypes": {"wait": 5}} | {method: {"views": 8} for method in PROMPT_METHODS}


def subject(
    method: str = "rosita", identifier: str = "lda", kind: str = "wrapped", score: str | None = None
) -> Subject:
    return Subject(method, identifier, backbone(kind), EARLY.get(method, {}), score)


def adapter(method: str = "rosita", identifier: str = "lda", kind: str = "wrapped", **options) -> ostta.Adapter:
    options = {**EARLY.get(method, {}), **options}
    return ostta.load(backbone(kind), CLASSES, method=method, identifier=identifier, **options)


class FixedVerdict:
    """An identifier that always gives the same verdict."""

    needs = None

    def __init__(self, verdict: Verdict = Verdict.UNRELIABLE_DESIRED) -> None:
        self.verdict = verdict

    def peek(self, score: float, evidence: object = None) -> Decision:
        return Decision(self.verdict, None, None, None)

    def remember(self, score: float, evidence: object = None) -> None:
        pass

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        pass

    def reset(self) -> None:
        pass


def learned(one: ostta.Adapter, views: torch.Tensor, verdict: Verdict) -> ostta.Prediction:
    """Step with a fixed verdict."""
    one.memory.identifier = FixedVerdict(verdict)  # type: ignore[assignment]
    return one.step_views(views)


def proposed(one: ostta.Adapter, views: torch.Tensor, verdict: Verdict) -> tuple[Look, Proposal]:
    """Return the look and the proposal for an image with a fixed verdict. The adapter is not changed."""
    look = one.pipeline.look_now(Views.of_tensor(views))
    return look, one.method.propose(one.state, look, Decision(verdict, None, None, None))


def gradients(one: ostta.Adapter, views: torch.Tensor, verdict: Verdict) -> tuple[torch.Tensor, tuple]:
    """Return the loss and the gradients of a proposal that needs no further views."""
    look, proposal = proposed(one, views, verdict)
    assert proposal.gradient is not None
    loss = proposal.gradient.loss(look, look.features[None][:0])
    return loss, torch.autograd.grad(loss, proposal.gradient.overlay.parameters())


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return not differing(first, second)


def class_scores(prediction: ostta.Prediction) -> torch.Tensor:
    """Return the class scores in the order of the classes."""
    return torch.tensor(list(prediction.class_scores.values()))
