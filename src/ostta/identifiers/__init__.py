"""Built-in identifiers by name; `config/registry.py` adds those of `field` and `rivals`."""

from __future__ import annotations

from .base import Identifier
from .fixed import MSP, All, AllOptions, MSPOptions
from .lda import LDA, LDAOptions
from .mixture import DAF, DAFOptions

__all__ = [
    "DAF", "IDENTIFIERS", "LDA", "MSP", "All", "AllOptions", "DAFOptions", "Identifier",
    "LDAOptions",
    "MSPOptions",
]  # fmt: skip

IDENTIFIERS: dict[str, type[Identifier]] = {
    "lda": LDA,
    "daf": DAF,
    "msp": MSP,
    "all": All,
}
