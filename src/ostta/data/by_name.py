"""Open data sets by name. `names.py` parses the names, `catalogue.py` lists the known sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..config import plugins
from ..core.checks import shown
from ..core.errors import translate_errors
from ..core.types import Error
from ..io import ROOT_VARIABLE, data_folder, read_regular
from .catalogue import CATALOGUE, Entry, Kind, Layout, Split
from .class_names import ClassList, checked_classes, class_list, spoken
from .corruptions import checked
from .corruptions.dataset import generated
from .dataset import Dataset
from .names import DatasetRow, Name, dataset_names, parse_name
from .readers.arrays import read_cifar_c, read_idx, read_mat, read_own_idx
from .readers.base import Images, check_labels
from .readers.features import open_features
from .readers.folders import IMAGE_SUFFIXES, read_annotations, read_class_folders, read_list, read_own_folder
from .readers.hub import disk_folder, read_disk, read_hub
from .readers.parquet import read_parquet
from .readers.shards import read_shards

__all__ = ["IMAGE_SUFFIXES", "Dataset", "DatasetRow", "dataset_names", "open_dataset"]

# Builds a data set of a plug-in or a file of the user from the data folder.
Factory = Callable[[Path | None], Dataset]
_SAMPLE = Path(__file__).parent / "sample"
# Two corruptions have longer names in the published files.
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

    code = "dataset-missing"


def open_dataset(
    name: str,
    root: Path | None = None,
    *,
    corruption: str = "snow",
    severity: int = 5,
    seed: int = 0,
    limit: int | None = None,
    classes: Sequence[str] | None = None,
    named: bool = True,
    code: Mapping[str, Factory] | None = None,
) -> Dataset:
    """Open the data set called `name`. `dataset_names` lists the names.

    root:        the data folder; by default the value of the environment variable OSTTA_DATA.
    corruption, severity, seed: used by corrupted sets only.
    limit:       take the first `limit` images in the order of the set.
    classes:     class names in label order. For a folder, they select and order the class folders.
    named:       False for unknown images, whose classes do not matter: a folder may contain images directly, and a
                 file needs no class names.
    code:        factories of the names of the form path/file.py:Name. This function does not open such files.

    >>> len(open_dataset("sample:cifar10", limit=20))
    20
    """
    names = None if classes is None else checked_classes(classes)
    if limit is not None and limit < 1:
        raise Error(f"`limit` is {limit}: it must be 1 or more images.", code="limit-invalid")
    parsed = parse_name(name)
    if not parsed.corrupted:
        dataset = _open_clean(name, parsed, root, names, named, limit, code)
    else:
        dataset = _open_corrupted(name, parsed, root, names, named, corruption, severity, seed)
    return dataset if limit is None else replace(dataset, labels=dataset.labels[:limit], files=dataset.files[:limit])


def _open_clean(
    name: str,
    parsed: Name,
    root: Path | None,
    classes: tuple[str, ...] | None,
    named: bool,
    limit: int | None = None,
    code: Mapping[str, Factory] | None = None,
) -> Dataset:
    if parsed.kind in ("plugin", "file"):
        return _open_plugin(name, parsed, root, classes, code or {})
    if parsed.kind == "known":
        return _open_known(name, parsed, _require_root(root, name), classes, limit)
    if parsed.kind == "features":
        return open_features(name, root, classes, named)
    path, origin = Path(parsed.base).expanduser(), str(parsed.kind)
    if parsed.kind == "hub":
        return _own(name, read_hub(parsed.base), classes, origin, parsed.base, named)
    if parsed.kind == "disk":
        path, images = disk_folder(parsed.base)[0], read_disk(parsed.base)
    elif parsed.kind == "sample":
        path, origin = _SAMPLE / f"{parsed.base}.parquet", "embedded"
        images = read_parquet(path)
    elif parsed.kind == "folder":
        images = read_own_folder(path, classes, named)
    else:
        images = read_parquet(path) if parsed.kind == "parquet" else read_own_idx(path)
    return _own(name, images, classes, origin, str(path), named)


def _open_plugin(
    name: str, parsed: Name, root: Path | None, classes: tuple[str, ...] | None, code: Mapping[str, Factory]
) -> Dataset:
    if parsed.kind == "file" and name not in code:
        message = f"The data set {name!r} is in a file of code: only a command line or a suite may name such a file."
        raise Error(message, code="code-not-allowed")
    factory = code[name] if parsed.kind == "file" else plugins.registered("dataset", parsed.base)
    dataset = factory(data_folder(root))
    if not isinstance(dataset, Dataset):
        message = f"The function of the data set {name!r} must return an ostta.data.Dataset, not {shown(dataset)}."
        raise Error(message, code="plugin-invalid")
    names = classes or checked_classes(dataset.classes)
    check_labels(dataset.labels, names, name)
    return replace(dataset, name=name, classes=names)


def _open_corrupted(
    name: str,
    parsed: Name,
    root: Path | None,
    classes: tuple[str, ...] | None,
    named: bool,
    corruption: str,
    severity: int,
    seed: int,
) -> Dataset:
    """Open the published corrupted files if there are any for this split, else compute the corruption."""
    instructions = ""
    if parsed.kind == "known" and parsed.split in ("", next(iter(CATALOGUE[parsed.base].splits))):
        dataset = _open_published(name, parsed.base, _require_root(root, name), classes, corruption, severity)
        if dataset is not None:
            return dataset
        files = CATALOGUE[parsed.base].published
        instructions = "" if files is None else files.instructions(corruption)
    try:
        clean = _open_clean(parsed.clean, parsed, root, classes, named)
    except AbsentError as problem:
        if not instructions:
            raise
        # The published files come first: they are sufficient, and some clean sets cannot be downloaded.
        raise AbsentError(
            f"The published files of '{name}', {corruption}, are not in '{data_folder(root)}'. {instructions} Without "
            "them, the "
            f"corruption is computed from the clean set. {problem}"
        ) from problem
    return generated(name, clean, corruption, severity, seed, data_folder(root))


def _own(name: str, images: Images, classes: tuple[str, ...] | None, origin: str, layout: str, named: bool) -> Dataset:
    """Return the data set of files of the user."""
    names = classes or images.names
    if names is None and not named:
        names = tuple(str(label) for label in range(int(images.labels.max(initial=0)) + 1))
    if names is None:
        message = f"The class names of '{layout}' are unknown: give them in label order as `classes`."
        raise Error(message, code="classes-missing")
    check_labels(images.labels, names, layout)
    return Dataset(
        name, checked_classes(names), images.labels, origin, "", images.read, layout=layout, files=images.files
    )


# --- sets of the catalogue --------------------------------------------------------------------------------------------
def _require_root(root: Path | None, name: str) -> Path:
    folder = data_folder(root)
    if folder is None:
        raise Error(
            f"The data set '{name}' needs the folder of your data sets: give it as `root` (on the command line "
            "--data), or set "
            f"the environment variable {ROOT_VARIABLE}.",
            code="data-folder-missing",
        )
    if not folder.is_dir():
        raise Error(f"The data folder '{folder}' does not exist.", code="data-folder-missing")
    return folder


def _open_known(name: str, parsed: Name, root: Path, classes: tuple[str, ...] | None, limit: int | None) -> Dataset:
    entry = CATALOGUE[parsed.base]
    split_name = parsed.split or next(iter(entry.splits))
    split = entry.splits[split_name]
    layout = next((layout for layout in split.layouts if (root / layout.path).exists()), None)
    if layout is None:
        # The first two are the usual places; the others are spellings that some projects use.
        places = " or ".join(f"ROOT/{layout.path}" for layout in split.layouts[:2])
        raise AbsentError(
            f"The data set '{name}' is not in '{root}': it should be at {places}. {entry.instructions(split_name)}"
        )
    path = root / layout.path
    images = _READERS[layout.kind](path, class_list(entry.classes), limit)
    names = _known_classes(parsed.base, entry, root, classes, images)
    check_labels(images.labels, names, path)
    complete, note = _compare_with_official(split, layout, images, split_name, limit)
    origin = "official" if complete else _ORIGINS.get(layout.kind, layout.kind)
    return Dataset(name, names, images.labels, origin, note, images.read, str(path), images.files)


def _open_published(
    name: str, base: str, root: Path, classes: tuple[str, ...] | None, corruption: str, severity: int
) -> Dataset | None:
    """Open the published corrupted files of a set; None if this corruption is not in the data folder."""
    entry = CATALOGUE[base]
    checked(corruption, severity)
    if entry.published is None:
        return None
    folder, published_name = root / entry.published.folder, PUBLISHED_NAMES.get(corruption, corruption)
    if entry.published.form == "npy":
        path = folder / f"{published_name}.npy"
        if not path.is_file():
            return None
        images = read_cifar_c(path, severity)
    else:
        path = folder / published_name / str(severity)
        if not path.is_dir():
            return None
        images = read_class_folders(path, class_list(entry.classes).folders).mixed()
    names = _known_classes(base, entry, root, classes, images)
    check_labels(images.labels, names, path)
    note = f"the official {entry.published.folder} files: {corruption}, severity {severity}"
    complete = len(images.labels) == entry.published.expected.official
    if not complete:
        note += f", {_difference(len(images.labels), entry.published.expected.official)}"
    origin = "official" if complete else "folder"
    return Dataset(
        name, names, images.labels, origin, note, images.read, str(path), images.files, f"{corruption} {severity}"
    )


def _compare_with_official(
    split: Split, layout: Layout, images: Images, split_name: str, limit: int | None
) -> tuple[bool, str]:
    """Return whether these are all of the official images, and a note for readers of figures if they are not."""
    official, count = split.expected.official, len(images.labels)
    if split.any_prefix:
        return True, "" if limit is not None or count == official else f"the first {count:,} of {official:,} images"
    if count != official:
        return False, layout.copies.get(count, f"{_difference(count, official)} of the {split_name} split")
    if layout.lossless and images.jpeg:
        return False, "a copy that was re-encoded as JPEG: not the official pixels"
    return True, ""


def _difference(count: int, official: int) -> str:
    return f"{count:,} images instead of the official {official:,}"


def _known_classes(
    base: str, entry: Entry, root: Path, classes: tuple[str, ...] | None, images: Images
) -> tuple[str, ...]:
    """Return the names of the user, else those in ROOT/classes.json, else those of the file, else the included list."""
    return checked_classes(classes or _listed_classes(root, base) or images.names or class_list(entry.classes).names)


def _listed_classes(root: Path, name: str) -> tuple[str, ...] | None:
    """Return the class names in ROOT/classes.json, in label order; None if the file does not list this set."""
    path = root / "classes.json"
    if not path.is_file():
        return None
    content = read_regular(path, "file of class names")
    with translate_errors("classes-invalid", f"The class names in '{path}' cannot be read: {{reason}}.", ValueError):
        listed = json.loads(content.decode("utf-8-sig"))
    if isinstance(listed, dict) and listed.get(name) is None:
        return None
    names = listed[name] if isinstance(listed, dict) else None
    if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
        message = f"'{path}' must be a JSON object from data set names, such as '{name}', to lists of class names."
        raise Error(message, code="classes-invalid")
    return checked_classes([spoken(item) for item in names])
