"""Open data sets by name. `names.py` parses the names, `catalogue.py` lists the known sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config import plugins
from ..core.checks import shown
from ..core.errors import translate_errors
from ..core.types import Error
from ..io import ROOT_VARIABLE, data_folder, read_regular
from .catalogue import CATALOGUE, Kind, Layout, Published, Split
from .class_names import ClassList, checked_classes, class_list, spoken
from .corruptions import checked
from .corruptions.dataset import generated
from .dataset import Dataset
from .names import DatasetRow, Name, dataset_names, parse_name
from .readers.arrays import read_cifar_c, read_idx, read_mat, read_own_idx
from .readers.base import LabelledImages, check_labels
from .readers.features import open_features
from .readers.folders import IMAGE_SUFFIXES, read_annotations, read_class_folders, read_list, read_own_folder
from .readers.hub import disk_folder, read_disk, read_hub
from .readers.parquet import read_parquet
from .readers.shards import read_shards

__all__ = ["IMAGE_SUFFIXES", "Dataset", "DatasetRow", "dataset_names", "open_dataset"]

# Builds the data set of a plug-in or of a user's Python file from the data folder.
Factory = Callable[[Path | None], Dataset]
_SAMPLE = Path(__file__).parent / "sample"
# Two corruptions have longer names in the published files.
PUBLISHED_NAMES = {"elastic": "elastic_transform", "jpeg": "jpeg_compression"}

_READERS: Mapping[Kind, Callable[[Path, ClassList, int | None], LabelledImages]] = {
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
    """Raised if a data set of the catalogue is not in the data folder."""

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
    """Open a data set by name. `dataset_names` lists the names.

    root:        data folder; by default the value of the environment variable OSTTA_DATA.
    corruption, severity, seed: parameters of corrupted data sets, ignored for others.
    limit:       use only the first `limit` images of the data set.
    classes:     class names in label order. For a folder, they select and order the class folders.
    named:       False for unknown images, whose classes are not used: a folder may contain images directly, and a
                 file needs no class names.
    code:        factories for names of the form path/file.py:Name. This function does not open such files.

    >>> len(open_dataset("sample:cifar10", limit=20))
    20
    """
    names = None if classes is None else checked_classes(classes)
    if limit is not None:
        check_limit(limit)
    parsed = parse_name(name)
    request = _Request(name, parsed, root, names, named, limit, code or {}, corruption, severity, seed)
    dataset = _open_corrupted(request) if parsed.corrupted else _open_clean(request)
    return dataset if limit is None else replace(dataset, labels=dataset.labels[:limit], files=dataset.files[:limit])


def check_limit(limit: int) -> None:
    """Raise an Error unless a number of images is at least 1."""
    if limit < 1:
        raise Error(f"`limit` is {limit}: it must be 1 or more images.", code="limit-invalid")


@dataclass(frozen=True, slots=True)
class _Request:
    """Checked arguments of `open_dataset`, and the parsed name."""

    name: str
    parsed: Name
    root: Path | None
    classes: tuple[str, ...] | None
    named: bool
    limit: int | None
    code: Mapping[str, Factory]
    corruption: str
    severity: int
    seed: int


def _open_clean(request: _Request) -> Dataset:
    kind, base = request.parsed.kind, request.parsed.base
    if kind in ("plugin", "file"):
        return _open_plugin(request)
    if kind == "known":
        return _open_known(request)
    if kind == "features":
        return open_features(request.name, request.root, request.classes, request.named)
    if kind == "hub":
        return _open_own(request, read_hub(base), kind, base)
    if kind == "sample":
        path = _SAMPLE / f"{base}.parquet"
        return _open_own(request, read_parquet(path), "embedded", str(path))
    path = Path(base).expanduser()
    if kind == "disk":
        path, images = disk_folder(base)[0], read_disk(base)
    elif kind == "folder":
        images = read_own_folder(path, request.classes, request.named)
    else:
        images = read_parquet(path) if kind == "parquet" else read_own_idx(path)
    return _open_own(request, images, kind, str(path))


def _open_plugin(request: _Request) -> Dataset:
    name, parsed = request.name, request.parsed
    if parsed.kind == "file" and name not in request.code:
        message = f"The data set {name!r} is in a file of code: only a command line or a suite may name such a file."
        raise Error(message, code="code-not-allowed")
    factory = request.code[name] if parsed.kind == "file" else plugins.registered("dataset", parsed.base)
    dataset = factory(data_folder(request.root))
    if not isinstance(dataset, Dataset):
        message = f"The function of the data set {name!r} must return an ostta.data.Dataset, not {shown(dataset)}."
        raise Error(message, code="plugin-invalid")
    names = checked_classes(request.classes or dataset.classes)
    check_labels(dataset.labels, names, name)
    return replace(dataset, name=name, classes=names)


def _open_corrupted(request: _Request) -> Dataset:
    """Open the published corrupted files of this split, or compute the corruption if there are none."""
    name, corruption, severity = request.name, request.corruption, request.severity
    checked(corruption, severity)
    files = request.parsed.published
    if files is not None:
        dataset = _open_published(request, files)
        if dataset is not None:
            return dataset
    try:
        clean = _open_clean(replace(request, name=request.parsed.clean))
    except AbsentError as problem:
        if files is None:
            raise
        # Mention the published files first: they are sufficient, and some clean data sets cannot be downloaded.
        raise AbsentError(
            f"The published files of '{name}', {corruption}, are not in '{data_folder(request.root)}'. "
            f"{files.instructions(corruption)} Without them, the corruption is computed from the clean set. {problem}"
        ) from problem
    return generated(name, clean, corruption, severity, request.seed, data_folder(request.root))


def _open_own(request: _Request, images: LabelledImages, origin: str, layout: str) -> Dataset:
    """Return a data set of user files."""
    names = request.classes or images.names
    if names is None and not request.named:
        names = tuple(str(label) for label in range(int(images.labels.max(initial=0)) + 1))
    if names is None:
        message = f"The class names of '{layout}' are unknown: give them in label order as `classes`."
        raise Error(message, code="classes-missing")
    return _dataset(request.name, images, names, origin, layout)


def _dataset(
    name: str,
    images: LabelledImages,
    classes: Sequence[str],
    origin: str,
    layout: str,
    note: str = "",
    condition: str = "",
) -> Dataset:
    """Return the data set of these images. Raise an Error if a label has no class."""
    check_labels(images.labels, classes, layout)
    names = checked_classes(classes)
    return Dataset(name, names, images.labels, origin, note, images.read, layout, images.files, condition)


# --- sets of the catalogue --------------------------------------------------------------------------------------------
def _require_root(request: _Request) -> Path:
    folder = data_folder(request.root)
    if folder is None:
        raise Error(
            f"The data set '{request.name}' needs the folder of your data sets: give it as `root` (on the command line "
            f"--data), or set the environment variable {ROOT_VARIABLE}.",
            code="data-folder-missing",
        )
    if not folder.is_dir():
        raise Error(
            f"The data folder '{folder}' does not exist: `ostta data get` creates it and fetches data sets.",
            code="data-folder-missing",
        )
    return folder


def _open_known(request: _Request) -> Dataset:
    root, parsed = _require_root(request), request.parsed
    entry = CATALOGUE[parsed.base]
    split_name = parsed.split or entry.default_split
    split = entry.splits[split_name]
    layout = next((layout for layout in split.layouts if (root / layout.path).exists()), None)
    if layout is None:
        # List only the two common paths; the others are alternative spellings.
        places = " or ".join(f"ROOT/{layout.path}" for layout in split.layouts[:2])
        raise AbsentError(
            f"The data set '{request.name}' is not in '{root}': it should be at {places}. "
            f"{entry.instructions(split_name)}"
        )
    path = root / layout.path
    images = _READERS[layout.kind](path, class_list(entry.classes), request.limit)
    complete, note = _compare_with_official(split, layout, images, split_name, request.limit)
    origin = "official" if complete else _ORIGINS.get(layout.kind, layout.kind)
    return _dataset(request.name, images, _class_names(request, root, images), origin, str(path), note)


def _open_published(request: _Request, files: Published) -> Dataset | None:
    """Open the published corrupted files of a data set. Return None if they are not in the data folder."""
    root, corruption, severity = _require_root(request), request.corruption, request.severity
    folder, published_name = root / files.folder, PUBLISHED_NAMES.get(corruption, corruption)
    if files.form == "npy":
        path = folder / f"{published_name}.npy"
        if not path.is_file():
            return None
        images = read_cifar_c(path, severity)
    else:
        path = folder / published_name / str(severity)
        if not path.is_dir():
            return None
        images = read_class_folders(path, class_list(CATALOGUE[request.parsed.base].classes).folders).mixed()
    note = f"the official {files.folder} files: {corruption}, severity {severity}"
    complete = len(images.labels) == files.expected.official
    if not complete:
        note += f", {_difference(len(images.labels), files.expected.official)}"
    origin = "official" if complete else "folder"
    names = _class_names(request, root, images)
    return _dataset(request.name, images, names, origin, str(path), note, f"{corruption} {severity}")


def _compare_with_official(
    split: Split, layout: Layout, images: LabelledImages, split_name: str, limit: int | None
) -> tuple[bool, str]:
    """Return whether all official images are present, and otherwise a note for result tables."""
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


def _class_names(request: _Request, root: Path, images: LabelledImages) -> tuple[str, ...]:
    """Return the class names from the user, ROOT/classes.json, the file or the included list, in this precedence."""
    base = request.parsed.base
    return request.classes or _listed_classes(root, base) or images.names or class_list(CATALOGUE[base].classes).names


def _listed_classes(root: Path, name: str) -> tuple[str, ...] | None:
    """Return the class names in ROOT/classes.json in label order, or None if the file does not list this data set."""
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
