"""The clients of `ostta serve`: `Client`, and `AsyncClient` for asynchronous programs.

calls.py           requests and the meaning of answers, without the network
verbs.py           the calls that both clients have
sync.py            `Client`
async_client.py    `AsyncClient`
"""

from __future__ import annotations

from .async_client import AsyncClient
from .calls import ServerError
from .sync import Client

__all__ = ["AsyncClient", "Client", "ServerError"]
