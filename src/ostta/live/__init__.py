"""Streams as they come: a pool of many on one backbone."""

from __future__ import annotations

from .pool import StreamPool

__all__ = ["StreamPool"]
