"""Open-set single-image test-time adaptation for vision-language models."""

from __future__ import annotations

from importlib import metadata

from . import backbones, options, plugins
from .adapter import Adapter, load
from .core.types import Decision, Error, Prediction, Verdict

try:
    __version__ = metadata.version("ostta")
except metadata.PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = ["Adapter", "Decision", "Error", "Prediction", "Verdict", "__version__", "backbones", "load", "options", "plugins"]
