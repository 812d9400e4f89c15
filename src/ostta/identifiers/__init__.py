"""The identifiers by name."""

from __future__ import annotations

from .fixed import MSP, All, AllOptions, MSPOptions
from .lda import LDA, LDAOptions
from .mixture import DAF, DAFOptions
from .protocol import Identifier

__all__ = [
    "DAF", "IDENTIFIERS", "LDA", "MSP", "All", "AllOptions", "DAFOptions", "Identifier", "LDAOptions", "MSPOptions",
]  # fmt: skip

# name -> (class, options class, one line for `ostta ls identifiers`)
IDENTIFIERS = {
    "lda": (LDA, LDAOptions, "the threshold that splits the last 512 scores into the two tightest groups"),
    "daf": (
        DAF,
        DAFOptions,
        "a mixture of two Gaussians over the last 512 scores, fitted again at every score unless `refit` says otherwise",
    ),
    "msp": (MSP, MSPOptions, "fixed thresholds on the maximum softmax probability"),
    "all": (All, AllOptions, "accepts every image: the closed set"),
}
