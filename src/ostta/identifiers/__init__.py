"""The identifiers by name."""

from __future__ import annotations

from .adand import AdaND, AdaNDOptions
from .adaptive import Adaptive, AdaptiveOptions
from .fixed import MSP, All, AllOptions, MSPOptions
from .lda import LDA, LDAOptions
from .mixture import DAF, DAFOptions
from .protocol import Identifier

__all__ = [
    "DAF", "IDENTIFIERS", "LDA", "MSP", "AdaND", "AdaNDOptions", "Adaptive", "AdaptiveOptions", "All", "AllOptions", "DAFOptions", "Identifier", "LDAOptions",
    "MSPOptions",
]  # fmt: skip

IDENTIFIERS: dict[str, type[Identifier]] = {
    "lda": LDA,
    "daf": DAF,
    "adaptive": Adaptive,
    "msp": MSP,
    "all": All,
    "adand": AdaND,
}
