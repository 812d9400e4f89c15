"""Uploaded state files, restored on the backbone of the server with all checks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ...adapter import Adapter
from ...backbones.protocol import Backbone
from ...core.types import Error
from ...state import read_state
from ..settings import Limits
from .build import require_few, require_little, without_warnings


def restored(state: bytes, backbone: Backbone, limits: Limits) -> Adapter:
    """Return the adapter in a state file. An Error says what is wrong with it, without naming a file of the server."""
    with tempfile.TemporaryDirectory(prefix="ostta-") as folder:
        path = Path(folder) / "state.ostta"
        path.write_bytes(state)
        try:
            # Checked first: prompts of all classes go through the text tower.
            with without_warnings():
                _, described = read_state(path)
                require_few(described.classes, described.options, limits)
                require_little(len(described.classes), described.options, backbone, limits)
                return Adapter.restore(path, backbone)
        except Error as problem:
            raise Error(str(problem).replace(str(path), "The state file"), code=problem.code) from None
