"""The figures of a suite or of a folder, whichever a person names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...config.registry import require_known
from ...core.types import Error
from ...evaluation.metrics import FPR95
from ..suite import load_suite, suite_names
from .folder_results import folder_results
from .suite_figures import SuiteFigures
from .suite_results import SuiteResults, collect_results


def figures_of(
    what: str,
    out: Path = Path("ostta-runs"),
    *,
    seeds: Sequence[int] | None = None,
    limit: int | None = None,
    only: Mapping[str, Collection[str]] | None = None,
    fpr95: str = "interpolated",
    given: Mapping[str, Any] | None = None,
) -> SuiteFigures:
    """The figures of the suite called `what`, from the results in `out`; or, where `what` is a folder, of whatever lies there.

    `given` as in `collect_results`.
    """
    require_known(fpr95, FPR95, "convention of FPR95")
    return SuiteFigures(_collected(what, out, seeds, limit, only, given or {}), fpr95)


def is_folder(what: str) -> bool:
    """Whether `what` is a folder of results and not a suite."""
    return Path(what).is_dir() and not what.endswith(".toml") and what not in suite_names()


def _collected(
    what: str,
    out: Path,
    seeds: Sequence[int] | None,
    limit: int | None,
    only: Mapping[str, Collection[str]] | None,
    given: Mapping[str, Any],
) -> SuiteResults:
    if is_folder(what):
        if given:
            raise Error(f"--{next(iter(given))} is for suites: the folder {what} has each run as it was made.")
        if limit is not None:
            raise Error(f"--limit is for suites: the folder {what} has each run with the limit that it was made with.")
        return folder_results(Path(what), seeds, only)
    return collect_results(load_suite(what), out, seeds, limit, only, given)
