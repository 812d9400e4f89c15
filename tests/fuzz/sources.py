"""Damaged videos, archives, lists and streams of images, read as sources from the start and from the middle."""

from __future__ import annotations

import io
import random
import tarfile
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path

import av  # noqa: F401  loaded before any child is made

from helpers.cases import images
from helpers.videos import video
from ostta import Error
from ostta.data.images import read_image
from ostta.sources import open as open_source
from ostta.sources.addresses import multipart_images

from .engine import Kind, PromiseError
from .mutate import damaged

FORMS = {
    "a.mp4": ("libx264", {"g": "4", "bf": "2"}),
    "a.mkv": ("libx264", {"g": "4", "bf": "2"}),
    "a.ts": ("mpeg2video", {"g": "4", "bf": "2"}),
    "a.avi": ("mjpeg", {}),
    "b.avi": ("mpeg4", {"g": "4", "bf": "2"}),
}
FRAMES, MOST = 12, 40


class Sources(Kind):
    """The first byte selects the name of the file that the other bytes are written to."""

    # Frames of up to 64 megapixels are decoded, and decoders hold several.
    memory = 2**31

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.seeds = {
                name: video(Path(folder, name), codec, frames=FRAMES, **options).read_bytes()
                for name, (codec, options) in FORMS.items()
            }
        self.seeds["a.tar"] = _archive()
        self.seeds["a.txt"] = b"a.png\nb.png\n\nnone/c.png\n"
        self.seeds["stream"] = _stream()
        self.names = sorted(self.seeds)

    def mutation(self, rng: random.Random) -> bytes:
        number = rng.randrange(len(self.names))
        content = self.seeds[self.names[number]]
        return bytes([number]) + damaged(content, rng, [content, self.seeds[rng.choice(self.names)]])

    def place(self, content: bytes, folder: Path) -> None:
        number = content[0] % len(self.names) if content else 0
        (folder / self.names[number]).write_bytes(content[1:])

    def target(self, folder: Path) -> None:
        (path,) = folder.iterdir()
        if path.name == "stream":
            for content in multipart_images(io.BytesIO(path.read_bytes()), b"frame", 1 << 20):
                with suppress(Error):
                    read_image(content)
            return
        keys = []
        for item in islice(open_source(path), MOST):
            keys.append(item.key)
            with suppress(Error):
                read_image(item.require_image())
        if path.suffix in (".mp4", ".mkv", ".avi", ".ts") and len(keys) > 2:
            seen = set(keys[: len(keys) // 2])
            again = [item.key for item in islice(open_source(path, skip=seen.__contains__), MOST - len(seen))]
            if again != keys[len(keys) // 2 :]:
                raise PromiseError(f"Going on gives {len(again)} frames, {len(keys) - len(seen)} were left.")


def _archive() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for number, image in enumerate(images(2)):
            content = io.BytesIO()
            image.save(content, "PNG")
            info = tarfile.TarInfo(f"photos/{number}.png")
            info.size = len(content.getvalue())
            tar.addfile(info, io.BytesIO(content.getvalue()))
    return made.getvalue()


def _stream() -> bytes:
    parts = []
    for number, image in enumerate(images(3)):
        content = io.BytesIO()
        image.save(content, "JPEG")
        length = f"Content-Length: {len(content.getvalue())}\r\n" if number else ""
        parts.append(f"--frame\r\nContent-Type: image/jpeg\r\n{length}\r\n".encode() + content.getvalue() + b"\r\n")
    return b"".join(parts) + b"--frame--\r\n"
