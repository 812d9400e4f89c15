"""Clients of `ostta serve`: `Client`, and `AsyncClient` for asynchronous programs.

calls.py           construction of requests and interpretation of responses, without network access
verbs.py           methods shared by both clients
sync.py            `Client`
async_client.py    `AsyncClient`
"""

from __future__ import annotations

from .async_client import AsyncClient
from .calls import ServerError
from .sync import Client

__all__ = ["AsyncClient", "Client", "ServerError"]
