"""A lock for one caller at a time, which refuses a second caller instead of making it wait."""

from __future__ import annotations

import threading

from .types import InUseError


class OneCaller:
    """A context that raises `InUseError` while another block is inside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InUseError(
                "This adapter is in use by another call: give each thread an adapter of its own on the same backbone, or use "
                "`ostta.StreamPool`."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        """Return whether a block is inside."""
        return self._lock.locked()
