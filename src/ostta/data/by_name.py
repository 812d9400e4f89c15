"""Data sets by name: class names, labels, and images decoded one at a time. `names.py` has the grammar of the names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..config import plugins
from ..core.checks import shown
from ..core.types import Error
from ..io import data_folder
from .catalogue import CATALOGUE
from .class_lists import class_list
from .class_names import checked_classes
from .dataset import Dataset
from .features import open_features
from .from_catalogue import AbsentError, data_root, open_known, open_published
from .generated import generated
from .names import SAMPLES, Name, parse_name
from .readers.folders import IMAGE_SUFFIXES, read_own_folder
from .readers.hub import disk_folder, read_disk, read_hub
from .readers.idx import read_own_idx
from .readers.labelled import Images, check_labels
from .readers.parquet import read_parquet

__all__ = ["IMAGE_SUFFIXES", "SAMPLE_IMAGES", "Dataset", "DatasetRow", "dataset_names", "open_dataset"]

# What makes a data set from outside, given the folder of the data sets.
Make = Callable[[Path | None], Dataset]
SAMPLE_IMAGES = 1_000
_SAMPLE = Path(__file__).parent / "sample"


class DatasetRow(NamedTuple):
    """A line of `ostta ls datasets`; the first of `splits` is the one that the bare name means."""

    name: str
    splits: tuple[str, ...]
    images: int | None
    classes: int | None
    where: str


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
    code: Mapping[str, Make] | None = None,
) -> Dataset:
    """The data set called `name`; `dataset_names` lists them, `folder:PATH` and the like are a person's own.

    `corruption`, `severity` and `seed` matter to the corrupted sets only. `limit` takes the first so many in the set's order.
    `classes` gives the names in label order; for a folder it chooses and orders the class folders. Without `named`, for an
    undesired side, classes do not matter: a folder may hold images directly, and a file needs no names. `code` has the functions
    that stand behind the names of the form path/file.py:Name; no such file is opened here.

    >>> len(open_dataset("sample:cifar10", limit=20))
    20
    """
    given = None if classes is None else checked_classes(classes)
    if limit is not None and limit < 1:
        raise Error(f"A limit of {limit} images cannot be used: it must be 1 or more.")
    parsed = parse_name(name)
    if not parsed.corrupted:
        dataset = _open_clean(name, parsed, root, given, named, limit, code)
    else:
        dataset = _open_corrupted(name, parsed, root, given, named, corruption, severity, seed)
    return dataset if limit is None else replace(dataset, labels=dataset.labels[:limit], files=dataset.files[:limit])


def dataset_names() -> tuple[DatasetRow, ...]:
    """What `open_dataset` knows, with where to get it."""
    rows = []
    for name, entry in CATALOGUE.items():
        splits, count = tuple(entry.splits), len(class_list(entry.classes).names)
        rows.append(DatasetRow(name, splits, entry.splits[splits[0]].expected.official, count, entry.instructions()))
        if entry.published is not None:
            how = f"{entry.published.instructions()[:-1]}; where they are absent, the corruption is made from {name}."
            rows.append(DatasetRow(f"{name}c", splits, entry.published.expected.official, count, how))
    for name in plugins.registered_names("dataset"):
        if name not in CATALOGUE:
            rows.append(DatasetRow(name, (), None, None, f"A plug-in of {plugins.package('dataset', name)}."))
    for name in SAMPLES:
        rows.append(
            DatasetRow(f"sample:{name}", (), SAMPLE_IMAGES, 10, "Ships with ostta: the first 1,000 test images.")
        )
    rows += [
        DatasetRow("folder:PATH", (), None, None, "Your own images: a folder with one folder of images per class."),
        DatasetRow("parquet:PATH", (), None, None, "Your own parquet file with the columns image and label."),
        DatasetRow(
            "idx:PATH",
            (),
            None,
            None,
            "Your own idx file of grey images, as MNIST's, with the file of labels beside it.",
        ),
        DatasetRow(
            "disk:PATH", (), None, None, "A folder made by `save_to_disk` of the datasets library, with :SPLIT at will."
        ),
        DatasetRow(
            "hub:OWNER/NAME", (), None, None, "Any image set of the hub or its cache, with /CONFIG and :SPLIT at will."
        ),
        DatasetRow(
            "features:PATH",
            (),
            None,
            None,
            "Image features in a file that `ostta features extract` wrote; see docs/features.md.",
        ),
        DatasetRow(
            "NAMEc",
            (),
            None,
            None,
            "Any clean set with a corruption made when it is opened, such as sample:cifar10c, mnistc, svhnc:train or "
            "folderc:PATH.",
        ),
    ]
    return tuple(rows)


def _open_clean(
    name: str,
    parsed: Name,
    root: Path | None,
    given: tuple[str, ...] | None,
    named: bool,
    limit: int | None = None,
    code: Mapping[str, Make] | None = None,
) -> Dataset:
    if parsed.kind in ("plugin", "file"):
        return _from_outside(name, parsed, root, given, code or {})
    if parsed.kind == "known":
        return open_known(name, parsed.base, parsed.split, data_root(root, name), given, limit)
    if parsed.kind == "sample":
        path = _SAMPLE / f"{parsed.base}.parquet"
        return _own(name, read_parquet(path), given, "embedded", str(path), named)
    if parsed.kind == "features":
        return open_features(name, root, given, named)
    if parsed.kind == "hub":
        return _own(name, read_hub(parsed.base), given, "hub", parsed.base, named)
    if parsed.kind == "disk":
        return _own(name, read_disk(parsed.base), given, "disk", str(disk_folder(parsed.base)[0]), named)
    path = Path(parsed.base).expanduser()
    if parsed.kind == "folder":
        images = read_own_folder(path, given, named)
    else:
        images = read_parquet(path) if parsed.kind == "parquet" else read_own_idx(path)
    return _own(name, images, given, parsed.kind, str(path), named)


def _from_outside(
    name: str, parsed: Name, root: Path | None, given: tuple[str, ...] | None, code: Mapping[str, Make]
) -> Dataset:
    """What a function of a package or of a person's own file makes of the folder of the data sets."""
    if parsed.kind == "file" and name not in code:
        raise Error(f"The data set {name!r} is in a file, which only a command line or a suite may name.")
    make = code[name] if parsed.kind == "file" else plugins.registered("dataset", parsed.base)
    dataset = make(data_folder(root))
    if not isinstance(dataset, Dataset):
        raise Error(f"The data set {name!r} must be a function that gives an ostta.data.Dataset, not {shown(dataset)}.")
    classes = given or checked_classes(dataset.classes)
    check_labels(dataset.labels, classes, name)
    return replace(dataset, name=name, classes=classes)


