"""Streams outside a benchmark: a pool of streams on one backbone, and a single stream with a state file."""

from __future__ import annotations

from ..client import AsyncClient, Client, ServerError
from .pool import StreamPool

__all__ = ["AsyncClient", "Client", "ServerError", "StreamPool"]
