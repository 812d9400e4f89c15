"""Snapshots: state files packed for the store.

A state repeats itself: each snapshot of the guard is a copy of the window of recent features at an earlier step, and
most rows of these copies are still in the window. `pack` stores every distinct row once. `unpack` returns the state
file bit for bit.

`compact` reduces the copies of the guard further: their rows that are no longer in the window are rounded to half
precision. The state that the session continues from stays exact; only a rollback after a restart sees the rounded rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...core.errors import translate_errors
from ...state import StateCopy

MAGIC = b"ostta-snapshot-1"
GUARD = "guard/snapshots/"
# Rows of fewer bytes are not worth an index.
SHORTEST_ROW = 256
_SIZES = {"F32": 4, "F64": 8, "I32": 4, "I64": 8, "U8": 1, "F16": 2, "BF16": 2}

Bytes = npt.NDArray[np.uint8]


def compact(copy: StateCopy) -> StateCopy:
    """Round the rows to half precision that only snapshots of the guard have."""
    tensors = {name: tensor.detach().cpu() for name, tensor in copy.tensors.items()}
    current = {
        row.tobytes() for name, tensor in tensors.items() if not name.startswith(GUARD) for row in _float_rows(tensor)
    }
    for name, tensor in tensors.items():
        # Features have unit length. Other values, such as trained parameters, may lose too much.
        if not name.startswith(GUARD) or "/score/" not in name or not len(_float_rows(tensor)):
            continue
        rounded = tensor.clone()
        rows = rounded.view(-1, rounded.shape[-1])
        unshared = [place for place, row in enumerate(_float_rows(tensor)) if row.tobytes() not in current]
        values = rows[unshared]
        if bool((values.abs() <= 1).all()):
            rows[unshared] = values.half().float()
            tensors[name] = rounded
    return replace(copy, tensors=tensors)


def _float_rows(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    if tensor.dtype != torch.float32 or tensor.ndim < 2 or 4 * tensor.shape[-1] < SHORTEST_ROW:
        return np.empty((0, 0), np.float32)
    return tensor.contiguous().numpy().reshape(-1, tensor.shape[-1])


def pack(state: bytes) -> bytes:
    """Return the content of a state file with every distinct row stored once."""
    size = int.from_bytes(state[:8], "little")
    header = state[: 8 + size]
    described: dict[str, Any] = json.loads(header[8:])
    data = np.frombuffer(state, np.uint8, offset=8 + size)
    groups: dict[tuple[str, int], _Rows] = {}
    places: dict[str, npt.NDArray[np.int32]] = {}
    rest: list[bytes] = []
    for name, kind, width, begin, end in _tensors(described):
        if width < SHORTEST_ROW:
            rest.append(data[begin:end].tobytes())
        else:
            rows = groups.setdefault((kind, width), _Rows())
            places[name] = rows.add(data[begin:end].reshape(-1, width))
    parts = [header, zlib.compress(b"".join(rest), 1)]
    for (kind, _), rows in groups.items():
        parts += rows.encoded(kind == "F32")
    parts += [zlib.compress(place.tobytes(), 1) for place in places.values()]
    body = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def unpack(snapshot: bytes) -> bytes:
    """Return the state file that was packed."""
    body = snapshot[len(MAGIC) + 4 :]
    message = "The stored snapshot of this session is damaged: {reason}. Restore the store from a backup."
    with translate_errors("snapshot-damaged", message):
        if zlib.crc32(body) != int.from_bytes(snapshot[len(MAGIC) : len(MAGIC) + 4], "little"):
            raise ValueError("its checksum does not match")
        return _unpacked(body)


def _unpacked(body: bytes) -> bytes:
    parts = _parts(body)
    header, rest = next(parts), np.frombuffer(zlib.decompress(next(parts)), np.uint8)
    tensors = _tensors(json.loads(header[8:]))
    groups = {}
    for _, kind, width, _, _ in tensors:
        if width >= SHORTEST_ROW and (kind, width) not in groups:
            groups[kind, width] = _decoded([next(parts) for _ in range(5)], width)
    places = {
        name: np.frombuffer(zlib.decompress(next(parts)), np.int32)
        for name, _, width, _, _ in tensors
        if width >= SHORTEST_ROW
    }
    data = np.empty(max((end for *_, end in tensors), default=0), np.uint8)
    used = 0
    for name, kind, width, begin, end in tensors:
        if width < SHORTEST_ROW:
            data[begin:end] = rest[used : used + end - begin]
            used += end - begin
        else:
            data[begin:end] = groups[kind, width][places[name]].reshape(-1)
    return header + data.tobytes()


def _tensors(described: dict[str, Any]) -> list[tuple[str, str, int, int, int]]:
    """Return name, type, bytes of a row (0 for tensors without rows), and offsets of all tensors of a state file."""
    tensors = []
    for name, entry in described.items():
        if name == "__metadata__":
            continue
        width = _SIZES[entry["dtype"]] * entry["shape"][-1] if len(entry["shape"]) > 1 else 0
        begin, end = entry["data_offsets"]
        tensors.append((name, entry["dtype"], width if end > begin else 0, begin, end))
    return sorted(tensors, key=lambda tensor: tensor[3])


class _Rows:
    """Distinct rows in the order of their first appearance."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def add(self, rows: Bytes) -> npt.NDArray[np.int32]:
        """Return the place of each row."""
        places = self._places
        return np.array([places.setdefault(row.tobytes(), len(places)) for row in rows], np.int32)

    def encoded(self, is_float: bool) -> list[bytes]:
        """Encode a mask of the rows that half precision represents exactly, then the other rows, then these rows."""
        rows = np.frombuffer(b"".join(self._places), np.uint8).reshape(len(self._places), -1)
        fits = np.zeros(len(rows), bool)
        halves = np.empty((0, 0), np.float16)
        if is_float:
            values = rows.view(np.float32)
            with np.errstate(over="ignore"):
                small = values.astype(np.float16)
            # Compared as bytes: -0.0 equals 0.0, and NaN equals nothing.
            fits = (small.astype(np.float32).view(np.uint8) == rows).all(axis=1)
            halves = small[fits]
        return [np.packbits(fits).tobytes(), *_planes(rows[~fits], 4), *_planes(halves.view(np.uint8), 2)]


def _decoded(parts: list[bytes], width: int) -> Bytes:
    whole, halves = _joined(parts[1], parts[2], 4), _joined(parts[3], parts[4], 2)
    exact = whole.reshape(-1, width)
    small = halves.view(np.float16).astype(np.float32).view(np.uint8).reshape(-1, width)
    fits = np.unpackbits(np.frombuffer(parts[0], np.uint8), count=len(exact) + len(small)).astype(bool)
    rows = np.empty((len(fits), width), np.uint8)
    rows[~fits], rows[fits] = exact, small
    return rows


def _planes(values: Bytes, size: int) -> tuple[bytes, bytes]:
    """Return the lower bytes of all numbers, and their highest bytes (sign and most of the exponent) compressed."""
    planes = np.ascontiguousarray(values).reshape(-1, size).T
    # Single bytes repeat, but sequences of them do not.
    coder = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
    return planes[:-1].tobytes(), coder.compress(planes[-1].tobytes()) + coder.flush()


def _joined(low: bytes, high: bytes, size: int) -> Bytes:
    planes = np.frombuffer(low + zlib.decompress(high), np.uint8).reshape(size, -1)
    return np.ascontiguousarray(planes.T).reshape(-1)


def _parts(body: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(body):
        end = place + 8 + int.from_bytes(body[place : place + 8], "little")
        yield body[place + 8 : end]
        place = end
