"""Opening the sets of the catalogue: find the layout, read it, name its classes, compare its count."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ..core.types import Error
from ..io import ROOT_VARIABLE, data_folder
from . import corruptions
from .catalogue import CATALOGUE, Entry, Kind, Layout, Split
from .class_lists import ClassList, class_list
from .class_names import checked_classes, spoken
from .dataset import Dataset
from .readers.cifar_c import read_cifar_c
from .readers.folders import read_class_folders
from .readers.idx import read_idx
from .readers.labelled import Images, check_labels
from .readers.lists import read_annotations, read_list
from .readers.mat import read_mat
from .readers.parquet import read_parquet
from .readers.shards import read_shards

# The published files call two of the corruptions by a longer name.
PUBLISHED_NAMES = {"elastic": "elastic_transform", "jpeg": "jpeg_compression"}

_READERS: Mapping[Kind, Callable[[Path, ClassList, int | None], Images]] = {
    "parquet": lambda path, classes, limit: read_parquet(path),
    "idx": lambda path, classes, limit: read_idx(path),
    "mat": lambda path, classes, limit: read_mat(path),
    "folder": lambda path, classes, limit: read_class_folders(path, classes.folders).mixed(),
    "inner_folder": lambda path, classes, limit: read_class_folders(path, classes.folders, inner="images").mixed(),
    "list": lambda path, classes, limit: read_list(path, classes.folders).mixed(),
    "annotations": lambda path, classes, limit: read_annotations(path, classes.folders),
    "shards": lambda path, classes, limit: read_shards(path, limit),
}
_ORIGINS: Mapping[Kind, str] = {"inner_folder": "folder", "annotations": "list"}


class AbsentError(Error):
    """A data set of the catalogue is not in the data folder."""


def data_root(root: Path | None, name: str) -> Path:
    """The folder of the data sets, which must be there for the set called `name`."""
    folder = data_folder(root)
    if folder is None:
        raise Error(
            f"The data set '{name}' needs the folder your data sets are in: "
            f"give it as `root` (on the command line --data), or set the environment variable {ROOT_VARIABLE}."
        )
    if not folder.is_dir():
        raise Error(f"The data folder '{folder}' does not exist.")
    return folder


def open_known(
    name: str, base: str, split_name: str, root: Path, given: tuple[str, ...] | None, limit: int | None
) -> Dataset:
    """The set `base` of the catalogue in one split (empty for the default), called `name`."""
    entry = CATALOGUE[base]
    split_name = split_name or next(iter(entry.splits))
    split = entry.splits[split_name]
    layout = next((layout for layout in split.layouts if (root / layout.path).exists()), None)
    if layout is None:
        # The first two are the usual ones; the others are spellings that some projects use.
        places = " or ".join(f"ROOT/{layout.path}" for layout in split.layouts[:2])
        raise AbsentError(
            f"The data set '{name}' is not in '{root}', it should be at {places}. {entry.instructions(split_name)}"
        )
    path = root / layout.path
    images = _READERS[layout.kind](path, class_list(entry.classes), limit)
    classes = _classes(base, entry, root, given, images)
    check_labels(images.labels, classes, path)
    complete, note = _faithful(split, layout, images, split_name, limit)
    origin = "official" if complete else _ORIGINS.get(layout.kind, layout.kind)
    return Dataset(name, classes, images.labels, origin, note, images.read, str(path), images.files)


def open_published(
    name: str, base: str, root: Path, given: tuple[str, ...] | None, corruption: str, severity: int
) -> Dataset | None:
    """The published corrupted files of the set `base`, or None where this corruption is not there."""
    entry = CATALOGUE[base]
    corruptions.checked(corruption, severity)
    if entry.published is None:
        return None
    folder, word = root / entry.published.folder, PUBLISHED_NAMES.get(corruption, corruption)
    if entry.published.form == "npy":
        path = folder / f"{word}.npy"
        if not path.is_file():
            return None
        images = read_cifar_c(path, severity)
    else:
        path = folder / word / str(severity)
        if not path.is_dir():
            return None
        images = read_class_folders(path, class_list(entry.classes).folders).mixed()
    classes = _classes(base, entry, root, given, images)
    check_labels(images.labels, classes, path)
    note = f"the official {entry.published.folder} files: {corruption}, severity {severity}"
    complete = len(images.labels) == entry.published.expected.official
    if not complete:
        note += f", {_difference(len(images.labels), entry.published.expected.official)}"
    origin = "official" if complete else "folder"
    return Dataset(
        name, classes, images.labels, origin, note, images.read, str(path), images.files, f"{corruption} {severity}"
    )


def _faithful(split: Split, layout: Layout, images: Images, split_name: str, limit: int | None) -> tuple[bool, str]:
    """Whether these are the official images, all of them, and what to tell a reader of figures if not."""
    official, found = split.expected.official, len(images.labels)
    if split.any_prefix:
        return True, "" if limit is not None or found == official else f"the first {found:,} of {official:,} images"
    if found != official:
        return False, layout.copies.get(found, f"{_difference(found, official)} of the {split_name} split")
    if layout.lossless and images.jpeg:
        return False, "a copy that was re-encoded as JPEG: not the official pixels"
    return True, ""


def _difference(found: int, official: int) -> str:
    return f"{found:,} images instead of the official {official:,}"


def _classes(base: str, entry: Entry, root: Path, given: tuple[str, ...] | None, images: Images) -> tuple[str, ...]:
    """The person's names, else those in ROOT/classes.json, else the file's own, else the list that ships."""
    names = given or _listed_classes(root, base) or images.names or class_list(entry.classes).names
    return checked_classes(names)


def _listed_classes(root: Path, name: str) -> tuple[str, ...] | None:
    """The class names in ROOT/classes.json, in label order."""
    path = root / "classes.json"
    if not path.is_file():
        return None
    try:
        listed = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as problem:
        raise Error(f"The class names in '{path}' cannot be read: {problem}.") from problem
    if not isinstance(listed, dict):
        raise Error(f"'{path}' must be a JSON object from the names of data sets to lists of class names.")
    names = listed.get(name)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        raise Error(f"The entry '{name}' in '{path}' must be a list of class names.")
    return checked_classes([spoken(item) for item in names])
