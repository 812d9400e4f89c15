"""Read the tensors of a `torch.save` file without running any code from the file.

`torch.load(weights_only=True)` with stand-ins in `torch.serialization.safe_globals` is not sufficient:

- torch lists the globals that need a stand-in for zip archives only, not for the older format of public checkpoints;
- stand-ins apply to the whole process, including other threads;
- hashing a dictionary key of nested tuples takes exponential time;
- a compressed archive can expand to any size.

This reader accepts tensors and plain containers and replaces every other object with an inert stand-in.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import torch

from ..core.errors import translate_errors
from ..io import open_regular

_KINDS = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
# First two pickled numbers of the format that preceded zip archives.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_ENCRYPTED = 1


def read_checkpoint(file: Path) -> torch.Tensor | dict[str, torch.Tensor]:
    """Return the tensors of `state_dict` or of the stored dictionary by name, or the only tensor of the file."""
    message = f"{file} cannot be read as a PyTorch checkpoint: {{reason}}."
    with open_regular(file, "checkpoint") as stream, translate_errors("checkpoint-unreadable", message):
        content, storage = _from_zip(stream) if stream.read(4) == b"PK\3\4" else _from_pickles(stream)
        if isinstance(content, _Stored):
            return content.tensor(storage)
        state = content.get("state_dict", content) if isinstance(content, dict) else None
        if not isinstance(state, dict):
            raise ValueError("it has no `state_dict`")
        entries = {name: stored for name, stored in state.items() if isinstance(name, str)}
        return {name: item.tensor(storage) for name, item in entries.items() if isinstance(item, _Stored)}


@dataclass(frozen=True)
class _Storage:
    """A sequence of numbers of one type, stored in the file under `key`."""

    key: str
    dtype: torch.dtype
    length: int


# Reads the numbers of a storage.
_Reader = Callable[[_Storage], torch.Tensor]


@dataclass(frozen=True)
class _Stored:
    """Description of a tensor in the file."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def tensor(self, read: _Reader) -> torch.Tensor:
        """Return the tensor. Raise an error if it exceeds its storage or uses a number twice."""
        count, numbers = math.prod(self.size), self.storage.length
        last = self.offset + sum((size - 1) * step for size, step in zip(self.size, self.stride, strict=True))
        if min(self.offset, *self.size, *self.stride, 0) < 0 or count > numbers or (count and last >= numbers):
            raise ValueError(f"a tensor of shape {list(self.size)} does not fit in its storage of {numbers} numbers")
        return read(self.storage).as_strided(self.size, self.stride, self.offset)


class _Inert:
    """Stand-in for objects that are not tensors, such as schedulers, optimisers and configurations."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        """Ignore the value. Unpickling calls `append` on objects with a list interface."""


class _Dictionary(_Inert):
    """Stand-in for `OrderedDict`."""

    def __call__(self, *arguments: Any) -> Any:
        return self if arguments else {}


class _Kind(_Inert):
    """Stand-in for a storage class."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype


