"""The names of data sets, taken apart.

    mnist                a set of the catalogue, in its default split
    mnist:train          the same, in another split
    sample:mnist         a sample that ships
    folder:PATH          one's own images; parquet:PATH, idx:PATH, disk:PATH and hub:OWNER/NAME likewise
    features:FILE.npz    image features in a feature file; features:NAME is the file features/NAME.npz of the data folder
    PATH/FILE.py:NAME    a function in a file of one's own; a package may register such a function by a name

A "c" behind the word that names the set, or behind the word that says what PATH is, makes it the corrupted set: mnistc,
mnistc:train, sample:mnistc, folderc:PATH.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from ..config import plugins
from ..core.types import Error
from ..feature_files import PREFIX, SUFFIX
from ..io import absolute_path
from .catalogue import CATALOGUE

Own = Literal["folder", "parquet", "idx", "disk", "hub", "features"]
SAMPLES = ("cifar10", "mnist")
OWN: tuple[Own, ...] = get_args(Own)
PATHS: tuple[Own, ...] = ("folder", "parquet", "idx", "disk")


@dataclass(frozen=True, slots=True)
class Name:
    """What a name means. `base` is a set of the catalogue, a sample, a path, or the name of one from outside.

    `split` is empty for the default.
    """

    kind: Literal["known", "sample", "plugin", "file"] | Own
    base: str
    split: str
    corrupted: bool

    @property
    def clean(self) -> str:
        """The name of the set without corruption."""
        bare = {"known": self.base, "plugin": self.base, "file": self.base, "sample": f"sample:{self.base}"}
        head = bare.get(self.kind, f"{self.kind}:{self.base}")
        return f"{head}:{self.split}" if self.split else head


def parse_name(name: str) -> Name:
    """The parts of `name`, or an Error that lists what there is.

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
            raise Error(
                f"'{name}' cannot be used: a corruption changes images, and features:{rest} has features alone."
            )
        return Name(cast(Own, own), rest, "", corrupted)
    if is_file(name):
        return Name("file", name, "", False)
    base, corrupted = _without_c(head, CATALOGUE)
    if not base:
        outside, corrupted = _without_c(name, plugins.registered_names("dataset"))
        if outside:
            return Name("plugin", outside, "", corrupted)
    if not base or (corrupted and not CATALOGUE[base].clean):
        raise Error(
            f"There is no data set '{name}': choose one of {', '.join(known_names())}, with a path of yours in the place of "
            "PATH, and with a c behind the name of a clean set for its corrupted form."
        )
    splits = CATALOGUE[base].splits
    if rest not in splits and ":" in name:
        raise Error(f"The data set '{head}' has no split '{rest}': choose one of {', '.join(splits)}.")
    return Name("known", base, rest, corrupted)


def is_file(name: str) -> bool:
    """Whether `name` is a data set in a file of code, path/file.py:Name."""
    return plugins.names_file(name) and not _without_c(name.partition(":")[0], OWN)[0]


def is_own(name: str) -> bool:
    """Whether `name` is a set of the person's own, corrupted or not.

    >>> is_own("folderc:pets"), is_own("mnist")
    (True, False)
    """
    head, _, rest = name.partition(":")
    return bool(rest and _without_c(head, OWN)[0])


def placed(name: str) -> str:
    """`name` with its path, if it has one, from the root: however it was written, the same data have the same name.

    >>> placed("mnist"), placed("folder:/data/./cats")
    ('mnist', 'folder:/data/cats')
    """
    head, _, rest = name.partition(":")
    is_path = _without_c(head, PATHS)[0] != "" or (name.startswith(PREFIX) and rest.endswith(SUFFIX))
    if not rest or not is_path:
        return name
    return f"{head}:{absolute_path(Path(rest))}"


def known_names() -> tuple[str, ...]:
    """Every name, with PATH and OWNER/NAME where something of the person's own belongs."""
    published = [f"{name}c" for name, entry in CATALOGUE.items() if entry.published]
    samples = [f"sample:{name}" for name in SAMPLES]
    outside = [name for name in plugins.registered_names("dataset") if name not in CATALOGUE]
    own = ("folder:PATH", "parquet:PATH", "idx:PATH", "disk:PATH", "hub:OWNER/NAME", "features:PATH")
    return (*CATALOGUE, *published, *samples, *outside, *own)


def _without_c(word: str, known: Collection[str]) -> tuple[str, bool]:
    """The word that is known, and whether a "c" was behind it; an empty word if it is not."""
    if word in known:
        return word, False
    if word.endswith("c") and word[:-1] in known:
        return word[:-1], True
    return "", False
