"""State files (`.ostta`): safetensors with one JSON string in its metadata. Never pickle.

A file is written beside its target, flushed to disk, then renamed over it, so a crash at any moment leaves the old file or the
new one and never half of one.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from .core.types import Error

FORMAT = 1


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; on any failure the old file stays and nothing else is left behind."""
    path = Path(path)
    partial = ""
    try:
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as problem:
        if partial and os.path.exists(partial):
            os.unlink(partial)
        raise Error(
            f"{path} could not be written ({problem.strerror or problem}); what was there before is unchanged."
        ) from None
    _sync_folder(path.parent)


def write_state(path: Path, tensors: dict[str, torch.Tensor], description: dict[str, Any]) -> None:
    """Save named tensors with their description."""
    from safetensors.torch import save

    metadata = {"ostta": json.dumps({"format": FORMAT, **description}, ensure_ascii=False)}
    write_atomically(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))


def read_state(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the description of a state file."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise Error(f"There is no state file {path}.")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as problem:
        raise Error(f"{path} is not a readable state file ({problem}).") from None
    if "ostta" not in metadata:
        raise Error(f"{path} is a safetensors file, but not a state of ostta.")
    description = json.loads(metadata["ostta"])
    if description.get("format") != FORMAT:
        raise Error(
            f"{path} has state format {description.get('format')}, this version reads format {FORMAT}: "
            "start a new state, or use the version of ostta that wrote it."
        )
    return tensors, description


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
