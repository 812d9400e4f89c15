"""Registered methods, scores and identifiers that are neither part of the paper's benchmark nor recommended."""

from __future__ import annotations

from .cliptta import CLIPTTA, CLIPTTAOptions
from .dart import Dart, DartOptions

__all__ = [
    "CLIPTTA", "CLIPTTAOptions", "Dart", "DartOptions",
]  # fmt: skip
