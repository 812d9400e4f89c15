"""The folder of an exported backbone: its files, what `ostta.json` says about them, and the checks of both.

ostta.json          where it came from, how images are prepared, which classes there are, and a SHA-256 of every file
model.onnx          the image tower: `pixels` [batch, 3, H, W] to `features` [batch, D]
text.safetensors    `text_features` [classes, D], of length one
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..core.checks import UNIT_TOLERANCE, shown
from ..core.types import Error, Preprocessing
from ..io import is_unicode, parse_json, read_regular
from .prompts import checked_templates

FORMAT = 1
DESCRIPTION, MODEL, TEXT = "ostta.json", "model.onnx", "text.safetensors"
FILES = (MODEL, TEXT)
FEATURES = "text_features"
PRECISIONS = ("float32", "int8")
# The hash over the rest of the description.
SEAL = "sha256"
# Far beyond what is of use, and near enough that nobody waits long for an Error.
MOST_TEXT, MOST_NAME, MOST_CLASSES, MOST_ENTRIES, MOST_PIXELS = 32 * 2**20, 10_000, 1_000_000, 1_000, 10_000


@dataclass(frozen=True)
class Exported:
    """What `ostta.json` says.

    backbone, weight_hash: what was exported.
    precision:             "float32", or "int8" for dense layers with weights and inputs of eight bits.
    templates:             what the class embeddings were made with; none where they were given and not made.
    unfamiliar:            the classes that the model is known not to understand.
    largest_difference:    between unit features here and those of the image tower in torch, seen on export.
    files:                 SHA-256 by name.
    """

    backbone: str
    weight_hash: str
    precision: str
    preprocessing: Preprocessing
    logit_scale: float
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    defaults: Mapping[str, Mapping[str, Any]]
    remark: str
    unfamiliar: tuple[str, ...]
    largest_difference: float
    versions: Mapping[str, str]
    files: Mapping[str, str]

    def to_json(self) -> str:
        content = {"format": FORMAT, **dataclasses.asdict(self)}
        return json.dumps({**content, SEAL: _seal(content)}, indent=1) + "\n"


@dataclass(frozen=True)
class Content:
    """The content of a folder, checked; `model` is what the hash was taken of, and not what may lie there later."""

    about: Exported
    model: bytes
    text: torch.Tensor


def is_exported(folder: Path) -> bool:
    """Whether a backbone was exported to `folder`."""
    return (folder / DESCRIPTION).is_file()


def read_content(folder: Path) -> Content:
    """All that is in `folder`; an Error says what is missing or damaged."""
    if not folder.is_dir():
        raise Error(f"There is no folder {str(folder)!r}.")
    if not is_exported(folder):
        raise Error(
            f"The folder {folder} holds no exported backbone: there is no {DESCRIPTION} in it; `ostta backbone export` makes one."
        )
    try:
        about = _read_description(read_regular(folder / DESCRIPTION, "description"))
        model, text = (_sound(folder / name, about.files[name]) for name in FILES)
        return Content(about, model, _read_text(text, len(about.classes)))
    except Error as problem:
        raise Error(f"The backbone in {folder} cannot be loaded: {str(problem).rstrip('.')}.") from None


def file_hash(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def checked_names(classes: Any) -> tuple[str, ...]:
    """Class names as a tuple: at least one, each a text, none twice."""
    if isinstance(classes, str) or not isinstance(classes, list | tuple) or not 1 <= len(classes) <= MOST_CLASSES:
        raise Error(f'The classes are a list of names such as ["cat", "dog"], not {shown(classes)}.')
    for name in classes:
        if not _is_text(name) or not name.strip():
            raise Error(f"{shown(name)} is no class name: that is a text that is not empty.")
    if len(set(classes)) < len(classes):
        twice = next(name for place, name in enumerate(classes) if name in classes[:place])
        raise Error(f"The class {shown(twice)} is there twice; each class needs a name of its own.")
    return tuple(classes)


# --- inside -----------------------------------------------------------------------------------------------------------
def _seal(content: Mapping[str, Any]) -> str:
    return file_hash(json.dumps(content, sort_keys=True).encode())


def _sound(file: Path, expected: str) -> bytes:
    content = read_regular(file, "file")
    if file_hash(content) != expected:
        raise Error(f"{file.name} is not the file that was written, as its hash says: export the backbone again")
    return content


def _read_description(content: bytes) -> Exported:
    if len(content) > MOST_TEXT:
        raise Error(f"{DESCRIPTION} has {len(content):,} bytes, and {MOST_TEXT:,} are the most")
    try:
        found = parse_json(content.decode("utf-8"))
    except ValueError as problem:
        raise Error(f"{DESCRIPTION} is not JSON ({shown(str(problem))})") from None
    if not isinstance(found, dict):
        raise Error(f"{DESCRIPTION} is not a JSON object")
    if found.get("format") != FORMAT or isinstance(found["format"], bool):
        raise Error(
            f"it has format {shown(found.get('format'))}, and this version reads format {FORMAT}: "
            "use the version of ostta that wrote it, or export the backbone again"
        )
    rest = {name: value for name, value in found.items() if name != SEAL}
    if found.get(SEAL) != _seal(rest):
        raise Error(f"{DESCRIPTION} is not what was written, as its hash says: export the backbone again")
    values = _fields(rest, ["format", *_CHECKS], "description")
    return Exported(**{name: check(name, values[name]) for name, check in _CHECKS.items()})


def _read_text(content: bytes, classes: int) -> torch.Tensor:
    from safetensors.torch import load

    try:
        tensors = load(content)
    except Exception as problem:  # a damaged file ends in exceptions of the library's own
        raise Error(f"{TEXT} cannot be read ({shown(str(problem))})") from None
    text = tensors.get(FEATURES)
    if text is None or len(tensors) > 1:
        raise Error(f"{TEXT} must hold {FEATURES!r} and nothing else")
    if text.dtype != torch.float32 or text.ndim != 2 or len(text) != classes or not text.numel():
        raise Error(
            f"{FEATURES} is {str(text.dtype).removeprefix('torch.')} of shape {list(text.shape)}: "
            f"it must be float32 with one row for each of {classes} classes"
        )
    if not bool(((text.norm(dim=1) - 1).abs() <= UNIT_TOLERANCE).all()):  # false for what is not finite
        raise Error(f"the rows of {FEATURES} are not all of length one")
    return text


# --- the fields of the description --------------------------------------------------------------------------------------
def _fields(value: Any, names: list[str], what: str) -> dict[str, Any]:
    content = _object(what, value)
    for name in names:
        if name not in content:
            raise Error(f"the {what} is incomplete: `{name}` is not in it")
    for name in content:
        if name not in names:
            raise Error(f"the {what} has an entry {shown(name)}, which this version does not know")
    return content


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_ENTRIES:
        raise Error(f"`{name}` is a JSON object, not {shown(value)}")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_NAME and is_unicode(value)


def _text(name: str, value: Any) -> str:
    if not _is_text(value):
        raise Error(f"`{name}` takes Unicode text of at most {MOST_NAME:,} characters, not {shown(value)}")
    text: str = value
    return text


def _hash(name: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise Error(f"`{name}` is 64 hexadecimal digits, not {shown(value)}")
    return value


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not -1e38 < value < 1e38:  # false for NaN
        raise Error(f"`{name}` is a finite number, not {shown(value)}")
    return float(value)


def _positive(name: str, value: Any) -> float:
    number = _number(name, value)
    if number <= 0:
        raise Error(f"`{name}` is more than 0, not {shown(value)}")
    return number


def _difference(name: str, value: Any) -> float:
    number = _number(name, value)
    if number < 0:
        raise Error(f"`{name}` is at least 0, not {shown(value)}")
    return number


def _pixels(name: str, value: Any) -> int:
    if type(value) is not int or not 1 <= value <= MOST_PIXELS:
        raise Error(f"`{name}` is a whole number from 1 to {MOST_PIXELS:,}, not {shown(value)}")
    return value


def _channels(name: str, value: Any, one: Callable[[str, Any], float]) -> tuple[float, float, float]:
    if not isinstance(value, list) or len(value) != 3:
        raise Error(f"`{name}` is three numbers, one a channel, not {shown(value)}")
    red, green, blue = (one(name, number) for number in value)
    return red, green, blue


def _preprocessing(name: str, value: Any) -> Preprocessing:
    found = _fields(value, [field.name for field in dataclasses.fields(Preprocessing)], name)
    if found["fit"] not in ("crop", "square"):
        raise Error(f"`fit` is crop or square, not {shown(found['fit'])}")
    if type(found["resample"]) is not int or not 0 <= found["resample"] <= 5:
        raise Error(f"`resample` is the number of a filter of Pillow, 0 to 5, not {shown(found['resample'])}")
    return Preprocessing(
        _pixels("image_size", found["image_size"]),
        _channels("mean", found["mean"], _number),
        _channels("std", found["std"], _positive),
        found["fit"],
        None if found["resize"] is None else _pixels("resize", found["resize"]),
        found["resample"],
    )


def _precision(name: str, value: Any) -> str:
    if value not in PRECISIONS:
        raise Error(f"`{name}` is one of {', '.join(PRECISIONS)}, not {shown(value)}")
    return str(value)


def _templates(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Error(f"`{name}` is a list of texts, not {shown(value)}")
    return checked_templates(value) if value else ()


def _names(name: str, value: Any) -> tuple[str, ...]:
    return checked_names(value) if value != [] else ()


def _texts(name: str, value: Any) -> dict[str, str]:
    return {_text(name, key): _text(name, text) for key, text in _object(name, value).items()}


def _defaults(name: str, value: Any) -> dict[str, dict[str, Any]]:
    found = {_text(name, owner): _object(name, options) for owner, options in _object(name, value).items()}
    for options in found.values():
        for option, given in options.items():
            _text(name, option)
            for one in given if isinstance(given, list) else [given]:
                if not (_is_text(one) or isinstance(one, bool | None) or (type(one) in (int, float) and _finite(one))):
                    raise Error(f"`{name}` holds options and their values, and {shown(one)} is none")
    return found


def _finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def _file_hashes(name: str, value: Any) -> dict[str, str]:
    return {file: _hash(name, digest) for file, digest in _fields(value, list(FILES), name).items()}


# By name, in the order of the fields of `Exported`.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "backbone": _text,
    "weight_hash": _hash,
    "precision": _precision,
    "preprocessing": _preprocessing,
    "logit_scale": _positive,
    "classes": lambda _, value: checked_names(value),
    "templates": _templates,
    "defaults": _defaults,
    "remark": _text,
    "unfamiliar": _names,
    "largest_difference": _difference,
    "versions": _texts,
    "files": _file_hashes,
}
