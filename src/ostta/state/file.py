"""State files: tensors, a JSON text, and a SHA-256 of both (names, types, shapes and bytes of the tensors).

The hash detects accidental damage. An attacker can recompute it, so the content is checked as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..backbones.towers import weight_hash
from ..core.checks import shown
from ..core.errors import error_context, translate_errors
from ..core.types import Error
from ..io import check_regular, write_atomically
from .description import ComponentClasses, Description

if TYPE_CHECKING:
    from ..adapter import Adapter

FORMAT = 1
# Types of the tensors of a state, by their names in safetensors.
TYPES = ("F32", "F64", "I32", "I64", "U8")
CONTENT, HASH = "ostta", "sha256"


@dataclass(frozen=True, slots=True)
class StateCopy:
    """Content of a state file at one point of the stream; `steps` is the number of images processed before it."""

    tensors: dict[str, torch.Tensor]
    description: dict[str, Any]
    given: ComponentClasses | None = None

    @classmethod
    def of(cls, adapter: Adapter) -> StateCopy:
        """Return the state of an adapter, after testing the last gradient step if no image has been seen through it."""
        adapter.pipeline.try_last_step()
        classes = ComponentClasses(*(part.of for part in adapter.choice.parts().values()))
        return cls(adapter.pipeline.tensors(), adapter.describe(), classes)

    @property
    def steps(self) -> int:
        return int(self.description["step"])

    def detached(self) -> StateCopy:
        """Return a copy whose tensors do not change when the adapter continues."""
        return replace(self, tensors={name: tensor.detach().clone() for name, tensor in self.tensors.items()})

    def to_bytes(self) -> bytes:
        """Return the content of the state file; raise an Error if the description could not be read again."""
        from safetensors.torch import save

        # A state file has no device, so that it can be restored on any device.
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        text = json.dumps({"format": FORMAT, **self.description}, ensure_ascii=False)
        Description.read(self.description, self.given)
        return save(tensors, {CONTENT: text, HASH: _hash(tensors, text)})


def write_state(path: Path, state: StateCopy) -> None:
    """Write a state file atomically; raise an Error if it could not be read again."""
    write_atomically(path, state.to_bytes())


def read_state(path: Path, given: ComponentClasses | None = None) -> tuple[dict[str, torch.Tensor], Description]:
    """Return the tensors and the description of a state file. `Adapter.restore` checks that they fit each other."""
    from ..schema import parse_object

    tensors, metadata = _read_file(path)
    text = metadata.get(CONTENT)
    if text is None:
        raise Error(f"{path} is a safetensors file, but not a state of ostta.", code="state-unreadable")
    with error_context(f"{path} cannot be restored"):
        with error_context("its description is damaged"):
            content = parse_object(text)
        number = content.pop("format", None)
        if type(number) is not int or number != FORMAT:
            raise Error(
                f"it has state format {shown(number)}, and this version reads format {FORMAT}: "
                "use the version of ostta that wrote it, or start a new state.",
                code="state-format-unknown",
            )
        if metadata.get(HASH) != _hash(tensors, text):
            raise Error("its content does not match its hash: use another copy of the file.", code="state-damaged")
        return tensors, Description.read(content, given)


def stored_hash(path: Path) -> str:
    """Return the hash in a state file, or an empty string if it has none."""
    with _opened(path) as file:
        return str((file.metadata() or {}).get(HASH, ""))


def _read_file(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, str]]:
    check_regular(Path(path), "state file")
    with _opened(path) as file:
        names = list(file.keys())
        for name in names:
            kind = file.get_slice(name).get_dtype()
            if kind not in TYPES:
                message = f"{path} cannot be restored: the tensor {shown(name)} has the type {shown(kind)}."
                raise Error(message, code="state-invalid")
        # Copies, because safetensors maps the file into memory and a later change of the file would change the tensors.
        return {name: file.get_tensor(name).clone() for name in names}, file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    message = f"{path} is not a readable state file ({{reason}})."
    translated = translate_errors("state-unreadable", message, SafetensorError, OSError, ValueError)
    with translated, safe_open(str(path), framework="pt") as file:
        yield file


def _hash(tensors: Mapping[str, torch.Tensor], text: str) -> str:
    return hashlib.sha256(f"{weight_hash(tensors)}\n{text}".encode()).hexdigest()
