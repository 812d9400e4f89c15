"""Image sources outside a benchmark: files, folders, lists, archives, videos, cameras and URLs."""

from __future__ import annotations

from .factory import open
from .source import Item, Source

__all__ = ["Item", "Source", "open"]
