"""From what a person names to a source."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..core.checks import shown
from ..core.types import Error
from ..feature_files import PREFIX as FEATURES
from ..io import check_regular
from .addresses import HTTP, RTSP, camera, check_address, rtsp, scheme_of, without_password
from .archive import Archive
from .features import StoredFeatures
from .files import File, Folder, Listed, SkippedFiles, is_image
from .following import Followed
from .several import Several
from .source import Skip, Source
from .video import SUFFIXES, Video
from .web import web

Named = str | int | os.PathLike[str]


def open(
    *sources: Named,
    every: int = 1,
    follow: bool = False,
    skip: Skip | None = None,
    retries: int | None = None,
) -> Source:
    """What is named, one after the other, as one source: images, folders, globs, lists, archives, videos, a camera, an address, feature files.

    `every` takes one frame in so many of what has frames. `follow` waits for new images in folders. `skip(key)` says which items have
    been judged already: they are left out unread, and a video goes on with the first frame that is wanted. `retries` is how often in
    a row a live source that is lost is tried again before that is an Error; for ever if None.

    >>> image.save("cat.png")
    >>> for prediction in adapter.stream(ostta.sources.open("cat.png")):
    ...     print(prediction.name, prediction.label)
    cat.png cat
    """
    if not sources:
        raise Error("No source is named: give an image, a folder, a video, a camera's number or an address.")
    _check_count("every", every, 1)
    if retries is not None:
        _check_count("retries", retries, 0)
    for source in sources:
        if isinstance(source, bool) or not isinstance(source, str | int | os.PathLike):
            raise Error(f"A source is a path, an address or a camera's number, not {shown(source)}.")
    if follow:
        opened: Source = Followed([_folder(source) for source in sources], skip)
    else:
        make = partial(_one, every=every, skip=skip, retries=retries)
        skipped = SkippedFiles()
        names = [name for source in sources for name in _named(source, skipped)]
        _check_ends(names)
        opened = make(names[0]) if len(names) == 1 else Several(names, make, any(map(_may_wait, names)))
        skipped.tell(opened)
        if len(names) > 1:
            _check_named([source for source in sources if _is_file_name(source)], make)
    opened.check()
    return opened


def _is_file_name(source: Named) -> bool:
    """Whether the source is a file or a folder that was named as it is: neither an address nor a glob."""
    if isinstance(source, int):
        return False
    name = os.fspath(source)
    return name.startswith(FEATURES) or (_camera_of(name) is None and os.path.exists(name))


def _check_named(sources: Sequence[Named], make: Callable[[str | int], Source]) -> None:
    """Check folders, archives and lists before the first of several sources is read; a damaged video gives an item that says so."""
    for source in sources:
        opened = make(os.fspath(source) if not isinstance(source, int) else source)
        if not isinstance(opened, Video):
            opened.check()


def _named(source: Named, skipped: SkippedFiles) -> Sequence[str | int]:
    """What is to be opened: the source itself, or what its glob stands for. Raises an Error where that can be nothing."""
    if isinstance(source, int):
        return [_camera_number(source)]
    name = os.fspath(source)
    if name == "-" or name.startswith(FEATURES) or _camera_of(name) is not None:
        return [name]
    scheme = scheme_of(name)
    if scheme is not None:
        if scheme not in RTSP + HTTP:
            raise Error(f"{without_password(name)} cannot be read: addresses begin with {', '.join(RTSP + HTTP)}.")
        check_address(name)
        return [name]
    if not os.path.lexists(name) and glob.has_magic(name):
        found = []
        for path in glob.iglob(name, recursive=True):
            if _is_known(Path(path)):
                found.append(path)
            else:
                skipped.add(path)
        if not found:
            raise Error(f"Nothing that can be read is called {name}.{f' {skipped}' if skipped.count else ''}")
        return sorted(found)
    if not os.path.exists(name):
        raise Error(f"{name} is neither a folder nor a file.")
    if not os.path.isdir(name):
        check_regular(Path(name), "source")
    return [name]


def _one(name: str | int, *, every: int, skip: Skip | None, retries: int | None) -> Source:
    number = name if isinstance(name, int) else _camera_of(name)
    if number is not None:
        return camera(number, every, retries)
    name = str(name)
    if name == "-":
        return Listed(name, skip)
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
    return File(path, skip) if is_image(path) else Listed(name, skip)


def _is_known(path: Path) -> bool:
    """Whether a path that a glob found is something to open; lists are not, as most text files are none."""
    return path.is_dir() or path.suffix.lower() in SUFFIXES | {".tar"} or is_image(path)


def _camera_of(name: str) -> int | None:
    """The camera that is meant, by its number or its device; a file of that name comes first."""
    found = re.fullmatch(r"/dev/video(\d{1,4})", name)
    if found is None and not os.path.lexists(name):
        found = re.fullmatch(r"(\d{1,4})", name)
    return None if found is None else int(found[1])


def _may_wait(name: str | int) -> bool:
    """Whether the images of a source may come as time goes by, as far as its name says."""
    return isinstance(name, int) or name == "-" or _camera_of(name) is not None or scheme_of(name) is not None


def _camera_number(number: int) -> int:
    if not 0 <= number < 10_000:
        raise Error(f"A camera's number is 0 or more, not {number}.")
    return number


def _folder(source: Named) -> Path:
    if isinstance(source, int) or not os.path.isdir(source):
        raise Error(f"Only folders can be followed, and {source} is none.")
    return Path(source)


def _check_ends(names: Sequence[str | int]) -> None:
    """What is live does not end, so that nothing can come behind it."""
    for name in names[:-1]:
        if isinstance(name, int) or _camera_of(name) is not None or scheme_of(name) in RTSP:
            shown_name = name if isinstance(name, int) else without_password(name)
            raise Error(
                f"{shown_name} is live and has no end: name it last, and one only. For more of them there is ostta.StreamPool."
            )


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Error(f"`{name}` is a whole number of at least {least}, not {shown(value)}.")
