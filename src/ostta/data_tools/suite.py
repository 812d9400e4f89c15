"""Download all data sets of a benchmark suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..bench.runner import plan, sets_needed
from ..bench.suite import load_suite
from ..core.types import Error
from ..data.by_name import open_dataset
from ..data.catalogue import CATALOGUE
from ..data.names import parse_name


def get_missing(suite: str, root: Path, download: Callable[[str, str], None], report: Callable[[str], None]) -> bool:
    """Call `download(name, corruption)` for each missing data set of a suite. Return whether all are available.

    `report` is called with a message about each data set that is not downloaded.
    """
    complete = True
    for name, corruption in sets_needed(plan(load_suite(suite))):
        parsed = parse_name(name)
        label = f"{name}, {corruption}" if parsed.corrupted else name
        if parsed.kind == "file":
            continue  # defined by user code, which only a run executes
        try:
            origin = open_dataset(name, root, corruption=corruption, limit=1, named=False).origin
        except Error as problem:
            origin = None
            if parsed.kind != "known":
                complete = False
                report(f"{label} is missing: {problem}")
                continue
        # Corrupted images can be generated, but published files take precedence.
        has_published = parsed.kind == "known" and CATALOGUE[parsed.base].published is not None
        if origin is not None and not (origin == "generated" and has_published):
            report(f"{label} is available.")
            continue
        try:
            download(name, corruption)
        except Error as problem:
            complete = complete and origin is not None
            report(f"{label} is {'missing' if origin is None else 'generated from the clean set'}: {problem}")
    return complete
