"""CCC shards (serial_00000.tar and so on) in the webdataset layout, read in order."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from PIL import Image

from ...core.errors import translate_errors
from ...io import open_regular
from .base import LabelledImages, invalid, read_part

_IMAGE = "input.jpg"
_LABEL = "output.cls"
_BLOCK = 512


class _Place(NamedTuple):
    """Position of the bytes of one image."""

    shard: int
    offset: int
    size: int


def read_shards(folder: Path, limit: int | None) -> LabelledImages:
    """Index the first `limit` images, by default all. Only headers and labels are read, not the images."""
    shards = _shards(folder)
    # A flat array with three numbers per image saves memory: a complete sequence has 7.5 million images.
    places, labels = array("q"), array("q")
    for number, shard in enumerate(shards):
        for place, label in _index(number, shard):
            places.extend(place)
            labels.append(label)
            if len(labels) == limit:
                break
        if len(labels) == limit:
            break
    if not labels:
        raise invalid(f"The shards in '{folder}' have no images.")
    table = np.array(places, np.int64).reshape(-1, 3)

    def read(i: int) -> Image.Image:
        place = _Place(*(int(value) for value in table[i]))
        with open_regular(shards[place.shard], "shard") as file:
            file.seek(place.offset)
            content = file.read(place.size)
        return read_part(content, f"Image {i} of '{folder}', in {shards[place.shard].name}")

    return LabelledImages(np.array(labels, np.int64), read)


def _shards(folder: Path) -> list[Path]:
    shards = sorted(folder.glob("serial_*.tar"))
    for number, shard in enumerate(shards):
        if shard.name != f"serial_{number:05d}.tar":
            raise invalid(f"'{folder}' has {shard.name} but no serial_{number:05d}.tar: the sequence must have no gap.")
    if not shards:
        raise invalid(f"'{folder}' has no shards: the first should be serial_00000.tar.")
    return shards


def _index(number: int, shard: Path) -> Iterator[tuple[_Place, int]]:
    """Yield the position and label of each sample: consecutive members with the same name before the first dot."""
    key, place, label = "", None, None
    message = f"The shard '{shard}' cannot be read, it may be damaged or truncated: {{reason}}."
    with translate_errors("dataset-invalid", message, OSError, ValueError), open_regular(shard, "shard") as file:
        for name, offset, size in _members(file):
            stem, _, field = name.rpartition("/")[2].partition(".")
            if stem != key:
                key, place, label = stem, None, None
            if field == _IMAGE:
                place = _Place(number, offset, size)
            elif field == _LABEL:
                file.seek(offset)
                label = int(file.read(size))
            if place is not None and label is not None:
                yield place, label
                place = label = None


def _members(file: IO[bytes]) -> Iterator[tuple[str, int, int]]:
    """Yield the name, offset and size of each member of a tar archive.

    The reader of the standard library is several times slower (half an hour for a complete sequence) and accepts
    archives that were truncated between two members.
    """
    length = file.seek(0, io.SEEK_END)
    start = 0
    while True:
        file.seek(start)
        header = file.read(_BLOCK)
        if header == bytes(_BLOCK):
            return
        if len(header) < _BLOCK or header[257:262] != b"ustar":
            raise ValueError(f"there is no header at byte {start:,}")
        size = int(header[124:136].rstrip(b"\0 "), 8)
        offset = start + _BLOCK
        start = offset + -(-size // _BLOCK) * _BLOCK
        if start > length:
            raise ValueError(f"it ends at byte {length:,}, in the middle of a file")
        yield header[:100].rstrip(b"\0").decode(), offset, size