class _Tensor(_Inert):
    """Stand-in for the function that builds a tensor from a storage."""

    def __call__(self, storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> Any:
        numbers = (offset, *size, *stride)
        if not isinstance(storage, _Storage) or not all(type(number) is int for number in numbers):
            return self
        return _Stored(storage, offset, tuple(size), tuple(stride))


class _Parameter(_Inert):
    """Stand-in for the function that builds a parameter from a tensor."""

    def __call__(self, tensor: Any, *others: Any) -> Any:
        return tensor


# Handlers of the pickle instructions by opcode.
_LOADS: dict[int, Callable[[Any], None]] = dict(pickle._Unpickler.dispatch)


def _refused(unpickler: Any) -> None:
    raise ValueError("it has sets or byte arrays, which no checkpoint needs")


def _with_plain_keys(code: bytes) -> Callable[[Any], None]:
    """Restrict dictionary keys to strings and numbers, because hashing nested tuples may not terminate."""
    load = _LOADS[code[0]]

    def checked(unpickler: Any) -> None:
        waiting = unpickler.stack[-2:-1] if code == pickle.SETITEM else unpickler.stack[::2]
        if not all(isinstance(key, str | int | float | None) for key in waiting):
            raise ValueError("a key is neither a text nor a number")
        load(unpickler)

    return checked


# Instructions whose time or memory use is controlled by the file.
_CHECKED = {
    **dict.fromkeys((pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET), _refused),
    **{code: _with_plain_keys(code) for code in (pickle.SETITEM, pickle.SETITEMS, pickle.DICT)},
}


class _Unpickler(pickle._Unpickler):
    """Unpickler that builds plain containers and tensor descriptions, with new stand-ins for each use.

    The base class is the Python implementation. The C implementation allocates memory for the largest memo index, which
    a file of a few bytes can set to gigabytes.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **_LOADS,
        **{code[0]: load for code, load in _CHECKED.items()},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return _Dictionary()
        if module == "torch" and name in _KINDS:
            return _Kind(_KINDS[name])
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor()
        return _Parameter() if (module, name) == ("torch._utils", "_rebuild_parameter") else _Inert

    def persistent_load(self, saved: Any) -> Any:
        # The device is ignored. Storages that are views of other storages (files from 2017) are not supported.
        word, kind, key, _, length, *part = saved
        if word != "storage" or not isinstance(kind, _Kind) or any(part):
            return None
        if type(key) is not str or type(length) is not int or length < 0:
            raise ValueError("a storage has no valid name or length")
        return _Storage(key, kind.dtype, length)


def _from_zip(stream: IO[bytes]) -> tuple[Any, _Reader]:
    archive = zipfile.ZipFile(stream)
    names = archive.namelist()
    if any(name.endswith("constants.pkl") or "/code/" in f"/{name}" for name in names):
        raise ValueError("it is a TorchScript archive, which is a program; give a file of `torch.save`")
    pickles = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError(f"it has {len(pickles)} files data.pkl instead of one")
    folder = pickles[0].removesuffix("data.pkl")
    # Overlapping or compressed entries would allow a small file to exhaust the memory.
    left = stream.seek(0, io.SEEK_END)

    def content(name: str) -> bytes:
        nonlocal left
        entry = archive.getinfo(folder + name)
        if entry.flag_bits & _ENCRYPTED or entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{entry.filename} is encrypted or compressed, which `torch.save` never does")
        left -= entry.file_size
        if left < 0:
            raise ValueError("its parts are larger than the file")
        return archive.read(entry)

    if folder + "byteorder" in names and content("byteorder") != sys.byteorder.encode():
        raise ValueError("it was written on a machine of another byte order")
    return _Unpickler(io.BytesIO(content("data.pkl")), encoding="utf-8").load(), _once(
        lambda storage: content(f"data/{storage.key}")
    )


def _from_pickles(stream: IO[bytes]) -> tuple[Any, _Reader]:
    """Read the format that preceded zip archives: magic number, version, system, content, keys, storages."""
    stream.seek(0)
    whole = io.BytesIO(stream.read())
    if whole.getvalue()[257:262] == b"ustar":
        raise ValueError("it is a tar archive of PyTorch before 2017; save it again with a newer version")
    storages: dict[str, _Storage] = {}

    class Noting(_Unpickler):
        def persistent_load(self, saved: Any) -> Any:
            storage = super().persistent_load(saved)
            if storage is not None:
                storages[storage.key] = storage
            return storage

    magic, version, system, content, keys = (Noting(whole, encoding="utf-8").load() for _ in range(5))
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("it does not start like a file of `torch.save`")
    if isinstance(system, dict) and system.get("little_endian") is not (sys.byteorder == "little"):
        raise ValueError("it was written on a machine of another byte order")
    places: dict[str, bytes] = {}
    for key in keys if isinstance(keys, list) else ():
        (length,) = struct.unpack("<q", whole.read(8))
        if key not in storages or length != storages[key].length:
            raise ValueError(f"the storage {key!r} does not fit its tensors")
        places[key] = whole.read(length * storages[key].dtype.itemsize)
    return content, _once(lambda storage: places[storage.key])


def _once(content: Callable[[_Storage], bytes]) -> _Reader:
    """Return a reader that reads each storage once."""
    known: dict[_Storage, torch.Tensor] = {}

    def read(storage: _Storage) -> torch.Tensor:
        if storage not in known:
            data = bytearray(content(storage))
            if len(data) != storage.length * storage.dtype.itemsize:
                raise ValueError(
                    f"the storage {storage.key!r} has {len(data)} bytes instead of {storage.length} numbers"
                )
            known[storage] = (
                torch.frombuffer(data, dtype=storage.dtype) if data else torch.empty(0, dtype=storage.dtype)
            )
        return known[storage]

    return read
