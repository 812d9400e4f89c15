"""Class means: each class is also known by the mean feature of the images that were reliably classified as it."""

from dataclasses import dataclass

import torch

from ostta.config.declare import Options, option
from ostta.methods import Learner, Look, MethodSummary, TensorState


@dataclass(frozen=True)
class ClassMeansOptions(Options):
    weight: float = option(0.3, bounds=(0, 1), paper=0.5, about="weight of the class means in the logits")


class ClassMeans(Learner):
    Options = ClassMeansOptions
    summary = MethodSummary("nothing", "a mean feature per class, score bank", "1 forward", "an example")

    def start(self):
        return TensorState(sums=torch.zeros_like(self.classifier))

    def look(self, state, features, views):
        z = features @ self.classifier.T
        mixed = torch.lerp(z, torch.nn.functional.normalize(state.sums, dim=1) @ features, self.options.weight)
        return Look(views, features, z, torch.where(state.sums.any(1), mixed, z), None)

    def learn(self, state, look):
        state.sums[look.logits.argmax()] += look.features