def _open_corrupted(
    name: str,
    parsed: Name,
    root: Path | None,
    given: tuple[str, ...] | None,
    named: bool,
    corruption: str,
    severity: int,
    seed: int,
) -> Dataset:
    """The published corrupted files where they are, for the default split; else made here."""
    how = ""
    if parsed.kind == "known" and parsed.split in ("", next(iter(CATALOGUE[parsed.base].splits))):
        published = open_published(name, parsed.base, data_root(root, name), given, corruption, severity)
        if published is not None:
            return published
        files = CATALOGUE[parsed.base].published
        how = "" if files is None else files.instructions(corruption)
    try:
        clean = _open_clean(parsed.clean, parsed, root, given, named)
    except AbsentError as problem:
        if not how:
            raise
        # The published files come first: they are enough, and some clean sets cannot be downloaded.
        raise AbsentError(
            f"The published files of '{name}', {corruption}, are not in '{data_folder(root)}'. {how} Without them, the corruption "
            f"is made from the clean set. {problem}"
        ) from problem
    return generated(name, clean, corruption, severity, seed, data_folder(root))


def _own(name: str, images: Images, given: tuple[str, ...] | None, origin: str, layout: str, named: bool) -> Dataset:
    classes = given or images.names
    if classes is None and not named:
        classes = tuple(str(label) for label in range(int(images.labels.max(initial=0)) + 1))
    if classes is None:
        raise Error(f"The class names of '{layout}' are unknown: give them in label order as `classes`.")
    check_labels(images.labels, classes, layout)
    return Dataset(
        name, checked_classes(classes), images.labels, origin, "", images.read, layout=layout, files=images.files
    )
