"""Sources of images outside a benchmark: files, folders, lists, archives, videos, cameras and addresses."""

from __future__ import annotations

from .factory import open
from .source import Item, Source

__all__ = ["Item", "Source", "open"]
