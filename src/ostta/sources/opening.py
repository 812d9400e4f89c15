"""From what a person names to a source."""

from __future__ import annotations

import os
from pathlib import Path

from ..core.types import Error
from .files import File, Folder, Listed, is_image
from .source import Skip, Source


def open(
    *sources: str | int | os.PathLike[str],
    every: int = 1,
    follow: bool = False,
    skip: Skip | None = None,
    retries: int | None = None,
) -> Source:
    """What is named, as one source whose items come one after the other: files, folders, globs, lists, archives, videos, cameras.

    `every` takes one frame in so many of what has frames. `follow` waits for new images in folders. `skip(key)` says which items have
    been judged already: they are left out unread, and a video goes on with the first frame that is wanted. `retries` is how often a
    live source that is lost is tried again before it ends with an Error: for ever if None.

    >>> image.save("cat.png")
    >>> for prediction in adapter.stream(ostta.sources.open("cat.png")):
    ...     print(prediction.name, prediction.label)
    cat.png cat
    """
    if not sources:
        raise Error("No source is named: give a file, a folder, a glob, a video, a camera's number or an address.")
    if len(sources) > 1:
        raise Error("Several sources are not there yet.")
    opened = _one(sources[0], skip)
    opened.check()
    return opened


def _one(source: str | int | os.PathLike[str], skip: Skip | None) -> Source:
    if source == "-":
        return Listed("-", skip)
    path = Path(str(source))
    if path.is_dir():
        return Folder(path, skip)
    if not path.is_file():
        raise Error(f"{source} is neither a folder nor a file.")
    return File(path, skip) if is_image(path) else Listed(str(path), skip)
