"""Where images come from outside a benchmark: files, folders, lists, archives, videos, cameras, addresses."""

from __future__ import annotations

from .item import Item
from .opening import open
from .source import Source

__all__ = ["Item", "Source", "open"]
