"""One image of a source, with what it is called and how it is known again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..core.types import Error, ImageError
from ..data.images import ImageSource


@dataclass(frozen=True, slots=True)
class Item:
    """One image, and where it is from.

    `name` is what people call it: a path, "clip.mp4#120" for frame 120, an address. `key` is the same after a restart and differs
    where the content differs: for a file it is made of path, size and time of the last change, for a frame also of its number; it is
    empty where an image never comes again, as with a camera. `time` is in seconds: since 1970 for files (their last change) and what
    is live (the arrival), since the beginning for a video. `path` is the file, where the image is one. `problem` says why there is
    no image, where that is known already.

    >>> image.save("cat.png")
    >>> item = next(iter(ostta.sources.open("cat.png")))
    >>> item.name, item.frame, item.key.split("|")[1] == str(item.path.stat().st_size)
    ('cat.png', None, True)
    """

    image: ImageSource = field(compare=False, repr=False)
    name: str
    key: str
    time: float | None = None
    frame: int | None = None
    path: Path | None = None
    problem: str | None = None

    def require_image(self) -> ImageSource:
        """The image; an `ostta.ImageError` that says why where there is none.

        >>> image.save("cat.png")
        >>> adapter.step(next(iter(ostta.sources.open("cat.png"))).require_image())
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        if self.problem is not None:
            raise ImageError(self.problem)
        return self.image


def file_item(path: Path) -> Item:
    """A file, which is read when the item's image is. One that is not there has no key: it may come."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return Item(path, str(path), "", path=path)
    return Item(path, str(path), file_key(path, found.st_size, found.st_mtime_ns), found.st_mtime, path=path)


def missing_item(name: str, problem: str, path: Path | None = None) -> Item:
    """What stands in the place of an image that cannot be had."""
    return Item(b"", name, "", path=path, problem=problem)


def frame_item(make: Callable[[], ImageSource], name: str, key: str, time: float | None, frame: int) -> Item:
    """A frame that `make` gives; where it raises an Error, an item that says so."""
    try:
        image = make()
    except Error as problem:
        return Item(b"", name, key, time, frame, problem=str(problem))
    return Item(image, name, key, time, frame)


def file_key(path: str | Path, size: int, changed: int) -> str:
    """What a file is known by; `changed` in nanoseconds. Bytes of names that are no UTF-8 are escaped, so that keys can be stored."""
    name = os.fsencode(os.path.abspath(path)).decode(errors="backslashreplace")
    return f"{name}|{size}|{changed}"
