"""State files: their formats, and the hash of their content.

format 1: tensors and a JSON text
format 2: adds a SHA-256 of the tensors (names, types, shapes, bytes) and of the JSON text
format 3: adds the score; options are stored by owner
format 4: levels are stored only for the classes that occurred, and the guard compares class probabilities

The hash detects accidental damage. An attacker can recompute it, so the content is checked as well. Every version reads
its own format and all earlier ones: a new format adds a function to `UPGRADES` that converts the previous format.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..backbones.towers import weight_hash
from ..config.resolve import group_by_owner
from ..core.checks import shown
from ..core.errors import error_context, translate_errors
from ..core.types import Error
from ..io import check_regular, write_atomically
from .description import ComponentClasses, Description, saved_components

if TYPE_CHECKING:
    from ..adapter import Adapter

FORMAT = 4
# Types of the tensors of a state, by their names in safetensors.
TYPES = ("F32", "F64", "I32", "I64", "U8")
CONTENT, HASH = "ostta", "sha256"
# The tensors of a file, and its JSON.
Content = tuple[dict[str, torch.Tensor], dict[str, Any]]


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
        number = content.get("format")
        if type(number) is not int or not 1 <= number <= FORMAT:
            raise Error(
                f"it has state format {shown(number)}, and this version reads formats 1 to {FORMAT}: "
                "use the version of ostta that wrote it, or start a new state.",
                code="state-format-unknown",
            )
        # If there is a hash, it must match in every format.
        if (number > 1 or HASH in metadata) and metadata.get(HASH) != _hash(tensors, text):
            raise Error("its content does not match its hash: use another copy of the file.", code="state-damaged")
        content = {name: value for name, value in content.items() if name != "format"}
        for older in range(number, FORMAT):
            tensors, content = UPGRADES[older](path, tensors, content, given or ComponentClasses())
        return tensors, Description.read(content, given)


def stored_hash(path: Path) -> str:
    """Return the hash in a state file, or an empty string for format 1."""
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


def _from_format_1(
    path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], _: ComponentClasses
) -> Content:
    warnings.warn(
        f"{path} has state format 1, which has no hash, so some damage cannot be detected; "
        f"`save` writes format {FORMAT}.",
        stacklevel=5,  # the caller of `Adapter.restore`
    )
    return tensors, content


def _from_format_2(
    _: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], given: ComponentClasses
) -> Content:
    """Add the score, which was fixed in format 2, and group the options, which were stored by name, by owner."""
    content = {**content, "score": "msp" if content.get("identifier") == "msp" else "max"}
    # Content of other types is rejected later, when the upgraded description is validated.
    if all(isinstance(content.get(name), str) for name in ("method", "identifier")):
        choice = saved_components(content, given)
        for name in ("options", "option_sources"):
            if isinstance(content.get(name), dict):
                content[name] = group_by_owner(choice, content[name])
    return tensors, content


def _from_format_3(
    path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], _: ComponentClasses
) -> Content:
    """Convert the levels and the former decision rule of `field`."""
    if [content.get(name) for name in ("profile", "score", "identifier")] == ["field", "neighbours", "adaptive"]:
        tensors, content = _with_new_rule(path, tensors, content)
    compact = dict(tensors)
    for name, rows in tensors.items():
        count = tensors.get(name.removesuffix("rows") + "count")
        if (
            name.endswith("levels/rows")
            and count is not None
            and count.ndim == 1
            and rows.shape == (*count.shape, *count.shape)
        ):
            compact[name] = rows[count > 0]
    return compact, content


def _with_new_rule(path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any]) -> Content:
    """Keep only the window of recent images, which is the whole state of the current rule."""
    warnings.warn(
        f"{path} was saved with an earlier rule for known and unknown images; "
        "the present rule continues from its recent images.",
        stacklevel=6,  # the caller of `Adapter.restore`
    )
    content = {**content, "score": "field", "identifier": "field"}
    for name in ("options", "option_sources"):
        if isinstance(content.get(name), dict) and isinstance(content[name].get("score"), dict):
            kept = {key: value for key, value in content[name]["score"].items() if key == "recent_images"}
            content[name] = {**content[name], "score": kept, "identifier": {}}
    return {name: tensor for name, tensor in tensors.items() if "identifier" not in name.split("/")}, content


# Functions that convert the content of a file from format n to format n + 1, by n.
UPGRADES: dict[int, Callable[[Path, dict[str, torch.Tensor], dict[str, Any], ComponentClasses], Content]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
}
