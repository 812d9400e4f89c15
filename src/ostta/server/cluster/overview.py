"""All sessions of a cluster at a glance, read from the shared folder: what replicas last wrote of theirs, and what is stored of the rest."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ...core.types import Error
from ...io import parse_json
from ..engine import Json
from .leased_store import LeasedStore
from .replica import LIVE

# Seconds after which what is stored of a session that no replica has is read again.
STORED = 30.0


class Overview:
    """Read on a thread of its caller, one at a time."""

    def __init__(self, folder: Path, store: LeasedStore) -> None:
        self._folder, self._store = folder / LIVE, store
        self._read: dict[str, tuple[tuple[int, int, int], Json]] = {}
        self._stored: dict[str, tuple[float, Json | None]] = {}

    def sessions(self) -> list[Json]:
        """All of them, the oldest first. Those in a replica are as of the last second or two, others as of their last snapshot."""
        ids = set(self._store.all_ids())
        found = {
            session["id"]: session for part in self._live() for session in part["sessions"] if session["id"] in ids
        }
        now = time.monotonic()
        self._stored = {id: kept for id, kept in self._stored.items() if id in ids and id not in found}
        for id in ids - set(found):
            since, shown = self._stored.get(id, (-STORED, None))
            if now - since >= STORED:
                shown = self._last_stored(id)
                self._stored[id] = (now, shown)
            if shown is not None:
                found[id] = shown
        return sorted(found.values(), key=lambda session: (session["created"], session["id"]))

    def counts(self) -> dict[str, float]:
        """The figures of all replicas that live, added."""
        total: dict[str, float] = {"replicas": 0}
        for part in self._live():
            total["replicas"] += 1
            for name, value in part["counts"].items():
                total[name] = total.get(name, 0) + value
        total["sessions_open"] = total.get("sessions", 0)
        total["sessions"] = len(self._store.all_ids())
        return total

    def _live(self) -> list[Json]:
        """What each replica that lives has written."""
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(".json") and not name.startswith(".")]
        except FileNotFoundError:
            return []
        self._read = {name: read for name, read in self._read.items() if name in names}
        found = []
        for name in names:
            key = name.removesuffix(".json")
            if self._store.holder.is_gone(key):
                continue
            try:
                status = os.stat(self._folder / name)
                mark = (status.st_ino, status.st_mtime_ns, status.st_size)
                if name not in self._read or self._read[name][0] != mark:
                    self._read[name] = (mark, _checked((self._folder / name).read_bytes()))
                found.append(self._read[name][1])
            except (OSError, ValueError):
                continue
        return found

    def _last_stored(self, id: str) -> Json | None:
        try:
            shown: Any = self._store.about(id).get("shown")
        except (Error, OSError):
            return None
        return {**shown, "images_per_second": 0.0} if isinstance(shown, dict) and shown.get("id") == id else None


def _checked(content: bytes) -> Json:
    parsed = parse_json(content)
    if (
        not isinstance(parsed, dict)
        or not isinstance(parsed.get("sessions"), list)
        or not isinstance(parsed.get("counts"), dict)
    ):
        raise ValueError("not what a replica writes")
    return parsed
