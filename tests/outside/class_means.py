"""Class means: each class is also known by the mean feature of the images that were reliably it."""

from dataclasses import dataclass

import torch

from ostta import Error, Verdict
from ostta.methods import Facts, Look, Proposal, State
from ostta.options import Options, option


@dataclass(frozen=True)
class ClassMeansOptions(Options):
    weight: float = option(0.3, bounds=(0, 1), paper=0.5, about="share of the means in the logits of a class")


class Means(State):
    """The sum of the features and their number, for each class."""

    def __init__(self, classifier: torch.Tensor) -> None:
        self.sums, self.counts = torch.zeros_like(classifier), torch.zeros_like(classifier[:, :1])

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"sums": self.sums, "counts": self.counts}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        own = self.tensors()
        if tensors.keys() != own.keys() or any(tensors[name].shape != own[name].shape for name in own):
            raise Error("The stored sums and counts are not those of class means over these classes.")
        self.sums, self.counts = (tensors[name].to(own[name]) for name in own)


class ClassMeans:
    Options = ClassMeansOptions
    facts = Facts("nothing", "a mean feature a class, score bank", "1 forward", "an example")
    views, score_scale, looks_with_graph = 1, 1.0, False

    def __init__(self, backbone, classifier, classes, options) -> None:
        self.classifier, self.weight = classifier, options.weight

    def start(self) -> Means:
        return Means(self.classifier)

    def overlay(self, state: Means) -> None:
        return None

    def look(self, state: Means, features: torch.Tensor, views) -> Look:
        z = features @ self.classifier.T
        seen = state.counts[:, 0] > 0
        near = torch.nn.functional.normalize(state.sums, dim=1) @ features
        return Look(views, features, z, torch.where(seen, (1 - self.weight) * z + self.weight * near, z), None)

    def propose(self, state: Means, look: Look, decision) -> Proposal:
        learns = decision.verdict is Verdict.RELIABLE_DESIRED
        return Proposal(adapted=learns, reason=None if learns else "the image is not reliably known")

    def commit(self, state: Means, look: Look, decision, trained) -> None:
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            best = torch.nn.functional.one_hot(look.logits.argmax(), len(state.sums))[:, None].to(look.features)
            state.sums, state.counts = state.sums + best * look.features, state.counts + best
