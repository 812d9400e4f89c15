"""Checks of `ostta data check`: whether a data set is complete, and whether a user folder can be used."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..core.errors import translate_errors
from ..core.text import counted
from ..core.types import Error
from ..data.by_name import check_limit, open_dataset
from ..data.catalogue import CATALOGUE, Expected
from ..data.class_names import checked_classes, imagenet_names, spoken
from ..data.dataset import Dataset, balanced
from ..data.images import TooLargeError, read_image
from ..data.names import SAMPLES, Name, parse_name
from ..data.overlap import overlap
from ..data.readers.base import require_folder
from ..data.readers.folders import image_names

# Default number of images to decode, which takes a few minutes.
USUAL_LIMIT = 10_000
# Maximum number of file names stored per type of problem; further files are only counted.
MOST_NAMES = 1_000
# Ratio of the largest to the smallest class above which the user is warned.
IMBALANCE = 10
# Word lengths for which spellings are compared. Shorter words often differ by one letter, such as boat and goat.
_SHORTEST, _LONGEST = 6, 64

# Called with the number of images checked and the total number.
Progress = Callable[[int, int], None]


# --- data sets --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class DatasetCheck:
    """Result of `check_dataset` for a usable data set. `size` is (width, height) of its first image."""

    dataset: Dataset
    expected: Expected | None
    size: tuple[int, int]
    warnings: tuple[str, ...]


def check_dataset(name: str, root: Path | None = None, *, corruption: str = "snow", severity: int = 5) -> DatasetCheck:
    """Open a data set, check that every file exists, and decode one image. Raise an Error if it cannot be used.

    >>> check_dataset("sample:mnist").warnings
    ()
    """
    dataset = open_dataset(name, root, corruption=corruption, severity=severity, named=False)
    absent = [path for path in dataset.files if not path.is_file()]
    if absent:
        raise Error(
            f"The data set '{name}' cannot be used: {len(absent):,} of its {len(dataset):,} image files are missing, "
            f"the first is '{absent[0]}'.",
            code="dataset-invalid",
        )
    expected = expected_of(parse_name(name))
    warnings = []
    if expected is not None and len(dataset) != expected.official:
        warnings.append(f"There are {len(dataset):,} images instead of the expected {expected.official:,}.")
    empty = np.flatnonzero(np.bincount(dataset.labels, minlength=len(dataset.classes)) == 0)
    if len(empty):
        names = ", ".join(dataset.classes[label] for label in empty[:5])
        warnings.append(f"{len(empty):,} of the {len(dataset.classes):,} classes have no image, such as {names}.")
    return DatasetCheck(dataset, expected, dataset.image(0).size, tuple(warnings))


def expected_of(name: Name) -> Expected | None:
    """Return the expected number of images of a data set, or None for a user data set."""
    if name.kind == "sample":
        return Expected(SAMPLES[name.base])
    if name.kind != "known":
        return None
    if name.published is not None:
        return name.published.expected
    entry = CATALOGUE[name.base]
    return entry.splits[name.split or entry.default_split].expected


# --- folders ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ClassFolder:
    """Class name in a run, name of the class folder, and number of images."""

    name: str
    folder: str
    images: int


@dataclass
class FileProblems:
    """Files with the same type of problem: the first files with their messages, and the total number."""

    files: list[tuple[Path, str]] = field(default_factory=list)
    count: int = 0

    def add(self, path: Path, problem: str) -> None:
        self.count += 1
        if len(self.files) < MOST_NAMES:
            self.files.append((path, problem))


@dataclass(frozen=True)
class FolderCheck:
    """Result of `check_folder`. A folder with `problems` cannot be used; `warnings` do not prevent its use.

    classes:     class folders in label order; empty for a folder that contains images directly.
    images:      number of images.
    checked:     number of images that were decoded and compared.
    duplicates:  groups of files with the same content.
    """

    folder: Path
    classes: tuple[ClassFolder, ...]
    images: int
    checked: int
    unreadable: FileProblems
    too_large: FileProblems
    duplicates: tuple[tuple[Path, ...], ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def check_folder(folder: Path, limit: int = USUAL_LIMIT, watch: Progress | None = None) -> FolderCheck:
    """Check a folder with one subfolder of images per class, or with images only.

    At most `limit` images are decoded, drawn evenly from the classes. `watch(done, total)` is called after every image.

    >>> from PIL import Image
    >>> Path("pets/cat").mkdir(parents=True); Path("pets/dog").mkdir()
    >>> Image.new("RGB", (4, 4)).save("pets/cat/one.png")
    >>> check_folder(Path("pets")).problems
    ('The class folder dog has no images.',)
    """
    check_limit(limit)
    require_folder(folder)
    with translate_errors("file-unreadable", f"'{folder}' or a folder in it cannot be listed: {{reason}}.", OSError):
        parts = sorted(item.name for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))
        loose = image_names(folder)
        listed = [image_names(folder / part) for part in parts] if parts else [loose]
    if not parts and not loose:
        raise Error(
            f"'{folder}' has neither images nor folders: it needs one folder per class that contains the images of "
            "the class.",
            code="dataset-invalid",
        )
    names = [imagenet_names().get(part, spoken(part)) for part in parts]
    classes = tuple(map(ClassFolder, names, parts, map(len, listed)))
    paths = [folder / part / name for part, files in zip(parts or [""], listed, strict=True) for name in files]
    labels = np.repeat(np.arange(len(listed)), [len(files) for files in listed])
    numbers = balanced(labels, limit, np.random.default_rng(0))
    unreadable, too_large, duplicates = _decode([paths[number] for number in numbers.tolist()], watch)
    return FolderCheck(
        folder,
        classes,
        len(paths),
        len(numbers),
        unreadable,
        too_large,
        duplicates,
        tuple(_problems(classes, unreadable, too_large)),
        tuple(_warnings(folder, parts, classes, len(loose) if parts else 0, duplicates)),
    )


def _decode(
    paths: Sequence[Path], watch: Progress | None
) -> tuple[FileProblems, FileProblems, tuple[tuple[Path, ...], ...]]:
    """Return the unreadable files, the files that are too large, and the groups of identical files."""
    unreadable, too_large, same = FileProblems(), FileProblems(), _SameContent()
    for done, path in enumerate(paths, 1):
        message = f"The image file '{path}' cannot be read: {{reason}}."
        try:
            with translate_errors("image-unreadable", message, OSError):
                read_image(path)
                same.add(path)
        except TooLargeError as problem:
            too_large.add(path, str(problem))
        except Error as problem:
            unreadable.add(path, str(problem))
        if watch is not None:
            watch(done, len(paths))
    return unreadable, too_large, same.groups()


class _SameContent:
    """Find groups of identical files. Only files of equal size are read."""

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
            with each.open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").digest()
            self._by_digest.setdefault(digest, []).append(each)

    def groups(self) -> tuple[tuple[Path, ...], ...]:
        return tuple(tuple(paths) for paths in self._by_digest.values() if len(paths) > 1)


def _problems(classes: Sequence[ClassFolder], unreadable: FileProblems, too_large: FileProblems) -> list[str]:
    empty = [each.folder for each in classes if not each.images]
    problems = [f"The class folder {folder} has no images." for folder in empty]
    if len(empty) > 5:
        problems = [f"{len(empty):,} class folders have no images, such as {empty[0]}."]
    if classes:
        try:
            checked_classes([each.name for each in classes])
        except Error as problem:
            problems.append(str(problem))
    if unreadable.count:
        problems.append(f"{counted(unreadable.count, 'image')} cannot be read.")
    if too_large.count:
        problems.append(f"{counted(too_large.count, 'image')} over the limit: make them smaller.")
    return problems


def _warnings(
    folder: Path,
    parts: Sequence[str],
    classes: Sequence[ClassFolder],
    loose: int,
    duplicates: Sequence[Sequence[Path]],
) -> list[str]:
    warnings = []
    if loose:
        warnings.append(f"{counted(loose, 'image')} beside the class folders would not be used.")
    warnings += _unused_files(folder, parts)
    if duplicates:
        spare = sum(len(group) - 1 for group in duplicates)
        across = sum(len({path.parent for path in group}) > 1 for group in duplicates)
        inside = f", {across:,} of the originals in more than one class" if across else ""
        warnings.append(f"{counted(spare, 'image')} {'is' if spare == 1 else 'are'} the same as another one{inside}.")
    filled = sorted((each for each in classes if each.images), key=lambda each: each.images)
    if len(filled) > 1 and filled[-1].images >= IMBALANCE * filled[0].images:
        warnings.append(
            f"The classes are imbalanced: {counted(filled[-1].images, 'image')} of {filled[-1].name}, "
            f"{filled[0].images:,} of {filled[0].name}. Metrics are averages over images, so large classes dominate; "
            "with --limit a run draws the same number of images of each class if possible."
        )
    for one, other in similar_spellings([each.name for each in classes])[:5]:
        warnings.append(f"The classes '{one}' and '{other}' look like two spellings of one name.")
    return warnings


def _unused_files(folder: Path, parts: Sequence[str]) -> list[str]:
    """Describe the unused content of class folders: subfolders and files that are not images."""
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
        f"{what} inside class folders would not be used, such as {example}: images must be directly in the folder and "
        "have names like one.jpg."
    ]


# --- spellings --------------------------------------------------------------------------------------------------------
def similar_spellings(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of names that differ only in case, hyphens, spaces or a plural, or by one letter if they are long.

    Names that differ only by a number are not returned.

    >>> similar_spellings(["cat", "Cats", "labrador", "labrodor", "class 1", "class 2"])
    [('cat', 'Cats'), ('labrador', 'labrodor')]
    """
    position = {name: number for number, name in enumerate(names)}
    pairs = {
        (position[pair.desired], position[pair.undesired])
        for pair in overlap(names, names)
        if pair.kind == "exact" and position[pair.desired] < position[pair.undesired]
    }
    by_part = defaultdict(set)
    for number, name in enumerate(names):
        for part in _without_one_letter(_letters(name)):
            by_part[part].add(number)
    for numbers in by_part.values():
        pairs |= {pair for pair in pairwise(sorted(numbers)) if _differ(names[pair[0]], names[pair[1]])}
    return [(names[one], names[other]) for one, other in sorted(pairs)]


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _without_one_letter(word: str) -> set[str]:
    """Return the word and all forms of it with one letter removed.

    Two words that differ by one letter share one of these forms.
    """
    if not _SHORTEST <= len(word) <= _LONGEST:
        return set()
    return {word} | {f"{word[:place]}{word[place + 1 :]}" for place in range(len(word))}


def _differ(one: str, other: str) -> bool:
    """Return whether two names differ in more than a number."""
    without = ["".join(letter for letter in _letters(name) if not letter.isdigit()) for name in (one, other)]
    return without[0] != without[1] or _letters(one) == _letters(other)
