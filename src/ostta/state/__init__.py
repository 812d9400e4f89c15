"""State files (`.ostta`): safetensors with one JSON string in its metadata. Never pickle.

file.py           format and hash of the file
description.py    content of the JSON, checked by type and bounds
stored_shapes.py  check of the tensors against the description, before anything is built
restore.py        opening a state file together with its backbone
versions.py       recorded library versions
"""

from __future__ import annotations

from .description import ComponentClasses, Description, describe_adapter
from .file import FORMAT, StateCopy, read_state, stored_hash, write_state
from .restore import open_state
from .versions import versions

__all__ = [
    "FORMAT",
    "ComponentClasses",
    "Description",
    "StateCopy",
    "describe_adapter",
    "open_state",
    "read_state",
    "stored_hash",
    "versions",
    "write_state",
]
