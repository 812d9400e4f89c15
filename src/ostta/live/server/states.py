"""State files that a stranger sent: restored through all checks, on the server's own backbone."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ...adapter import Adapter
from ...backbones.protocol import Backbone
from ...core.types import Error
from ...state import read_state


def restored(state: bytes, backbone: Backbone, most_classes: int) -> Adapter:
    """The adapter in a state file; an Error says what is wrong with it, without the name of any file."""
    with tempfile.TemporaryDirectory(prefix="ostta-") as folder:
        path = Path(folder) / "state.ostta"
        path.write_bytes(state)
        try:
            # Before anything is made of it: prompts of all classes go through the text tower.
            _, described = read_state(path)
            if len(described.classes) > most_classes:
                raise Error(f"{path} has {len(described.classes)} classes, and {most_classes} are the most here.")
            return Adapter.restore(path, backbone)
        except Error as problem:
            raise Error(str(problem).replace(str(path), "The state file")) from None
