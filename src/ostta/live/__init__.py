"""Streams outside a benchmark: many on one backbone, and one whose state lives in a file."""

from __future__ import annotations

from .pool import StreamPool

__all__ = ["StreamPool"]
