"""The server: sessions over HTTP, on one backbone.

app.py, routes.py, gate.py      the web layer, which knows the protocol in engine.py and nothing else
security.py, uploads.py         who may come in, and what is read of what they send
local.py                        the engine of one process, over `StreamPool`
session.py, line.py, keeping.py one session: what is remembered, what waits, what is saved
store.py                        where sessions live between two processes
"""

from __future__ import annotations

from .app import create_app
from .engine import Engine
from .local import LocalEngine
from .problems import ProblemError
from .security import Token, Tokens, read_tokens
from .settings import Clock, Limits, Settings
from .store import FolderStore, SessionStore, Stored

__all__ = [
    "Clock", "Engine", "FolderStore", "Limits", "LocalEngine", "ProblemError", "SessionStore", "Settings", "Stored", "Token", "Tokens",
    "create_app", "read_tokens",
]  # fmt: skip
