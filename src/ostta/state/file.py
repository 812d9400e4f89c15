"""The file: its formats, and the hash over all that it holds.

Format 2 has a SHA-256 over the tensors (names, types, shapes, bytes) and the JSON text. It finds accidental damage. It does not
stop an attacker, who can compute it again: whatever reads the content checks it too. Format 1 is the same without the hash. In
format 3 there is a score, and options are stored by owner. In format 4 the levels have rows for the classes that were seen only.

A version reads its own format and all earlier ones. A new format adds to `UPGRADES` how a file of the one before becomes one of it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..backbones.towers import weight_hash
from ..config.resolve import group_by_owner
from ..core.checks import shown
from ..core.types import Error
from ..io import write_atomically
from .description import ComponentClasses, Description, read_json, saved_components

FORMAT = 4
# The types that a state is made of, by their names in safetensors.
TYPES = ("F32", "F64", "I32", "I64", "U8")
CONTENT, HASH = "ostta", "sha256"


@dataclass(frozen=True, slots=True)
class StateCopy:
    """All that a state file holds, as it was at one moment. `steps` is how many there had been."""

    tensors: dict[str, torch.Tensor]
    description: dict[str, Any]
    given: ComponentClasses | None = None

    @property
    def steps(self) -> int:
        return int(self.description["step"])

    def detached(self) -> StateCopy:
        """Return a copy whose tensors do not change when the adapter continues."""
        return replace(self, tensors={name: tensor.detach().clone() for name, tensor in self.tensors.items()})

    def to_bytes(self) -> bytes:
        """Return the content of the state file; raise an Error if it could not be read again."""
        from safetensors.torch import save

        # A file knows no device: what was saved on one is restored on any other.
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        text = json.dumps({"format": FORMAT, **self.description}, ensure_ascii=False)
        Description.read(_without_format(read_json(text)), self.given)
        return save(tensors, {CONTENT: text, HASH: _hash(tensors, text)})


def write_state(path: Path, state: StateCopy) -> None:
    """Write a state file atomically; raise an Error if it could not be read again."""
    write_atomically(path, state.to_bytes())


def read_state(path: Path, given: ComponentClasses | None = None) -> tuple[dict[str, torch.Tensor], Description]:
    """The tensors and the description of a state file. What is in them is sound by itself; `restore` checks whether it fits."""
    tensors, metadata = _read_file(path)
    text = metadata.get(CONTENT)
    if text is None:
        raise Error(f"{path} is a safetensors file, but not a state of ostta.")
    try:
        content = read_json(text)
        found = content.get("format")
        if type(found) is not int or not 1 <= found <= FORMAT:
            raise Error(
                f"it has state format {shown(found)}, and this version reads formats 1 to {FORMAT}: "
                "use the version of ostta that wrote it, or start a new state"
            )
        # Wherever there is a hash it must be right, whatever the format says.
        if (found > 1 or HASH in metadata) and metadata.get(HASH) != _hash(tensors, text):
            raise Error("its content is not what was written, as its hash says: use another copy of it")
        content = _without_format(content)
        for older in range(found, FORMAT):
            tensors, content = UPGRADES[older](path, tensors, content, given or ComponentClasses())
        return tensors, Description.read(content, given)
    except Error as problem:
        raise Error(f"{path} cannot be restored: {str(problem).removesuffix('.')}.") from None


def stored_hash(path: Path) -> str:
    """The hash in a state file; empty where its format has none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return str((file.metadata() or {}).get(HASH, ""))
    except (SafetensorError, OSError, ValueError) as problem:
        raise Error(f"{path} is not a readable state file ({shown(str(problem), 200)}).") from None


def _read_file(path: Path) -> tuple[dict[str, torch.Tensor], Mapping[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        if not Path(path).is_file():
            raise Error(f"There is no state file {path}.")
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            for name in names:
                kind = file.get_slice(name).get_dtype()
                if kind not in TYPES:
                    raise Error(f"{path} cannot be restored: the tensor {shown(name)} has the type {shown(kind)}.")
            # Copies: what safetensors gives is a window on the file, and would change with it after the checks.
            return {name: file.get_tensor(name).clone() for name in names}, file.metadata() or {}
    except (SafetensorError, OSError, ValueError) as problem:
        raise Error(f"{path} is not a readable state file ({shown(str(problem), 200)}).") from None


def _hash(tensors: Mapping[str, torch.Tensor], text: str) -> str:
    return hashlib.sha256(f"{weight_hash(tensors)}\n{text}".encode()).hexdigest()


def _without_format(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != "format"}


def _from_format_1(
    path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], _: ComponentClasses
) -> Content:
    warnings.warn(
        f"{path} has state format 1, which has no hash, so not all damage to it can be noticed; `save` writes format {FORMAT}.",
        stacklevel=5,  # the caller of `Adapter.restore`
    )
    return tensors, content


def _from_format_2(
    _: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], given: ComponentClasses
) -> Content:
    """There was no choice of a score, and options were stored by name alone."""
    content = {**content, "score": "msp" if content.get("identifier") == "msp" else "max"}
    if {"method", "identifier"} <= content.keys():  # else it is said by whoever reads it next
        choice = saved_components(content, given)
        for name in ("options", "option_sources"):
            if isinstance(content.get(name), dict):
                content[name] = group_by_owner(choice, content[name])
    return tensors, content


def _from_format_3(
    path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any], _: ComponentClasses
) -> Content:
    """The levels, those of a guard's snapshots too, had a row for every class, the guard compared verdicts only, and the profile
    `field` had another rule.
    """
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
    checks = compact.get("guard/signals/checks")
    if "guard/signals/answers" in compact and checks is not None and checks.shape[1:] == (4,):
        compact["guard/signals/trained_on"] = compact.pop("guard/signals/answers")
        # Rows of a check: whether the adapter accepts the image, its class, and the same of the frozen model.
        compact["guard/signals/classes"] = checks[checks[:, 0] == 1][-96:][:, [1, 3]]
        compact["guard/signals/probabilities"] = checks[:, 0].double()
    return compact, content


def _with_new_rule(path: Path, tensors: dict[str, torch.Tensor], content: dict[str, Any]) -> Content:
    """The window of recent images is all that the present rule needs."""
    warnings.warn(
        f"{path} was saved with an earlier rule for known and unknown images; the present rule continues from its recent images.",
        stacklevel=6,  # the caller of `Adapter.restore`
    )
    content = {**content, "score": "field", "identifier": "field"}
    for name in ("options", "option_sources"):
        if isinstance(content.get(name), dict) and isinstance(content[name].get("score"), dict):
            kept = {key: value for key, value in content[name]["score"].items() if key == "recent_images"}
            content[name] = {**content[name], "score": kept, "identifier": {}}
    return {name: tensor for name, tensor in tensors.items() if "identifier" not in name.split("/")}, content


Content = tuple[dict[str, torch.Tensor], dict[str, Any]]
# Format n -> what makes a file of it one of format n + 1.
UPGRADES: dict[int, Callable[[Path, dict[str, torch.Tensor], dict[str, Any], ComponentClasses], Content]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
}
