"""Open sources by name, and combine several sources."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from ..core.checks import shown
from ..core.types import Error
from ..feature_files import PREFIX as FEATURES
from ..io import check_regular
from .addresses import HTTP, RTSP, camera, check_address, rtsp, scheme_of, web, without_password
from .files import Archive, File, Folder, ImageList, SkippedFiles, StoredFeatures, is_image, output_of
from .following import FollowedFolders
from .source import Item, Skip, Source, missing_item, unreadable
from .video import SUFFIXES, Video

# A path, an address, or the number of a camera.
SourceName = str | int | os.PathLike[str]


def open(
    *sources: SourceName,
    every: int = 1,
    follow: bool = False,
    skip: Skip | None = None,
    retries: int | None = None,
) -> Source:
    """Open images, folders, globs, lists, archives, videos, feature files, a camera or an address as one source.

    every:    use one frame in `every` of videos and live sources.
    follow:   wait for new images in folders.
    skip:     `skip(key)` returns whether an item has already been processed. Such items are not read, and a video
              resumes at the first frame that is not skipped.
    retries:  maximum number of consecutive attempts to restore a live connection; unlimited if None.

    >>> image.save("cat.png")
    >>> for prediction in adapter.stream(ostta.sources.open("cat.png")):
    ...     print(prediction.name, prediction.label)
    cat.png cat
    """
    if not sources:
        raise _unknown("No source is given: give an image, a folder, a video, the number of a camera or an address.")
    _check_count("every", every, 1)
    if retries is not None:
        _check_count("retries", retries, 0)
    for source in sources:
        if isinstance(source, bool) or not isinstance(source, str | int | os.PathLike):
            raise _unknown(f"A source is a path, an address or the number of a camera, not {shown(source)}.")
    if follow:
        opened: Source = FollowedFolders([_folder(source) for source in sources], skip)
    else:
        open_one = partial(_open_one, every=every, skip=skip, retries=retries)
        skipped = SkippedFiles()
        names = [name for source in sources for name in _expand(source, skipped)]
        _check_live_is_last(names)
        several = len(names) > 1
        opened = SourceSequence(names, open_one) if several else open_one(names[0])
        skipped.report(opened)
        if several:
            _check_files(sources, open_one)
    opened.check()
    return opened


class SourceSequence(Source):
    """Several sources in sequence, each opened when it starts.

    A source that cannot be opened yields an item with the error message.
    """

    def __init__(self, names: Sequence[str | int], open_one: Callable[[str | int], Source]) -> None:
        super().__init__(", ".join([*map(str, names[:3]), *(["..."] if len(names) > 3 else [])]))
        self.waits = any(_kind(name) in ("camera", "list", "address") for name in names)
        self._names, self._open = names, open_one
        self._current: Source | None = None

    def __iter__(self) -> Iterator[Item]:
        for name in self._names:
            try:
                with self._open(name) as self._current:
                    for item in self._current:
                        self._copy_events(self._current)
                        yield item
            except Error as problem:
                yield missing_item(str(name), str(problem))
            if self._current is not None:
                self._copy_events(self._current)
                self._dropped += self._current.dropped
                self._current = None

    @property
    def dropped(self) -> int:
        return self._dropped + (0 if self._current is None else self._current.dropped)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()

    def _copy_events(self, source: Source) -> None:
        for event in source.new_events():
            self.add_event(event.kind, event.sentence, event.evidence)


def _unknown(message: str) -> Error:
    return Error(message, code="source-unknown")


def _kind(name: str | int) -> Literal["camera", "list", "features", "address", "path"]:
    """Return what a name refers to. "-" is the list on standard input."""
    if isinstance(name, int) or _camera_of(name) is not None:
        return "camera"
    if name == "-":
        return "list"
    if name.startswith(FEATURES):
        return "features"
    return "path" if scheme_of(name) is None else "address"


def _check_files(sources: Sequence[SourceName], open_one: Callable[[str | int], Source]) -> None:
    """Check folders, archives, lists and feature files before the first of several sources is read.

    Videos are not checked: a damaged video yields an item with the error message.
    """
    for name in (os.fspath(source) for source in sources if not isinstance(source, int)):
        if _kind(name) == "features" or (_kind(name) != "camera" and os.path.exists(name)):
            opened = open_one(name)
            if not isinstance(opened, Video):
                opened.check()


def _expand(source: SourceName, skipped: SkippedFiles) -> Sequence[str | int]:
    """Return the source itself, or the sorted paths that match it if it is a glob."""
    if isinstance(source, int):
        if not 0 <= source < 10_000:
            raise _unknown(f"The number of a camera must be 0 or more, not {source}.")
        return [source]
    name = os.fspath(source)
    if _kind(name) == "address":
        if scheme_of(name) not in RTSP + HTTP:
            raise _unknown(f"{without_password(name)} cannot be read: addresses begin with {', '.join(RTSP + HTTP)}.")
        check_address(name)
    if _kind(name) != "path":
        return [name]
    if not os.path.lexists(name) and glob.has_magic(name):
        paths = []
        for path in glob.iglob(name, recursive=True):
            output = output_of(path)
            if output is not None and output != output_of(name):
                skipped.outputs.add(str(output))
            elif _is_source(Path(path)):
                paths.append(path)
            else:
                skipped.add(path)
        if not paths:
            raise unreadable(f"No file that can be read matches {name}. {skipped}".rstrip())
        return sorted(paths)
    if not os.path.exists(name):
        raise Error(f"{name} is neither a folder nor a file.", code="file-not-found")
    if not os.path.isdir(name):
        check_regular(Path(name), "source")
    return [name]


def _open_one(name: str | int, *, every: int, skip: Skip | None, retries: int | None) -> Source:
    number = name if isinstance(name, int) else _camera_of(name)
    if number is not None:
        return camera(number, every, retries)
    name, kind = str(name), _kind(name)
    if kind == "list":
        return ImageList(name, skip)
    if kind == "features":
        return StoredFeatures(name, skip)
    if kind == "address":
        return (rtsp if scheme_of(name) in RTSP else web)(name, every, retries)
    path = Path(name)
    if path.is_dir():
        return Folder(path, skip)
    if path.suffix.lower() in SUFFIXES:
        return Video(path, every, skip)
    if path.suffix.lower() == ".tar":
        return Archive(path, skip)
    return File(path, skip) if is_image(path) else ImageList(name, skip)


def _is_source(path: Path) -> bool:
    """Return whether a path that matches a glob is opened as a source.

    Lists are excluded, since most text files are not lists of images.
    """
    return path.is_dir() or path.suffix.lower() in SUFFIXES | {".tar"} or is_image(path)


def _camera_of(name: str) -> int | None:
    """Return the camera number of a number or device name, or None if a file has that name."""
    match = re.fullmatch(r"/dev/video(\d{1,4})", name)
    if match is None and not os.path.lexists(name):
        match = re.fullmatch(r"(\d{1,4})", name)
    return None if match is None else int(match[1])


def _folder(source: SourceName) -> Path:
    if isinstance(source, int) or not os.path.isdir(source):
        raise _unknown(f"Only folders can be followed, and {source} is not a folder.")
    return Path(source)


def _check_live_is_last(names: Sequence[str | int]) -> None:
    """Raise an Error if a source follows a live source, which does not end."""
    for name in names[:-1]:
        if _kind(name) == "camera" or scheme_of(str(name)) in RTSP:
            raise _unknown(
                f"{without_password(str(name))} is live and has no end: give only one live source, as the last one. "
                "For several live sources use ostta.StreamPool."
            )


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        message = f"`{name}` must be an integer of at least {least}, not {shown(value)}."
        raise Error(message, code="option-invalid")
