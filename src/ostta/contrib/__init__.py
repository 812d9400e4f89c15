"""Registered methods, scores and identifiers that are neither part of the paper's benchmark nor recommended."""

from __future__ import annotations

from .adaptive import Adaptive, AdaptiveOptions
from .cliptta import CLIPTTA, CLIPTTAOptions
from .dart import Dart, DartOptions
from .neighbours import Neighbours, NeighboursOptions

__all__ = [
    "CLIPTTA", "Adaptive", "AdaptiveOptions", "CLIPTTAOptions", "Dart", "DartOptions", "Neighbours",
    "NeighboursOptions",
]  # fmt: skip
