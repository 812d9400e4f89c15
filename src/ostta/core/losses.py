"""The losses, as pure functions of one image's features or logits.

ReDUCe in the paper: L_Re is equation 5, L_D equation 6, L_U equation 7. `Neighbours` are found first and treated as constants, so
the gradient with respect to the feature f is the closed form of the appendix: for each positive z+ that counts, -z+/tau plus the
softmax-weighted mean of the negatives over tau, all over the normaliser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from .banks import FeatureBank
from .scores import entropy


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The K nearest features of each bank to one image, and the classes of the positives."""

    positives: torch.Tensor
    negatives: torch.Tensor
    labels: torch.Tensor


def nearest(
    features: torch.Tensor, same: FeatureBank, other: FeatureBank, k: int, label: int = 0, *, with_self: bool = True
) -> Neighbours:
    """The `k` nearest neighbours by cosine in the image's own bank and in the other one.

    The image counts as stored in its own bank, as one of class `label`, which it is not yet; it may be among its own
    neighbours (published), or not (D6).
    """
    query, own_slot = features.detach(), same.place(label)
    cosines = same.similarities(query)
    cosines[own_slot] = query @ query if with_self else -torch.inf
    near = cosines.topk(k).indices
    positives, labels = same.rows(near)
    itself = near == own_slot
    positives = torch.where(itself[:, None], query, positives)
    negatives, _ = other.rows(other.similarities(query).topk(k).indices)
    return Neighbours(positives, negatives, labels.masked_fill(itself, label))


def reliable_entropy(
    logits: torch.Tensor, augmented_logits: torch.Tensor, label: int, scale: float = 1.0
) -> torch.Tensor:
    """L_Re: cross-entropy of both views against the canonical view's own best class."""
    target = torch.tensor(label, device=logits.device)
    return functional.cross_entropy(scale * logits, target) + functional.cross_entropy(scale * augmented_logits, target)


def undesired_contrast(features: torch.Tensor, neighbours: Neighbours, temperature: float = 1.0) -> torch.Tensor:
    """L_U, for a reliable undesired image: towards its nearest undesired features, away from the nearest desired ones."""
    return _terms(features, neighbours, temperature).mean()


def desired_contrast(
    features: torch.Tensor, neighbours: Neighbours, label: int, temperature: float = 1.0, normaliser: str = "k"
) -> torch.Tensor:
    """L_D, for a reliable desired image of class `label`.

    Only positives of the image's class count, m_k = [label_k = label]; `normaliser` is "k" for 1/K, as published code does, or
    "matches" for the paper's 1/K+ (D3). No matching positive gives exactly zero.
    """
    terms = _terms(features, neighbours, temperature)
    matches = (neighbours.labels == label).to(terms.dtype)
    count = matches.sum().clamp(min=1) if normaliser == "matches" else terms.numel()
    return (matches * terms).sum() / count


def _terms(features: torch.Tensor, neighbours: Neighbours, temperature: float) -> torch.Tensor:
    attraction = neighbours.positives @ features / temperature
    repulsion = torch.logsumexp(neighbours.negatives @ features / temperature, dim=0)
    return repulsion - attraction


def most_certain(logits: torch.Tensor, share: float) -> torch.Tensor:
    """The numbers of the `share` of the views with the lowest entropy, `logits` [V, C]; at least one."""
    return entropy(logits).argsort(stable=True)[: max(1, int(share * len(logits)))]


def selected_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Entropy of the mean softmax of the selected views, `logits` [V, C] (TPT)."""
    # In logarithms throughout: a class with probability 0 in every view would give 0 log 0.
    log_p = torch.log_softmax(logits, dim=-1).logsumexp(dim=0) - math.log(len(logits))
    return -(log_p.exp() * log_p).sum()


def contrastive_entropy(logits: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """CLIPTTA's contrastive entropy, of each of the images with `logits` [B, C]; `counts` [C] is how often each class was answered.

    The published form takes, for each image i, the entropy of softmax_j(l_i,y_j) over the answers y_j of all images of a batch. Equal
    answers have equal columns, so that is a sum over classes:

        p_ic = n_c exp(l_ic) / sum_k n_k exp(l_ik),    H(p_i) + sum_c p_ic log n_c

    in time B C instead of B B, and `counts` may come from elsewhere than the batch. A class with count 0 takes no part.
    """
    logits, weights = logits[:, counts > 0], counts[counts > 0].log()
    log_p = torch.log_softmax(logits + weights, dim=-1)
    return -(log_p.exp() * (log_p - weights)).sum(-1)


def mixed_entropy(logits: torch.Tensor, before: torch.Tensor, share: float) -> torch.Tensor:
    """H((1 - share) before + share mean_i softmax(l_i)): how evenly classes are used; `before` [C] is a constant (CLIPTTA)."""
    mean = (1 - share) * before + share * torch.softmax(logits, dim=-1).mean(0)
    # A class may have probability 0, whose logarithm no gradient survives.
    return -(mean * mean.clamp(min=torch.finfo(mean.dtype).tiny).log()).sum()


def outlier_exposure(scores: torch.Tensor, others: torch.Tensor, threshold: float, width: float) -> torch.Tensor:
    """CLIPTTA's outlier contrastive exposure, -(m_in - m_out)^2: the mean scores of both sides of `threshold` are driven apart.

    An image with score u is on the upper side by sigmoid((u - threshold) / width). The means are over `scores` [B], which carry the
    graph, and `others` [N], which are constants.
    """
    both = torch.cat([scores, others])
    inside = torch.sigmoid((both - threshold) / width)
    means = [(weight * both).sum() / weight.sum() for weight in (inside, 1 - inside)]
    return -((means[0] - means[1]) ** 2)
