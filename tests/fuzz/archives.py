"""Damaged and malicious archives. Each one is unpacked in every supported format."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

from ostta import Error
from ostta.data_tools.addresses import Form
from ostta.data_tools.unpack import unpack

from .engine import OUT, Kind, PromiseError
from .mutate import damaged

NAMES = (
    "set/a.txt", "set/deep/b.txt", "set", "set/", "set/a.txt/c", "other/x", "./set/a.txt", "../x", "/x", "set/../../x",
    "set\\x",
    "C:x", "C:/x", "", ".", "..", "set/\0x", "set/" + "x" * 300, "set/" + "y/" * 400 + "z", "set/é", "set/\ud800",
    "set/con", "set/ ",
    "set/a\nb", "//x", "set//a.txt", "~/x",
)  # fmt: skip
FORMS: tuple[Form, ...] = ("zip", "tar", "gz")
PIECES = (b"", b"text\n", bytes(2000), bytes(range(256)) * 40, b"\0" * 300_000)


class Archives(Kind):
    """No file may be written outside the folder, and a failure must leave the folder unchanged."""

    def __init__(self) -> None:
        rng = random.Random(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a name that is twice in an archive
            self.seeds = [make(rng, NAMES[:3]) for _ in range(8) for make in (_zip, _tar, _gz)]

    def mutation(self, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            content = rng.choice((_zip, _zip, _tar, _tar, _gz))(rng, NAMES)
            if rng.random() < 0.5:
                return content
        else:
            content = rng.choice(self.seeds)
        content = damaged(content, rng, self.seeds)
        return _recounted(content) if rng.random() < 0.3 else content

    def place(self, content: bytes, folder: Path) -> None:
        super().place(content, folder)
        for form in FORMS:
            (folder / OUT / form).mkdir(parents=True)

    def target(self, folder: Path) -> None:
        refused: list[Error] = []
        for form in FORMS:
            root = folder / OUT / form
            try:
                unpack(folder / "input", form, root, ("set/file",) if form == "gz" else ("set",))
            except Error as problem:
                refused.append(problem)
                if any(root.iterdir()):
                    raise PromiseError("a refused archive left something behind") from problem
                continue
            if [path.name for path in root.iterdir()] != ["set"]:
                raise PromiseError("an archive made something else than what was asked for")
            if any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in root.rglob("*")):
                raise PromiseError("an archive made a link or a device")
        if len(refused) == len(FORMS):
            raise refused[0]


def _zip(rng: random.Random, names: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((0, 8, 12, 14))) as made:
        for _ in range(rng.randrange(5)):
            entry = zipfile.ZipInfo(rng.choice(names).replace("\ud800", "?") or "x")
            entry.compress_type = rng.choice((0, 8, 12, 14))
            entry.external_attr = rng.choice((0, 0o644 << 16, 0o120777 << 16, 0o10644 << 16, 0xFFFFFFFF))
            made.writestr(entry, rng.choice(PIECES))
    content = bytearray(buffer.getvalue())
    if names is NAMES and rng.random() < 0.5:
        _strange_entry(content, rng)
    return bytes(content)


def _strange_entry(content: bytearray, rng: random.Random) -> None:
    """Encrypt an entry, or give it an unknown compression method or a wrong size, in both of its headers."""
    field, width, value = rng.choice(((6, "<H", 1), (8, "<H", 99), (8, "<H", 6), (22, "<I", 2**32 - 1), (18, "<I", 7)))
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        place = content.find(mark)
        if place >= 0 and rng.random() < 0.9:
            struct.pack_into(width, content, place + field + shift, value)


def _tar(rng: random.Random, names: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    mode: Any = rng.choice(("w:", "w:", "w:gz", "w:bz2", "w:xz"))
    with tarfile.open(fileobj=buffer, mode=mode, format=rng.choice((0, 1, 2))) as made:
        for _ in range(rng.randrange(5)):
            entry = tarfile.TarInfo(rng.choice(names))
            piece = rng.choice(PIECES)
            entry.size = len(piece)
            if names is NAMES and rng.random() < 0.3:
                entry.type = rng.choice(
                    (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", b"x", b"L", b"K", b"g", b"?")
                )
                entry.linkname = rng.choice(("set/a.txt", "/etc/hostname", "../x", ""))
                entry.pax_headers = {"path": rng.choice(names), "size": rng.choice(("1", "-1", "x", "9" * 30))}
            try:
                made.addfile(entry, io.BytesIO(piece))
            except (UnicodeError, ValueError):
                continue  # a name that this form of tar cannot hold
    return buffer.getvalue()


def _gz(rng: random.Random, names: tuple[str, ...]) -> bytes:
    return gzip.compress(rng.choice(PIECES)) + rng.choice((b"", b"", b"\0" * 20, gzip.compress(b"more"), b"rest"))


def _recounted(content: bytes) -> bytes:
    """Recompute the checksum of the first tar header, so that the damage reaches the code behind that check."""
    if len(content) < 512 or content[257:262] != b"ustar":
        return content
    header = bytearray(content[:512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content[512:]
