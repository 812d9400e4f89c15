"""Scores and small vector maths shared by methods and identifiers."""

from __future__ import annotations

import math

import torch


def unit(features: torch.Tensor) -> torch.Tensor:
    """Rows of length one; a row of zeros stays one."""
    # As `functional.normalize`, in fewer calls.
    lengths: torch.Tensor = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / lengths.clamp_min(1e-12)


def cosines(features: torch.Tensor, classifier: torch.Tensor) -> torch.Tensor:
    """z = f T^T for unit rows; no temperature."""
    return features @ classifier.T


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """H(softmax(logits)) in nats, over the last dimension."""
    log_p = torch.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


def mixed_unit_entropy(logits: torch.Tensor) -> float:
    """Nats over log2(C), as TDA and DPE measure it: at most ln 2. Zero for a single class."""
    classes = logits.shape[-1]
    return float(entropy(logits)) / math.log2(classes) if classes > 1 else 0.0


def max_score(logits: torch.Tensor) -> float:
    """s_t = max_c z_c."""
    return float(logits.detach().max())


def max_softmax_score(cosine_logits: torch.Tensor, scale: float) -> float:
    """The maximum softmax probability of the cosines times `scale`."""
    return float(torch.softmax(scale * cosine_logits.detach(), dim=-1).max())


def energy_score(cosine_logits: torch.Tensor, scale: float) -> float:
    """The log-sum-exp of the cosines times `scale`."""
    return float(torch.logsumexp(scale * cosine_logits.detach(), dim=-1))
