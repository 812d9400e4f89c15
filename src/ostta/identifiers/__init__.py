"""Built-in identifiers by name; `config/registry.py` adds those of `field` and `contrib`."""

from __future__ import annotations

from .adand import AdaND, AdaNDOptions
from .base import Identifier
from .fixed import MSP, All, AllOptions, MSPOptions
from .lda import LDA, LDAOptions
from .mixture import DAF, DAFOptions

__all__ = [
    "DAF", "IDENTIFIERS", "LDA", "MSP", "AdaND", "AdaNDOptions", "All", "AllOptions", "DAFOptions", "Identifier",
    "LDAOptions",
    "MSPOptions",
]  # fmt: skip

IDENTIFIERS: dict[str, type[Identifier]] = {
    "lda": LDA,
    "daf": DAF,
    "msp": MSP,
    "all": All,
    "adand": AdaND,
}
