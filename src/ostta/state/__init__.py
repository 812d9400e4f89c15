"""State files (`.ostta`): safetensors with one JSON string in its metadata. Never pickle.

file.py           the file: its formats, its hash
description.py    what the JSON says, checked by type and bound
stored_shapes.py  whether the tensors are as large as the options say, before anything of that size is made
"""

from __future__ import annotations

from .description import ComponentClasses, Description, SavedBackbone
from .file import FORMAT, StateCopy, read_state, stored_hash, write_state
from .stored_shapes import require_stored_shapes

__all__ = [
    "FORMAT",
    "ComponentClasses",
    "Description",
    "SavedBackbone",
    "StateCopy",
    "read_state",
    "require_stored_shapes",
    "stored_hash",
    "write_state",
]
