"""Feature files: image features with their labels, and the embeddings of class names and words, in one npz file.

    features          [N, D] float16 or float32, unit rows: one row for each image
    labels            [N] integers: the class of each image, -1 for an unknown image
    classes           [C] strings: the class names
    class_embeddings  [C, D] float16 or float32, unit rows
    words             [W] strings: names of things that are not classes (optional)
    word_embeddings   [W, D] float16 or float32, unit rows (optional)
    centre            [D] float32, the prior centre of the backbone: the mean unit feature of other images (optional)
    logit_scale       one positive number, the logit scale of the backbone
    metadata          one string, the JSON form of `Metadata`, with the SHA-256 of every other array

`ostta features extract` writes a feature file. `features:FILE` names it as a data set and as a backbone. Reading
executes no code: arrays of Python objects are rejected, and every array is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .core.checks import UNIT_TOLERANCE, shown
from .core.errors import translate_errors
from .core.types import Error
from .io import (
    absolute_path,
    check_regular,
    data_folder,
    file_in_one_step,
    is_unicode,
    make_folder,
    open_regular,
    parse_json,
)

PREFIX = "features:"
SUFFIX = ".npz"
# Folder of `features:NAME` in the data folder.
FOLDER = "features"
FORMAT = 1
WHAT = "feature file"

_TEXTS = ("classes", "words")
_MATRICES = ("features", "class_embeddings", "word_embeddings")
_OPTIONAL = frozenset(["words", "word_embeddings", "centre"])
_ARRAYS = (*_MATRICES, *_TEXTS, "labels", "logit_scale", "centre")
# Features hardly compress, so a file that expands by more than this factor is damaged or malicious.
_MOST_GROWTH = 32

Array = NDArray[Any]


@dataclass(frozen=True)
class Metadata:
    """The origin of a feature file.

    backbone, weight_hash: the encoder and the SHA-256 of its weights; the hash is empty if it is unknown.
    templates:             prompt templates of the class embeddings; empty if the embeddings were given, not computed.
    defaults, remark:      from the backbone: recommended options by owner, and a sentence for every figure.
    unfamiliar:            classes that the backbone does not recognise.
    sets:                  the data sets in the file: name, side, number of images, origin and note.
    """

    backbone: str
    weight_hash: str = ""
    templates: tuple[str, ...] = ()
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    remark: str = ""
    unfamiliar: tuple[str, ...] = ()
    sets: tuple[Mapping[str, Any], ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """The checked content of a feature file. `hash` is a SHA-256 of the whole content; the arrays are read-only."""

    path: Path
    features: Array
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    class_embeddings: NDArray[np.float32]
    words: tuple[str, ...]
    word_embeddings: NDArray[np.float32]
    logit_scale: float
    metadata: Metadata
    hash: str
    centre: NDArray[np.float32] | None

    @property
    def width(self) -> int:
        """The length of a feature."""
        return int(self.features.shape[1])

    def require_encoder(self, name: str, backbone: Any, features_suffice: bool, method: str) -> None:
        """Raise an Error unless an adapter on `backbone` can use these features; `name` is their name in the message.

        Two encoders are the same if their weight hashes are equal or, if a hash is unknown, if their names are equal.
        """
        own = self.metadata
        encoder, weights = getattr(backbone, "encoder", (backbone.id, backbone.weight_hash))
        same = own.weight_hash == weights if own.weight_hash and weights else own.backbone == encoder
        if not same or self.width != backbone.feature_width:
            raise Error(
                f"'{name}' has features of {own.backbone}, which the backbone {backbone.id} does not compute: "
                f"use --backbone {name}, or another file with features of that backbone.",
                code="features-other-backbone",
            )
        if not features_suffice:
            raise Error(
                f"{method} needs the images, and '{name}' has only features: use a method that needs one view and "
                "trains nothing in the image tower, such as zero_shot, tda or dpe.",
                code="image-missing",
            )


def features_path(name: str, root: Path | None = None) -> Path:
    """Return the path of a feature file: `features:FILE.npz` is a path, `features:NAME` is DATA/features/NAME.npz.

    >>> features_path("features:cats", Path("/data")).as_posix()
    '/data/features/cats.npz'
    """
    path = name.removeprefix(PREFIX)
    if path.endswith(SUFFIX):
        return absolute_path(Path(path))
    folder = data_folder(root)
    if folder is None:
        raise Error(
            f"'{name}' is a file in the folder of your data sets: give that folder as --data or as OSTTA_DATA, or the "
            f"path of a file, which ends in {SUFFIX}.",
            code="data-folder-missing",
        )
    return absolute_path(folder) / FOLDER / f"{path}{SUFFIX}"


def placed_features(name: str, root: Path | None = None) -> str:
    """Return `name` with the absolute path of its feature file; other names are returned unchanged.

    >>> placed_features("features:cats", Path("/data")), placed_features("embedded")
    ('features:/data/features/cats.npz', 'embedded')
    """
    return f"{PREFIX}{features_path(name, root)}" if name.startswith(PREFIX) else name


def read_features(path: Path | str) -> FeatureFile:
    """Read and check a feature file; raise an Error if it is damaged.

    >>> read_features("nowhere.npz")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ostta.core.types.Error: There is no feature file 'nowhere.npz': ...
    """
    path = Path(path)
    if not os.path.lexists(path):
        raise Error(
            f"There is no {WHAT} '{path}': `ostta features extract` writes such files, and tools/real_features.py "
            "writes those of the suites decide/real and decide/order.",
            code="file-not-found",
        )
    check_regular(path, WHAT)
    status = os.stat(path)
    return _read(path, status.st_size, status.st_mtime_ns)


def write_features(
    path: Path,
    features: Array,
    labels: Array,
    classes: Sequence[str],
    class_embeddings: Array,
    logit_scale: float,
    metadata: Metadata,
    words: Sequence[str] = (),
    word_embeddings: Array | None = None,
    centre: Array | None = None,
) -> FeatureFile:
    """Write a feature file in one step; raise an Error if the content is not that of a feature file."""
    if path.suffix != SUFFIX:
        raise Error(f"The name of a {WHAT} must end in {SUFFIX}, and '{path}' does not.", code="file-name-invalid")
    arrays: dict[str, Array] = {
        "features": np.ascontiguousarray(features),
        "labels": np.asarray(labels, np.int64),
        "classes": np.array(classes, np.str_),
        "class_embeddings": np.ascontiguousarray(class_embeddings),
        "logit_scale": np.asarray(logit_scale, np.float64),
    }
    if words:
        arrays |= {"words": np.array(words, np.str_), "word_embeddings": np.ascontiguousarray(word_embeddings)}
    if centre is not None:
        arrays["centre"] = np.asarray(centre, np.float32)
    content = {"format": FORMAT, **asdict(metadata), "sha256": {name: _hash(array) for name, array in arrays.items()}}
    arrays["metadata"] = np.asarray(json.dumps(content, sort_keys=True))
    # Invalid content must not replace a file.
    with translate_errors("features-invalid", f"The {WHAT} '{path}' cannot be written: {{reason}}."):
        _checked(path, arrays)
    make_folder(path.parent)
    with file_in_one_step(path) as partial, open(partial, "xb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return read_features(path)


# --- reading ----------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=2)
def _read(path: Path, size: int, changed: int) -> FeatureFile:
    """Read a file, which a run needs up to three times. `size` and `changed` are part of the cache key."""
    with _reading(path):
        return _checked(path, _arrays(path))


def _arrays(path: Path) -> dict[str, Array]:
    with open_regular(path, WHAT) as file, zipfile.ZipFile(file) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        size = sum(member.file_size for member in members.values())
        limit = _MOST_GROWTH * os.fstat(file.fileno()).st_size + 2**16
        _require(size <= limit, "it is far larger than its size on the disk")
        _require(len(members) == len(archive.infolist()), "it has an array twice")
        for name in (*_ARRAYS, "metadata"):
            _require(name in members or name in _OPTIONAL, f"the array `{name}` is missing")
        _require(("words" in members) == ("word_embeddings" in members), "it has `words` without `word_embeddings`")
        arrays = {}
        for name, member in members.items():
            if name in (*_ARRAYS, "metadata"):
                with archive.open(member) as content:
                    arrays[name] = _array(content, name, member.file_size)
        return arrays


def _array(content: IO[bytes], name: str, size: int) -> Array:
    version = np.lib.format.read_magic(content)
    _require(version in ((1, 0), (2, 0)), f"the array `{name}` has an unknown version")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(content)
    _require(dtype.kind in "fiuU", f"the array `{name}` is of type {dtype}")
    _require(all(isinstance(length, int) and length >= 0 for length in shape), f"the array `{name}` has no valid shape")
    count = math.prod(shape)
    _require(count * dtype.itemsize == size - content.tell(), f"the array `{name}` is truncated")
    # A copy, because `read` also checks the CRC of the member.
    flat = np.frombuffer(content.read(), dtype) if count and dtype.itemsize else np.zeros(count, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _checked(path: Path, arrays: Mapping[str, Array]) -> FeatureFile:
    metadata, hashes, digest = _metadata(arrays["metadata"])
    for name in _ARRAYS:
        if name in arrays:
            _require(hashes.get(name) == _hash(arrays[name]), f"the SHA-256 of `{name}` is not the stored one")
    features = arrays["features"]
    _require(features.ndim == 2 and features.size > 0, f"`features` has the shape {list(features.shape)}")
    for name in _MATRICES:
        if name in arrays:
            _check_matrix(name, arrays[name], features.shape[1])
    texts = {name: _texts(name, arrays[name]) for name in _TEXTS if name in arrays}
    for name, rows in (("classes", "class_embeddings"), ("words", "word_embeddings")):
        if name in texts:
            _require(len(texts[name]) == len(arrays[rows]), f"`{name}` and `{rows}` differ in length")
    labels = arrays["labels"]
    _require(labels.dtype.kind == "i" and labels.shape == (len(features),), "`labels` needs one integer a row")
    count = len(texts["classes"])
    _require(bool(((labels >= -1) & (labels < count)).all()), f"labels must be from -1 to {count - 1}")
    scale = arrays["logit_scale"]
    _require(scale.dtype.kind == "f" and scale.shape == (), "`logit_scale` is not a number")
    _require(math.isfinite(float(scale)) and float(scale) > 0, f"`logit_scale` is {float(scale)}, not positive")
    centre = arrays.get("centre")
    if centre is not None:
        _require(centre.dtype == np.float32, f"`centre` is of type {centre.dtype}, not float32")
        _require(centre.shape == features.shape[1:], f"`centre` has the shape {list(centre.shape)}")
        _require(bool(np.isfinite(centre).all()), "`centre` is not finite")
    words = arrays.get("word_embeddings", np.zeros((0, features.shape[1])))
    return FeatureFile(
        path,
        features,
        labels.astype(np.int64),
        texts["classes"],
        arrays["class_embeddings"].astype(np.float32),
        texts.get("words", ()),
        words.astype(np.float32),
        float(scale),
        metadata,
        digest,
        centre,
    )


def _reading(path: Path) -> AbstractContextManager[None]:
    """Convert all exceptions inside a block to the error of a damaged file.

    zipfile and numpy raise many types of exceptions for damaged content.
    """
    message = f"The {WHAT} '{path}' is damaged or was not written by ostta ({{reason}}): extract it again."
    return translate_errors("features-damaged", message)


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


def _check_matrix(name: str, rows: Array, width: int) -> None:
    _require(rows.dtype in (np.float16, np.float32), f"`{name}` is of type {rows.dtype}, not float16 or float32")
    _require(rows.ndim == 2 and rows.shape[1] == width, f"`{name}` has the shape {list(rows.shape)}, not [.., {width}]")
    for start in range(0, len(rows), 4096):
        block = rows[start : start + 4096].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            wrong = ~(np.abs(np.linalg.norm(block, axis=1) - 1) <= UNIT_TOLERANCE)
        if wrong.any():
            row = start + int(np.flatnonzero(wrong)[0])
            raise ValueError(f"row {row} of `{name}` is not finite or not of unit length")


def _texts(name: str, array: Array) -> tuple[str, ...]:
    _require(array.dtype.kind == "U" and array.ndim == 1, f"`{name}` is not a list of texts")
    texts = tuple(map(str, array.tolist()))
    _require(all(text.strip() and is_unicode(text) for text in texts), f"`{name}` has an empty or invalid text")
    _require(len(set(texts)) == len(texts), f"`{name}` has a duplicate name")
    return texts


def _metadata(array: Array) -> tuple[Metadata, Mapping[str, Any], str]:
    """Return the metadata, the SHA-256 of each array, and the SHA-256 of the metadata text."""
    _require(array.dtype.kind == "U" and array.shape == (), "`metadata` is not a text")
    text = str(array)
    try:
        content = parse_json(text.encode("utf-8"))
    except ValueError:
        raise ValueError("`metadata` is not JSON") from None
    _require(isinstance(content, dict), "`metadata` is not a JSON object")
    number = content.pop("format", None)
    _require(number == FORMAT, f"its format is {shown(number)}, and this version reads format {FORMAT}")
    hashes = content.pop("sha256", None)
    _require(isinstance(hashes, dict), "`metadata` has no hashes")
    fields = asdict(Metadata(""))
    _require(content.keys() == fields.keys(), f"`metadata` must have the fields {', '.join(fields)}")
    for name, example in fields.items():
        kind = list if isinstance(example, tuple) else type(example)
        _require(isinstance(content[name], kind), f"`{name}` in `metadata` is {shown(content[name])}")
    for name in ("templates", "unfamiliar"):
        _require(all(isinstance(text, str) for text in content[name]), f"`{name}` in `metadata` is not a list of texts")
    _require(all(isinstance(each, dict) for each in content["defaults"].values()), "`defaults` has no options")
    _require(all(isinstance(each, dict) for each in content["sets"]), "`sets` in `metadata` is not a list of objects")
    for name in ("backbone", "weight_hash", "remark"):
        _require(is_unicode(content[name]), f"`{name}` in `metadata` is not valid text")
    lists = {name: tuple(content[name]) for name, example in fields.items() if isinstance(example, tuple)}
    return Metadata(**{**content, **lists}), hashes, hashlib.sha256(text.encode("utf-8")).hexdigest()


def _hash(array: Array) -> str:
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
