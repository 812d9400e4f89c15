"""The identifiers by name."""

from __future__ import annotations

from .lda import LDA, LDAOptions
from .protocol import Identifier

__all__ = ["IDENTIFIERS", "LDA", "Identifier", "LDAOptions"]

# name -> (class, options class, one line for `ostta ls identifiers`)
IDENTIFIERS = {"lda": (LDA, LDAOptions, "the threshold that splits the last 512 scores into the two tightest groups")}
