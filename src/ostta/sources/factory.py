"""Open sources by name, and combine several sources."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..core.checks import shown
from ..core.types import Error
from ..feature_files import PREFIX as FEATURES
from ..io import check_regular
from .addresses import HTTP, RTSP, camera, check_address, rtsp, scheme_of, web, without_password
from .files import Archive, File, Folder, ImageList, SkippedFiles, StoredFeatures, is_image
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

    every:    take one frame in `every` of videos and live sources.
    follow:   wait for new images in folders.
    skip:     `skip(key)` returns whether an item has been processed already. Such items are not read, and a video
              resumes at the first frame that is not skipped.
    retries:  number of consecutive attempts to restore a live connection before an Error; unlimited if None.

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
        opened = SourceSequence(names, open_one, any(map(_may_wait, names))) if several else open_one(names[0])
        skipped.report(opened)
        if several:
            _check_files([source for source in sources if _is_file_name(source)], open_one)
    opened.check()
    return opened


class SourceSequence(Source):
    """Several sources in sequence, each opened when it starts.

    A source that cannot be opened yields an item with the reason.
    """

    def __init__(self, names: Sequence[str | int], open_one: Callable[[str | int], Source], waits: bool) -> None:
        super().__init__(", ".join([*map(str, names[:3]), *(["..."] if len(names) > 3 else [])]))
        self.waits = waits
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


def _is_file_name(source: SourceName) -> bool:
    """Return whether the source is the path of a file or a folder, not an address or a glob."""
    if isinstance(source, int):
        return False
    name = os.fspath(source)
    return name.startswith(FEATURES) or (_camera_of(name) is None and os.path.exists(name))


def _check_files(sources: Sequence[SourceName], open_one: Callable[[str | int], Source]) -> None:
    """Check folders, archives and lists before the first of several sources is read.

    A damaged video yields an item instead.
    """
    for source in sources:
        opened = open_one(os.fspath(source) if not isinstance(source, int) else source)
        if not isinstance(opened, Video):
            opened.check()


def _expand(source: SourceName, skipped: SkippedFiles) -> Sequence[str | int]:
    """Return the source itself, or the sorted paths that match its glob."""
    if isinstance(source, int):
        if not 0 <= source < 10_000:
            raise _unknown(f"The number of a camera must be 0 or more, not {source}.")
        return [source]
    name = os.fspath(source)
    if name == "-" or name.startswith(FEATURES) or _camera_of(name) is not None:
        return [name]
    scheme = scheme_of(name)
    if scheme is not None:
        if scheme not in RTSP + HTTP:
            raise _unknown(f"{without_password(name)} cannot be read: addresses begin with {', '.join(RTSP + HTTP)}.")
        check_address(name)
        return [name]
    if not os.path.lexists(name) and glob.has_magic(name):
        paths = []
        for path in glob.iglob(name, recursive=True):
            if _is_source(Path(path)):
                paths.append(path)
            else:
                skipped.add(path)
        if not paths:
            raise unreadable(f"No file that can be read matches {name}.{f' {skipped}' if skipped.count else ''}")
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
    name = str(name)
    if name == "-":
        return ImageList(name, skip)
    if name.startswith(FEATURES):
        return StoredFeatures(name, skip)
    scheme = scheme_of(name)
    if scheme is not None:
        return (rtsp if scheme in RTSP else web)(name, every, retries)
    path = Path(name)
    if path.is_dir():
        return Folder(path, skip)
    if path.suffix.lower() in SUFFIXES:
        return Video(path, every, skip)
    if path.suffix.lower() == ".tar":
        return Archive(path, skip)
    return File(path, skip) if is_image(path) else ImageList(name, skip)


def _is_source(path: Path) -> bool:
    """Return whether a path that matches a glob is opened.

    Lists are not, since most text files are not lists of images.
    """
    return path.is_dir() or path.suffix.lower() in SUFFIXES | {".tar"} or is_image(path)


def _camera_of(name: str) -> int | None:
    """Return the number of a camera that is given by its number or its device; None for a file with that name."""
    match = re.fullmatch(r"/dev/video(\d{1,4})", name)
    if match is None and not os.path.lexists(name):
        match = re.fullmatch(r"(\d{1,4})", name)
    return None if match is None else int(match[1])


def _may_wait(name: str | int) -> bool:
    """Return whether the images of a source may arrive over time, judging by its name."""
    return isinstance(name, int) or name == "-" or _camera_of(name) is not None or scheme_of(name) is not None


def _folder(source: SourceName) -> Path:
    if isinstance(source, int) or not os.path.isdir(source):
        raise _unknown(f"Only folders can be followed, and {source} is not a folder.")
    return Path(source)


def _check_live_is_last(names: Sequence[str | int]) -> None:
    """Raise an Error if a source follows a live source, which has no end."""
    for name in names[:-1]:
        if isinstance(name, int) or _camera_of(name) is not None or scheme_of(name) in RTSP:
            shown_name = name if isinstance(name, int) else without_password(name)
            raise _unknown(
                f"{shown_name} is live and has no end: give only one live source, as the last one. For several live "
                "sources use "
                "ostta.StreamPool."
            )


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        message = f"`{name}` must be an integer of at least {least}, not {shown(value)}."
        raise Error(message, code="option-invalid")
