"""The identifiers by name."""

from __future__ import annotations

from .fixed import MSP, MSPOptions
from .lda import LDA, LDAOptions
from .mixture import DAF, DAFOptions
from .protocol import Identifier

__all__ = ["DAF", "IDENTIFIERS", "LDA", "MSP", "DAFOptions", "Identifier", "LDAOptions", "MSPOptions"]

# name -> (class, options class, one line for `ostta ls identifiers`)
IDENTIFIERS = {
    "lda": (LDA, LDAOptions, "the threshold that splits the last 512 scores into the two tightest groups"),
    "daf": (
        DAF,
        DAFOptions,
        "a mixture of two Gaussians over the last 512 scores, fitted again at every score unless `refit` says otherwise",
    ),
    "msp": (MSP, MSPOptions, "fixed thresholds on the maximum softmax probability"),
}
