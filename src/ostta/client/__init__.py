"""The client of `ostta serve`: the same verbs for programs that wait, `Client`, and for those that do not, `AsyncClient`.

calls.py     what is asked, and what an answer means
sync.py      `Client`
later.py     `AsyncClient`
"""

from __future__ import annotations

from .calls import ServerError
from .later import AsyncClient
from .sync import Client

__all__ = ["AsyncClient", "Client", "ServerError"]
