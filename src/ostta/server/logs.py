"""Structured logs: one JSON object per line on stderr."""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from typing import IO, Any

_lock = threading.Lock()
_stream: IO[str] | None = None


def log_to(stream: IO[str] | None) -> None:
    """Write log lines to `stream`, or to stderr if it is None."""
    global _stream
    _stream = stream


def log(message: str, *, level: str = "info", **fields: Any) -> None:
    """Write one line."""
    content = {"time": round(time.time(), 3), "level": level, "message": message, **fields}
    line = json.dumps(content, ensure_ascii=True, default=str)
    with _lock, suppress(OSError, ValueError):
        print(line, file=_stream or sys.stderr, flush=True)
