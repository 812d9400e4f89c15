"""Names of data sets: parse a name and list all names.

    mnist              a data set of the catalogue in its default split
    mnist:train        the same data set in another split
    sample:mnist       a sample that ships with ostta
    folder:PATH        user images; also parquet:PATH, idx:PATH, disk:PATH and hub:OWNER/NAME
    features:FILE.npz  a feature file; features:NAME is the file features/NAME.npz in the data folder
    PATH/FILE.py:NAME  a function in a user file; a package can register such a function under a name

A "c" after the first word, or after the name of a sample, selects the corrupted data set: mnistc, mnistc:train,
sample:mnistc, folderc:PATH.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from ..config import plugins
from ..core.types import Error
from ..feature_files import PREFIX, SUFFIX
from ..io import absolute_path
from .catalogue import CATALOGUE, Published
from .class_names import class_list

Own = Literal["folder", "parquet", "idx", "disk", "hub", "features"]
# Samples that ship with ostta, and their numbers of images.
SAMPLES = {"cifar10": 1_000, "mnist": 1_000, "photos": 100, "photos_unknown": 100}
OWN: tuple[Own, ...] = get_args(Own)
PATHS: tuple[Own, ...] = ("folder", "parquet", "idx", "disk")
# Rows of `ostta ls datasets` for user data.
_OWN_ROWS = {
    "folder:PATH": "Your own images: a folder with one folder of images per class.",
    "parquet:PATH": "Your own parquet file with the columns image and label.",
    "idx:PATH": "Your own idx file of grey images, as MNIST's, with the file of labels beside it.",
    "disk:PATH": "A folder written by `save_to_disk` of the datasets library, optionally with :SPLIT.",
    "hub:OWNER/NAME": "Any image set of the hub or its cache, optionally with /CONFIG and :SPLIT.",
    "features:PATH": "Image features in a file written by `ostta features extract`; see docs/features.md.",
}
_CORRUPTED_ROW = (
    "Any clean set with a corruption that is computed when the set is opened, such as sample:cifar10c, mnistc, "
    "svhnc:train or folderc:PATH."
)


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed name. `base` is a data set of the catalogue, a sample, a path, or the name of a plug-in or file.

    `split` is empty for the default split.
    """

    kind: Literal["known", "sample", "plugin", "file"] | Own
    base: str
    split: str
    corrupted: bool

    @property
    def clean(self) -> str:
        """Name of the data set without corruption."""
        head = self.base if self.kind in ("known", "plugin", "file") else f"{self.kind}:{self.base}"
        return f"{head}:{self.split}" if self.split else head

    @property
    def published(self) -> Published | None:
        """Published corrupted files of this data set. Only default splits have such files."""
        if self.kind != "known" or not self.corrupted:
            return None
        entry = CATALOGUE[self.base]
        return entry.published if self.split in ("", entry.default_split) else None


class DatasetRow(NamedTuple):
    """A row of `ostta ls datasets`. The first of `splits` is the default split."""

    name: str
    splits: tuple[str, ...]
    images: int | None
    classes: int | None
    where: str


def parse_name(name: str) -> Name:
    """Parse the name of a data set.

    >>> parse_name("mnistc:train")
    Name(kind='known', base='mnist', split='train', corrupted=True)
    """
    head, _, rest = name.partition(":")
    if head == "sample":
        base, corrupted = _without_c(rest, SAMPLES)
        if base:
            return Name("sample", base, "", corrupted)
    own, corrupted = _without_c(head, OWN)
    if own and rest:
        if own == "features" and corrupted:
            message = f"'{name}' cannot be used: a corruption changes images, and features:{rest} has only features."
            raise Error(message, code="dataset-unknown")
        return Name(cast(Own, own), rest, "", corrupted)
    if is_file(name):
        return Name("file", name, "", False)
    base, corrupted = _without_c(head, CATALOGUE)
    if not base:
        plugin, corrupted = _without_c(name, plugins.registered_names("dataset"))
        if plugin:
            return Name("plugin", plugin, "", corrupted)
    if not base or (corrupted and not CATALOGUE[base].clean):
        names = ", ".join(row.name for row in dataset_names()[:-1])
        raise Error(
            f"There is no data set '{name}': choose one of {names}. Replace PATH by your path, and append c to the "
            "name of a clean set for its corrupted form.",
            code="dataset-unknown",
        )
    splits = CATALOGUE[base].splits
    if rest not in splits and ":" in name:
        message = f"The data set '{head}' has no split '{rest}': choose one of {', '.join(splits)}."
        raise Error(message, code="dataset-unknown")
    return Name("known", base, rest, corrupted)


def dataset_names() -> tuple[DatasetRow, ...]:
    """Return all names that `open_dataset` accepts, with download instructions."""
    rows = []
    for name, entry in CATALOGUE.items():
        splits, count = tuple(entry.splits), len(class_list(entry.classes).names)
        rows.append(DatasetRow(name, splits, entry.splits[splits[0]].expected.official, count, entry.instructions()))
        if entry.published is not None:
            how = f"{entry.published.instructions()[:-1]}; without them, the corruption is computed from {name}."
            rows.append(DatasetRow(f"{name}c", splits, entry.published.expected.official, count, how))
    for name in plugins.registered_names("dataset"):
        if name not in CATALOGUE:
            rows.append(DatasetRow(name, (), None, None, f"A plug-in of {plugins.package('dataset', name)}."))
    for name, images in SAMPLES.items():
        what = "photographs of Caltech-101" if name.startswith("photos") else f"the first {images:,} test images"
        rows.append(DatasetRow(f"sample:{name}", (), images, 10, f"Included: {what}."))
    rows += [DatasetRow(name, (), None, None, where) for name, where in _OWN_ROWS.items()]
    return (*rows, DatasetRow("NAMEc", (), None, None, _CORRUPTED_ROW))


def is_file(name: str) -> bool:
    """Return whether `name` refers to a data set in a Python file, path/file.py:Name."""
    return plugins.names_file(name) and not _without_c(name.partition(":")[0], OWN)[0]


def is_own(name: str) -> bool:
    """Return whether `name` refers to a user data set, corrupted or not.

    >>> is_own("folderc:pets"), is_own("mnist")
    (True, False)
    """
    head, _, rest = name.partition(":")
    return bool(rest and _without_c(head, OWN)[0])


def placed(name: str, folder: Path | None = None) -> str:
    """Make the path in `name` absolute, so that the same data always has the same name.

    A relative path starts at `folder`, by default the current folder.

    >>> placed("mnist"), placed("folder:/data/./cats")
    ('mnist', 'folder:/data/cats')
    """
    head, _, rest = name.partition(":")
    is_path = _without_c(head, PATHS)[0] != "" or (name.startswith(PREFIX) and rest.endswith(SUFFIX))
    if not rest or not is_path:
        return name
    return f"{head}:{absolute_path(Path(rest), folder)}"


def _without_c(word: str, known: Collection[str]) -> tuple[str, bool]:
    """Return the known word and whether a "c" follows it. The word is empty if it is not known."""
    if word in known:
        return word, False
    if word.endswith("c") and word[:-1] in known:
        return word[:-1], True
    return "", False
