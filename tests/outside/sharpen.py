"""Sharpen: lower the entropy of the images that are classified as known, over two views of each."""

from dataclasses import dataclass

import torch

from ostta.config.declare import Options, option
from ostta.methods import GradientMethod, MethodSummary, Proposal


@dataclass(frozen=True)
class SharpenOptions(Options):
    lr: float = option(1e-3, above=0, about="learning rate of SGD")


class Sharpen(GradientMethod):
    Options = SharpenOptions
    summary = MethodSummary(
        "LayerNorms", "LayerNorms, score bank", "1 forward; known: +2 forwards, +2 backwards", "an example"
    )
    views = 2

    def propose(self, state, look, decision):
        if not decision.desired:
            return Proposal(reason="the image is not known")

        def loss(look, augmented):
            classifier, z = state.overlay.differentiable(look)
            both = torch.stack([z, augmented[0] @ classifier.T])
            log_p = torch.log_softmax(self.logit_scale * both, dim=-1)
            return -(log_p.exp() * log_p).sum(-1).mean()

        return self.step(state, loss, augmented=1)
