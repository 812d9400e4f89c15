"""Losses and scores as pure functions of the features or logits of one image.

ReDUCe in the paper: L_Re is equation 5, L_D equation 6, L_U equation 7. `NearestFeatures` are found first and treated
as constants, so the gradient with respect to the feature f is the closed form of the appendix: for each positive z+
that counts, -z+/tau plus the softmax-weighted mean of the negatives over tau, all over the normaliser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from .banks import FeatureBank


# --- similarities and entropies ---------------------------------------------------------------------------------------
def unit(features: torch.Tensor) -> torch.Tensor:
    """Return the rows scaled to unit length; a row of zeros stays zero."""
    # Equal to `functional.normalize`, with fewer calls.
    lengths: torch.Tensor = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / lengths.clamp_min(1e-12)


def cosines(features: torch.Tensor, classifier: torch.Tensor) -> torch.Tensor:
    """Return z = f T^T for unit rows, without a temperature."""
    return features @ classifier.T


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return H(softmax(logits)) in nats, over the last dimension."""
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


def mixed_unit_entropy(logits: torch.Tensor) -> float:
    """Return the entropy in nats divided by log2(C), as in TDA and DPE: at most ln 2, and 0 for a single class."""
    classes = logits.shape[-1]
    return float(entropy(logits)) / math.log2(classes) if classes > 1 else 0.0


def max_score(logits: torch.Tensor) -> float:
    """Return the score s_t = max_c z_c."""
    return float(logits.detach().max())


def max_softmax_score(cosine_logits: torch.Tensor, scale: float) -> float:
    """Return the maximum softmax probability of the cosines times `scale`."""
    return float(torch.softmax(scale * cosine_logits.detach(), dim=-1).max())


def energy_score(cosine_logits: torch.Tensor, scale: float) -> float:
    """Return the log-sum-exp of the cosines times `scale`."""
    return float(torch.logsumexp(scale * cosine_logits.detach(), dim=-1))


# --- losses of the paper ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class NearestFeatures:
    """The K nearest features in each bank to one image, and the classes of the positives."""

    positives: torch.Tensor
    negatives: torch.Tensor
    labels: torch.Tensor


def nearest(
    features: torch.Tensor, same: FeatureBank, other: FeatureBank, k: int, label: int = 0, *, with_self: bool = True
) -> NearestFeatures:
    """Return the `k` nearest neighbours by cosine in the bank `same`, which the image will enter, and in `other`.

    The image is treated as already stored in `same` with the class `label`. With `with_self`, as published, it may be
    its own neighbour (D6).
    """
    query, own_slot = features.detach(), same.place(label)
    cosines = same.similarities(query)
    cosines[own_slot] = query @ query if with_self else -torch.inf
    near = cosines.topk(k).indices
    positives, labels = same.rows(near)
    itself = near == own_slot
    positives = torch.where(itself[:, None], query, positives)
    negatives, _ = other.rows(other.similarities(query).topk(k).indices)
    return NearestFeatures(positives, negatives, labels.masked_fill(itself, label))


def pseudo_label_loss(
    logits: torch.Tensor, augmented_logits: torch.Tensor, label: int, scale: float = 1.0
) -> torch.Tensor:
    """Return L_Re: the cross-entropy of both views with the best class of the canonical view."""
    target = torch.tensor(label, device=logits.device)
    return functional.cross_entropy(scale * logits, target) + functional.cross_entropy(scale * augmented_logits, target)


def undesired_contrast(features: torch.Tensor, neighbours: NearestFeatures, temperature: float = 1.0) -> torch.Tensor:
    """Return L_U of a reliable unknown image: towards the nearest unknown features, away from known features."""
    return _terms(features, neighbours, temperature).mean()


def desired_contrast(
    features: torch.Tensor, neighbours: NearestFeatures, label: int, temperature: float = 1.0, normaliser: str = "k"
) -> torch.Tensor:
    """Return L_D of a reliable known image of class `label`.

    Only positives of the same class count, m_k = [label_k = label]. `normaliser` is "k" for 1/K, as in the published
    code, or "matches" for 1/K+, as in the paper (D3). Without a matching positive, the loss is exactly zero.
    """
    terms = _terms(features, neighbours, temperature)
    matches = (neighbours.labels == label).to(terms.dtype)
    count = matches.sum().clamp(min=1) if normaliser == "matches" else terms.numel()
    return (matches * terms).sum() / count


def _terms(features: torch.Tensor, neighbours: NearestFeatures, temperature: float) -> torch.Tensor:
    attraction = neighbours.positives @ features / temperature
    repulsion = torch.logsumexp(neighbours.negatives @ features / temperature, dim=0)
    return repulsion - attraction


def most_certain(logits: torch.Tensor, share: float) -> torch.Tensor:
    """Return the indices of the `share` of views with the lowest entropy, at least one; `logits` [V, C]."""
    return entropy(logits).argsort(stable=True)[: max(1, int(share * len(logits)))]


def selected_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy of the mean softmax of the selected views, `logits` [V, C] (TPT)."""
    # In the log domain, because a class with probability 0 in every view would give 0 log 0.
    log_p = torch.log_softmax(logits, dim=-1).logsumexp(dim=0) - math.log(len(logits))
    return -(log_p.exp() * log_p).sum()
