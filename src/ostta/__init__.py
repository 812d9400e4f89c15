"""Open-set single-image test-time adaptation for vision-language models."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING

from . import backbones, identifiers, scores, sources
from .adapter import Adapter, load
from .config import plugins
from .config import resolve as options
from .core.types import Decision, Error, Event, ImageError, InUseError, Prediction, Verdict
from .data.images import ImageSource
from .image_set import Classified, classify

restore = Adapter.restore

try:
    __version__ = metadata.version("ostta")
except metadata.PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "Adapter", "Classified", "Decision", "Error", "Event", "ImageError", "ImageSource", "InUseError", "Prediction",
    "StreamPool", "Verdict", "__version__", "backbones", "bench", "classify",
    "identifiers", "load", "options", "plugins", "restore", "scores", "sources", "testing",
]  # fmt: skip

if TYPE_CHECKING:
    from . import bench, testing
    from .live import StreamPool
else:  # a checker that saw this function would take any name for one of the package

    def __getattr__(name: str) -> object:
        # What only some programs need, imported when it is first asked for.
        if name == "StreamPool":
            from .live import StreamPool

            return StreamPool
        if name in ("bench", "testing"):
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
