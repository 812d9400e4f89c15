"""Backbones that stay loaded from one run to the next. A backbone never changes, so runs can share it."""

from __future__ import annotations

from pathlib import Path

from ...backbones.protocol import Backbone
from ...config.plugins import names_file
from ..run.execute import open_backbone
from ..spec import RunSpec


class LoadedBackbones:
    """The last `most` backbones that runs asked for; None: all of them."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._loaded: dict[tuple[str, str, str], Backbone] = {}

    def of(self, spec: RunSpec, root: Path | None = None) -> Backbone | None:
        """The backbone of a run, if it is one that may be shared; None: the run opens it, or says why it cannot."""
        if names_file(spec.backbone):
            return None
        key = (spec.backbone, spec.device, spec.dtype)
        found = self._loaded.pop(key, None)
        if found is None:
            # Before the next one is loaded: two large models may not fit.
            while self._most is not None and len(self._loaded) >= self._most:
                self._loaded.pop(next(iter(self._loaded)))
            try:
                found = open_backbone(spec, root)
            except Exception:
                return None  # the run will meet the same problem, and say so
        self._loaded[key] = found
        return found
