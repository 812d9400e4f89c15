"""State files (`.ostta`): safetensors with one JSON string in its metadata. Never pickle.

file.py           the file: its formats, its hash
description.py    what the JSON says, checked by type and bound
stored_shapes.py  check of the sizes of tensors against the options, before memory of that size is allocated
restore.py        a state file together with its backbone
versions.py       the versions of libraries that are recorded
"""

from __future__ import annotations

from .description import ComponentClasses, Description, SavedBackbone
from .file import FORMAT, StateCopy, read_state, stored_hash, write_state
from .restore import not_restorable, open_state
from .stored_shapes import require_stored_shapes
from .versions import versions

__all__ = [
    "FORMAT",
    "ComponentClasses",
    "Description",
    "SavedBackbone",
    "StateCopy",
    "not_restorable",
    "open_state",
    "read_state",
    "require_stored_shapes",
    "stored_hash",
    "versions",
    "write_state",
]
