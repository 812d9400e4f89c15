"""Scores and small vector maths shared by methods and identifiers."""

from __future__ import annotations

import torch
from torch.nn import functional


def unit(features: torch.Tensor) -> torch.Tensor:
    """Rows of length one."""
    return functional.normalize(features, dim=-1)


def cosines(features: torch.Tensor, classifier: torch.Tensor) -> torch.Tensor:
    """z = f T^T for unit rows; no temperature (spec 1)."""
    return features @ classifier.T


def max_score(logits: torch.Tensor) -> float:
    """s_t = max_c z_c."""
    return float(logits.detach().max())


def max_softmax_score(cosine_logits: torch.Tensor, scale: float) -> float:
    """The maximum softmax probability, at the backbone's own temperature."""
    return float(torch.softmax(scale * cosine_logits.detach(), dim=-1).max())
