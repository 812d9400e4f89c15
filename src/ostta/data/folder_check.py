"""A person's own folder, looked over before it is used: what is in it, what cannot be read, and what is odd."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..core.sampling import balanced
from ..core.types import Error
from ..core.words import counted
from .class_lists import imagenet_names
from .class_names import checked_classes, spoken
from .images import TooLargeError, read_image
from .readers.folders import image_names
from .spellings import alike

# Images that are decoded if nothing is said: some minutes.
USUAL_LIMIT = 10_000
# Names that are kept of each kind of finding; the others are counted.
MOST_NAMES = 1_000
# A class with so many times fewer images than the largest is worth a word.
UNEVEN = 10
# Of a file that has the size of another, so much is compared.
_COMPARED, _CHUNK = 64 * 2**20, 2**20

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class ClassFolder:
    """A class as a run would call it, the name of its folder, and how many images there are."""

    name: str
    folder: str
    images: int


@dataclass
class Found:
    """Files of one kind: the first of them by name, each with what is wrong with it, and how many there are."""

    files: list[tuple[Path, str]] = field(default_factory=list)
    count: int = 0

    def add(self, path: Path, what: str) -> None:
        self.count += 1
        if len(self.files) < MOST_NAMES:
            self.files.append((path, what))


@dataclass(frozen=True)
class FolderCheck:
    """What was found. `problems` keep the folder from being used as it is, `warnings` do not; both are sentences.

    classes:     in the order of their labels; none for a folder with the images themselves in it.
    images:      all that there are; `looked_at` of them were decoded and compared.
    duplicates:  groups of files with the same content.
    """

    folder: Path
    classes: tuple[ClassFolder, ...]
    images: int
    looked_at: int
    unreadable: Found
    too_large: Found
    duplicates: tuple[tuple[Path, ...], ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def check_folder(folder: Path, limit: int = USUAL_LIMIT, watch: Watch | None = None) -> FolderCheck:
    """Look over a folder with one folder of images per class, or with images alone; at most `limit` images are decoded.

    Which ones, where there are more, is drawn evenly over the classes. `watch(done, total)` is told after every image.

    >>> from PIL import Image
    >>> Path("pets/cat").mkdir(parents=True); Path("pets/dog").mkdir()
    >>> Image.new("RGB", (4, 4)).save("pets/cat/one.png")
    >>> check_folder(Path("pets")).problems
    ('The class folder dog has no images.',)
    """
    if limit < 1:
        raise Error(f"A limit of {limit} images cannot be used: it must be 1 or more.")
    if not folder.is_dir():
        raise Error(f"There is no folder '{folder}'.")
    try:
        parts = sorted(item.name for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))
        loose = image_names(folder)
        listed = [image_names(folder / part) for part in parts] if parts else [loose]
    except OSError as problem:
        raise Error(f"'{problem.filename or folder}' cannot be listed: {problem.strerror}.") from problem
    if not parts and not loose:
        raise Error(
            f"'{folder}' has no images in it, and no folders: it needs one per class, with that class's images inside."
        )
    names = [imagenet_names().get(part, spoken(part)) for part in parts]
    classes = tuple(map(ClassFolder, names, parts, map(len, listed)))
    total = sum(map(len, listed))
    ends = np.cumsum([len(files) for files in listed])
    labels = np.repeat(np.arange(len(listed)), [len(files) for files in listed])
    numbers = balanced(labels, limit, np.random.default_rng(0))

    def path_of(number: int) -> Path:
        label = int(labels[number])
        name = listed[label][number - int(ends[label])]  # counted from the end of its class
        return folder / parts[label] / name if parts else folder / name

    unreadable, too_large, same = Found(), Found(), _SameContent()
    for done, number in enumerate(numbers.tolist(), 1):
        path = path_of(number)
        try:
            read_image(path)
            same.add(path)
        except TooLargeError as problem:
            too_large.add(path, str(problem))
        except Error as problem:
            unreadable.add(path, str(problem))
        except OSError as problem:
            unreadable.add(path, f"The image file '{path}' cannot be read: {problem.strerror}.")
        if watch is not None:
            watch(done, len(numbers))
    return FolderCheck(
        folder,
        classes,
        total,
        len(numbers),
        unreadable,
        too_large,
        same.groups(),
        tuple(_problems(classes, unreadable, too_large)),
        tuple(_warnings(folder, parts, classes, len(loose) if parts else 0, same.groups())),
    )


class _SameContent:
    """Files with the same content; only those that have the size of another are read."""

    def __init__(self) -> None:
        self._first: dict[int, Path | None] = {}
        self._by_digest: dict[bytes, list[Path]] = {}

    def add(self, path: Path) -> None:
        size = path.stat().st_size
        if size not in self._first:
            self._first[size] = path
            return
        before, self._first[size] = self._first[size], None
        for each in (path,) if before is None else (before, path):
            self._by_digest.setdefault(_digest(each, size), []).append(each)

    def groups(self) -> tuple[tuple[Path, ...], ...]:
        return tuple(tuple(paths) for paths in self._by_digest.values() if len(paths) > 1)


def _digest(path: Path, size: int) -> bytes:
    digest = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        for _ in range(_COMPARED // _CHUNK):
            chunk = file.read(_CHUNK)
            if not chunk:
                break
            digest.update(chunk)
    return digest.digest()


def _problems(classes: Sequence[ClassFolder], unreadable: Found, too_large: Found) -> list[str]:
    empty = [each.folder for each in classes if not each.images]
    found = [f"The class folder {folder} has no images." for folder in empty]
    if len(empty) > 5:
        found = [f"{len(empty):,} class folders have no images, such as {empty[0]}."]
    if classes:
        try:
            checked_classes([each.name for each in classes])
        except Error as problem:
            found.append(str(problem))
    if unreadable.count:
        found.append(f"{counted(unreadable.count, 'image')} cannot be read.")
    if too_large.count:
        found.append(f"{counted(too_large.count, 'image')} over the limit: make them smaller.")
    return found


def _warnings(
    folder: Path,
    parts: Sequence[str],
    classes: Sequence[ClassFolder],
    loose: int,
    duplicates: Sequence[Sequence[Path]],
) -> list[str]:
    found = []
    if loose:
        found.append(f"{counted(loose, 'image')} beside the class folders would not be used.")
    found += _left_out(folder, parts)
    across = [group for group in duplicates if len({path.parent for path in group}) > 1]
    if duplicates:
        spare = sum(len(group) - 1 for group in duplicates)
        inside = f", {len(across):,} of the originals in more than one class" if across else ""
        found.append(f"{counted(spare, 'image')} {'is' if spare == 1 else 'are'} the same as another one{inside}.")
    filled = sorted((each for each in classes if each.images), key=lambda each: each.images)
    if len(filled) > 1 and filled[-1].images >= UNEVEN * filled[0].images:
        found.append(
            f"Very uneven: {counted(filled[-1].images, 'image')} of {filled[-1].name}, {filled[0].images:,} of {filled[0].name}. Figures "
            "are over images, so that large classes count most; with --limit a run draws as many of each as there can be."
        )
    for one, other in alike([each.name for each in classes])[:5]:
        found.append(f"The classes '{one}' and '{other}' look like two spellings of one.")
    return found


def _left_out(folder: Path, parts: Sequence[str]) -> list[str]:
    """What lies in class folders and would not be used: folders in them, and files that are no images by their names."""
    folders, files, example = 0, 0, ""
    for part in parts:
        images = set(image_names(folder / part))
        with os.scandir(folder / part) as entries:
            for entry in entries:
                if entry.name in images or entry.name.startswith("."):
                    continue
                example = example or os.path.join(part, entry.name)
                folders, files = folders + entry.is_dir(), files + (not entry.is_dir())
    if not folders + files:
        return []
    what = " and ".join(counted(number, word) for number, word in ((folders, "folder"), (files, "file")) if number)
    return [
        f"{what} inside class folders would not be used, such as {example}: images have names like one.jpg, directly in the folder."
    ]
