"""Data sets by name: class names, labels, and images decoded one at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..core.types import Error
from . import cifar_c, corruptions
from .class_names import checked_classes, spoken
from .images import read_image
from .parquet import ParquetImages

ROOT_VARIABLE = "OSTTA_DATA"
IMAGE_SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"])
_SAMPLE = Path(__file__).parent / "sample"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with labels. `labels` index `classes`; `image(i)` decodes one image.

    `origin` says where the pixels come from: "official", "generated" (a corruption made here), "parquet", "folder" or
    "embedded" (the sample that ships). `note` is what a reader of figures on this set should be told, or empty.
    """

    name: str
    classes: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    origin: str
    note: str
    _read: Callable[[int], Image.Image] = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, i: int) -> Image.Image:
        """Image number `i`, in mode RGB."""
        if not 0 <= i < len(self):
            raise Error(f"There is no image number {i} in '{self.name}', which has images 0 to {len(self) - 1}.")
        return self._read(int(i))


class DatasetRow(NamedTuple):
    """A line of `ostta ls datasets`."""

    name: str
    images: int | None
    classes: int | None
    where: str


class _Known(NamedTuple):
    """A set that is looked for under ROOT."""

    file: str
    images: int
    classes: int
    origin: str
    note: str
    where: str


_KNOWN = {
    "cifar10": _Known(
        "cifar10/test.parquet",
        10_000,
        10,
        "official",
        "",
        "Put the test split of the Hugging Face set uoft-cs/cifar10 at ROOT/cifar10/test.parquet.",
    ),
    "cifar100": _Known(
        "cifar100/test.parquet",
        10_000,
        100,
        "official",
        "",
        "Put the test split of the Hugging Face set uoft-cs/cifar100 at ROOT/cifar100/test.parquet.",
    ),
    "mnist": _Known(
        "mnist/test.parquet",
        10_000,
        10,
        "official",
        "",
        "Put the test split of the Hugging Face set ylecun/mnist at ROOT/mnist/test.parquet.",
    ),
    "svhn": _Known(
        "svhn/test.parquet",
        10_000,
        10,
        "parquet",
        "SVHN test digits re-cropped from the full photos: not pixel-identical to the official 32x32 crops",
        "Put 10,000 SVHN test digits of 32x32 pixels at ROOT/svhn/test.parquet.",
    ),
    "tiny_imagenet20": _Known(
        "tiny_imagenet20/train.parquet",
        5_000,
        20,
        "parquet",
        "250 training images of each of the 20 Tiny-ImageNet classes that the paper uses as unknowns, re-encoded as JPEG",
        "Put the 20 classes of Tiny-ImageNet's training set that the paper uses at ROOT/tiny_imagenet20/train.parquet.",
    ),
}
# The corrupted sets: the clean one each is made from, and the folder of its official files.
_CORRUPTED = {"cifar10c": ("cifar10", "CIFAR-10-C"), "cifar100c": ("cifar100", "CIFAR-100-C")}
_SAMPLES = {"sample:cifar10": "cifar10.parquet", "sample:mnist": "mnist.parquet"}
_SAMPLE_CORRUPTED = {"sample:cifar10c": "sample:cifar10"}


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
) -> Dataset:
    """The data set called `name`; `dataset_names` lists them, `folder:PATH` and `parquet:PATH` are a person's own.

    `corruption`, `severity` and `seed` matter to the corrupted sets only. `limit` takes the first so many in file order.
    `classes` gives the names in label order; for a folder it chooses and orders the class folders. Without `named`, for an
    undesired side, classes do not matter: a folder may hold images directly, and a parquet file needs no names.

    >>> len(open_dataset("sample:cifar10", limit=20))
    20
    """
    given = None if classes is None else checked_classes(classes)
    if limit is not None and limit < 1:
        raise Error(f"A limit of {limit} images cannot be used: it must be 1 or more.")
    kind, _, path = name.partition(":")
    if kind == "folder" and path:
        return _limited(_open_folder(name, Path(path).expanduser(), given, named), limit)
    if kind == "parquet" and path:
        return _limited(_open_parquet(name, Path(path).expanduser(), given, "parquet", "", named), limit)
    if name in _SAMPLES:
        return _limited(_open_parquet(name, _SAMPLE / _SAMPLES[name], given, "embedded", ""), limit)
    if name in _SAMPLE_CORRUPTED:
        corruptions.checked(corruption, severity)
        clean = open_dataset(_SAMPLE_CORRUPTED[name], classes=given)
        return _limited(_generated(name, clean, corruption, severity, seed), limit)
    if name in _KNOWN:
        return _limited(_open_known(name, _root(root, name), given), limit)
    if name in _CORRUPTED:
        return _limited(_open_corrupted(name, _root(root, name), given, corruption, severity, seed), limit)
    raise Error(
        f"There is no data set '{name}': choose one of {', '.join(row.name for row in dataset_names())}, "
        "with a path of yours in the place of PATH."
    )


def dataset_names() -> tuple[DatasetRow, ...]:
    """What `open_dataset` knows, with where to get it."""
    rows = [DatasetRow(name, known.images, known.classes, known.where) for name, known in _KNOWN.items()]
    for name, (clean, folder) in _CORRUPTED.items():
        where = f"Made from {clean} when it is opened, unless the official files are in ROOT/{folder}."
        rows.append(DatasetRow(name, _KNOWN[clean].images, _KNOWN[clean].classes, where))
    for name in (*_SAMPLES, *_SAMPLE_CORRUPTED):
        made = " with a corruption made when it is opened" if name in _SAMPLE_CORRUPTED else ""
        rows.append(DatasetRow(name, 1_000, 10, f"Ships with ostta: the first 1,000 test images{made}."))
    rows.append(DatasetRow("folder:PATH", None, None, "Your own images: a folder with one folder of images per class."))
    rows.append(DatasetRow("parquet:PATH", None, None, "Your own parquet file with the columns image and label."))
    return tuple(rows)


