"""Checking a data set before it is used: whether it is complete, and what the paper says about its size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.types import Error
from .by_name import Dataset, open_dataset
from .catalogue import CATALOGUE, Expected
from .names import SAMPLES, Name, parse_name


@dataclass(frozen=True)
class Check:
    """A set that can be used, with what is odd about it. `size` is (width, height) of its first image."""

    dataset: Dataset
    expected: Expected | None
    size: tuple[int, int]
    warnings: tuple[str, ...]


def check_dataset(name: str, root: Path | None = None, *, corruption: str = "snow", severity: int = 5) -> Check:
    """Open `name`, look for every file and decode an image; an Error means that it cannot be used.

    >>> check_dataset("sample:mnist").warnings
    ()
    """
    dataset = open_dataset(name, root, corruption=corruption, severity=severity, named=False)
    absent = [path for path in dataset.files if not path.is_file()]
    if absent:
        raise Error(
            f"The data set '{name}' cannot be used: {len(absent):,} of its {len(dataset):,} image files are not there, "
            f"the first is '{absent[0]}'."
        )
    expected = expected_of(parse_name(name))
    size = dataset.image(0).size
    return Check(dataset, expected, size, tuple(_warnings(dataset, expected)))


def expected_of(name: Name) -> Expected | None:
    """How many images the set should have; None for a person's own."""
    if name.kind == "sample":
        return Expected(SAMPLES[name.base])
    if name.kind != "known":
        return None
    entry = CATALOGUE[name.base]
    default = next(iter(entry.splits))
    if name.corrupted and entry.published is not None and name.split in ("", default):
        return entry.published.expected
    return entry.splits[name.split or default].expected


def _warnings(dataset: Dataset, expected: Expected | None) -> list[str]:
    found = []
    if expected is not None and len(dataset) != expected.official:
        found.append(f"There are {len(dataset):,} images where {expected.official:,} are expected.")
    empty = np.flatnonzero(np.bincount(dataset.labels, minlength=len(dataset.classes)) == 0)
    if len(empty):
        names = ", ".join(dataset.classes[label] for label in empty[:5])
        found.append(f"{len(empty):,} of the {len(dataset.classes):,} classes have no image, such as {names}.")
    return found
