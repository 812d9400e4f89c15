"""Rivals that are registered but not recommended: the former rule of the profile `field`."""

from __future__ import annotations

from .adaptive import Adaptive, AdaptiveOptions
from .neighbours import Neighbours, NeighboursOptions

__all__ = ["Adaptive", "AdaptiveOptions", "Neighbours", "NeighboursOptions"]