def _root(root: Path | None, name: str) -> Path:
    given = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not given:
        raise Error(
            f"The data set '{name}' needs the folder your data sets are in: "
            f"give it as `root` (on the command line --data), or set the environment variable {ROOT_VARIABLE}."
        )
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise Error(f"The data folder '{folder}' does not exist.")
    return folder


def _open_known(name: str, root: Path, given: tuple[str, ...] | None) -> Dataset:
    known = _KNOWN[name]
    path = root / known.file
    if not path.is_file():
        raise Error(f"The data set '{name}' is not in '{root}', it should be at ROOT/{known.file}. {known.where}")
    return _open_parquet(name, path, given or _listed_classes(root, name), known.origin, known.note)


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


def _open_parquet(
    name: str, path: Path, given: tuple[str, ...] | None, origin: str, note: str, named: bool = True
) -> Dataset:
    images = ParquetImages(path)
    classes = given or images.class_names()
    if classes is None and not named:
        classes = tuple(str(label) for label in range(int(images.labels().max(initial=0)) + 1))
    if classes is None:
        raise Error(f"The class names of '{path}' are unknown: give them in label order as `classes`.")
    labels = images.labels()
    if not len(labels):
        raise Error(f"'{path}' holds no images.")
    _check_labels(labels, classes, path)
    return Dataset(name, checked_classes(classes), labels, origin, note, images.image)


def _open_folder(name: str, folder: Path, given: tuple[str, ...] | None, named: bool) -> Dataset:
    if not folder.is_dir():
        raise Error(f"There is no folder '{folder}'.")
    inside = sorted(item for item in folder.iterdir() if item.is_dir() and not item.name.startswith("."))
    loose = sorted(item for item in folder.iterdir() if item.suffix.lower() in IMAGE_SUFFIXES and item.is_file())
    if not inside and loose and not named:
        return Dataset(
            name, (folder.name,), np.zeros(len(loose), np.int64), "folder", "", lambda i: read_image(loose[i])
        )
    if not inside:
        raise Error(f"'{folder}' has no folders in it: it needs one per class, with that class's images inside.")
    by_class = {spoken(item.name): item for item in inside}
    if len(by_class) < len(inside):
        raise Error(f"Two class folders in '{folder}' differ only in underscores and spaces: rename one.")
    classes = given or tuple(by_class)
    paths: list[Path] = []
    labels: list[int] = []
    for label, name_of_class in enumerate(classes):
        class_folder = by_class.get(spoken(name_of_class))
        if class_folder is None:
            raise Error(f"'{folder}' has no folder for the class '{name_of_class}': it has {', '.join(by_class)}.")
        files = sorted(
            item for item in class_folder.iterdir() if item.suffix.lower() in IMAGE_SUFFIXES and item.is_file()
        )
        if not files:
            raise Error(f"The class folder '{class_folder}' has no images ({' '.join(sorted(IMAGE_SUFFIXES))}).")
        paths.extend(files)
        labels.extend([label] * len(files))
    return Dataset(name, classes, np.array(labels, np.int64), "folder", "", lambda i: read_image(paths[i]))


def _open_corrupted(
    name: str, root: Path, given: tuple[str, ...] | None, corruption: str, severity: int, seed: int
) -> Dataset:
    clean_name, folder = _CORRUPTED[name]
    official = cifar_c.official_path(root / folder, corruption)
    corruptions.check_severity(severity)
    if official is None:
        return _generated(name, _open_known(clean_name, root, given), corruption, severity, seed)
    classes = given or _listed_classes(root, clean_name)
    if classes is None:
        raise Error(f"The class names of '{name}' are unknown: list them under '{clean_name}' in ROOT/classes.json.")
    images, labels = cifar_c.read_official(official, severity)
    _check_labels(labels, classes, official.with_name("labels.npy"))
    note = f"the official {folder} file: {corruption}, severity {severity}"
    return Dataset(name, classes, labels, "official", note, lambda i: Image.fromarray(np.array(images[i])))


def _generated(name: str, clean: Dataset, corruption: str, severity: int, seed: int) -> Dataset:
    def read(i: int) -> Image.Image:
        pixels = np.asarray(clean.image(i))
        return Image.fromarray(corruptions.corrupt(pixels, corruption, severity, seed=seed, index=i))

    note = f"made here from {clean.name}: {corruption}, severity {severity}, seed {seed}; not the official files"
    return replace(clean, name=name, origin="generated", note=note, _read=read)


def _check_labels(labels: npt.NDArray[np.int64], classes: Sequence[str], path: Path) -> None:
    wrong = labels[(labels < 0) | (labels >= len(classes))]
    if len(wrong):
        raise Error(
            f"'{path}' has the label {wrong[0]}, but there are {len(classes)} class names: "
            f"labels must be from 0 to {len(classes) - 1}."
        )


def _limited(dataset: Dataset, limit: int | None) -> Dataset:
    return dataset if limit is None else replace(dataset, labels=dataset.labels[:limit])
