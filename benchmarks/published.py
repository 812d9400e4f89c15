"""The published implementation: the computations of ROSITA and TPT, with the passes of the published code.

ROSITA: two views in one batch with a graph for every image, gradients for all weights of the tower, and another pass
for the recorded class even if nothing was learned. TPT: 64 views in one batch, and text prompts at their full length of
77 positions, encoded for the score, again with a graph, and again for the answer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from ostta.backbones.clip import Clip
from ostta.core.types import Verdict

from .shapes import public_tower


class PublishedRosita:
    """Decisions are taken from outside, as they are for the adapter it is compared with."""

    def __init__(self, backbone: Any, lr: float = 1e-3, k: int = 5, undesired: int = 64) -> None:
        self.vision = copy.deepcopy(public_tower(backbone)).requires_grad_(True)
        norms = [m for m in self.vision.modules() if isinstance(m, torch.nn.LayerNorm)]
        self.optimiser = torch.optim.SGD([p for norm in norms for p in norm.parameters()], lr=lr)
        self.k, self.most = k, undesired

    def begin(self, classifier: torch.Tensor, full: bool = True) -> PublishedRosita:
        """With these classes, and banks that are full or empty."""
        self.classifier, self.sizes = classifier, (self.k * len(classifier), self.most)
        self.desired, self.undesired = (
            list(functional.normalize(torch.randn(size if full else 0, classifier.shape[1]), dim=1))
            for size in self.sizes
        )
        return self

    def step(self, views: torch.Tensor, verdict: Verdict) -> tuple[float, int]:
        """Score before and class after the update, for two views of one image."""
        f, augmented = functional.normalize(self.vision(views), dim=1)
        z, z_augmented = self.classifier @ f, self.classifier @ augmented
        score, label = float(z.detach().max()), z.argmax()
        loss: Any = 0
        known, unknown = verdict is Verdict.RELIABLE_DESIRED, verdict is Verdict.RELIABLE_UNDESIRED
        if known:
            self.desired = [*self.desired, f.detach()][-self.sizes[0] :]
            loss = functional.cross_entropy(z, label) + functional.cross_entropy(z_augmented, label)
        if unknown:
            self.undesired = [*self.undesired, f.detach()][-self.sizes[1] :]
        if (known or unknown) and min(len(self.desired), len(self.undesired)) > self.k:
            same, other = (torch.stack(bank) for bank in (self.desired, self.undesired)[:: 1 if known else -1])
            positives = same[(same @ f.detach()).topk(self.k).indices]
            negatives = other[(other @ f.detach()).topk(self.k).indices]
            terms = torch.logsumexp(negatives @ f, 0) - positives @ f
            if known:
                terms = terms * ((positives @ self.classifier.T).argmax(1) == label)
            loss = loss + 0.5 * terms.mean()
        if isinstance(loss, torch.Tensor):
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
        with torch.no_grad():
            again = functional.normalize(self.vision(views[:1]), dim=1)[0]
        return score, int((self.classifier @ again).argmax())


class PublishedTPT:
    """One accepted image: reset, score, tune, answer. `part`: the most classes whose graph is in memory at once."""

    def __init__(self, backbone: Clip, classes: Sequence[str], lr: float = 5e-3, part: int = 250) -> None:
        self.vision, self.scale, self.lr, self.part = public_tower(backbone), backbone.logit_scale, lr, part
        tower: Any = backbone.text
        self.model, self.projection = tower.text_model, tower.text_projection
        tokens, length = backbone.tokens(classes), backbone.context_length
        self.ends = torch.tensor([len(own) - 1 for own in tokens])
        padded = torch.tensor([own + own[-1:] * (length - len(own)) for own in tokens])
        with torch.no_grad():
            self.embedded = self.model.embeddings.token_embedding(padded)
        self.initial = self.embedded[0, 1:5].clone()
        self.mask = torch.full((length, length), -torch.inf).triu(1)[None, None]

    def text(self, context: torch.Tensor, some: slice = slice(None)) -> torch.Tensor:
        embedded = self.embedded[some]
        count = len(embedded)
        hidden = torch.cat([embedded[:, :1], context.expand(count, -1, -1), embedded[:, 5:]], dim=1)
        hidden = hidden + self.model.embeddings.position_embedding.weight
        for layer in self.model.encoder.layers:
            hidden = layer(hidden, self.mask)
        ends = self.model.final_layer_norm(hidden)[torch.arange(count), self.ends[some]]
        return functional.normalize(self.projection(ends), dim=1)

    def step(self, views: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Score before and logits after the step."""
        context = self.initial.clone().requires_grad_()
        with torch.no_grad():
            f = functional.normalize(self.vision(views[:1]), dim=1)
            text = self.text(context)
            score = float((f @ text.T).max())
        optimiser = torch.optim.AdamW([context], lr=self.lr)
        with torch.no_grad():
            features = functional.normalize(self.vision(views), dim=1)
        # Encode the text again with a graph, in parts that fit into memory. The loss needs all classes at once: its
        # gradient with respect to the text features of the score is passed on to each part.
        text.requires_grad_()
        self._loss(features, text).backward()
        for start in range(0, len(text), self.part):
            some = slice(start, start + self.part)
            self.text(context, some).backward(text.grad[some])  # type: ignore[index]
        optimiser.step()
        with torch.no_grad():
            again = functional.normalize(self.vision(views[:1]), dim=1)[0]
            return score, self.text(context) @ again

    def _loss(self, features: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        log_p = torch.log_softmax(self.scale * features @ text.T, dim=1)
        chosen = (-(log_p.exp() * log_p).sum(1)).argsort()[: int(0.1 * len(features))]
        mean = log_p[chosen].logsumexp(0) - torch.log(torch.tensor(float(len(chosen))))
        return -(mean.exp() * mean).sum()
