"""The server: sessions over HTTP on one backbone.

app.py, middleware.py, api/    the web layer, which depends only on the protocol in engine.py
security.py                    tokens, cookies, host names and origins
local.py                       the engine of one process, over `StreamPool`
cluster/                       the engine of many processes, on Ray
sessions/                      sessions, their saving, and the store in SQLite or PostgreSQL
protocol.py, serving.py        connections with limits, and the start of a server
"""

from __future__ import annotations

from .app import create_app
from .engine import Engine
from .local import LocalEngine
from .problems import ProblemError
from .security import Token, Tokens, read_tokens
from .sessions.store import SessionStore, Stored
from .settings import Clock, Limits, Settings

__all__ = [
    "Clock", "Engine", "Limits", "LocalEngine", "ProblemError", "SessionStore", "Settings", "Stored", "Token", "Tokens",
    "create_app", "read_tokens",
]  # fmt: skip
