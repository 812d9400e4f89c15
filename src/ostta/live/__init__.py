"""Streams outside a benchmark: many on one backbone, one whose state lives in a file, and sessions over HTTP."""

from __future__ import annotations

from ..client import AsyncClient, Client, ServerError
from .pool import StreamPool

__all__ = ["AsyncClient", "Client", "ServerError", "StreamPool"]
