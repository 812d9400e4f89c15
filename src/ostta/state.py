"""State files (`.ostta`): safetensors with one JSON string in its metadata. Never pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from .core.types import Error
from .files import write_atomically

FORMAT = 1


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
