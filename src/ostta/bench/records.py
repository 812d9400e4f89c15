"""Per-image records: the parquet file beside a result, and everything that is read from it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Error
from ..evaluation.intervals import Outcomes
from ..evaluation.measures import RunColumns
from ..evaluation.records import Records
from ..io import write_atomically

if TYPE_CHECKING:
    import pyarrow

# Columns that charts, paired intervals and measures need, and columns that only some runs have.
DRAWN = ("label", "score", "threshold", "known", "index")
PAIRED = ("label", "score", "known", "index", "source", "number", "domain")
MEASURED = ("label", "score", "known", "index", "adapted", "pseudo_label", "verdict")
_OPTIONAL = ("probability", "undecided")


def write_records(records: Records, path: Path) -> None:
    """Write the per-image columns as parquet."""
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(records.columns()), buffer)
    write_atomically(path, buffer.getvalue())


def read_records(path: Path, required: Sequence[str] = DRAWN) -> RunRecords:
    """Read the parquet file that a run kept; an Error if one of the `required` columns is missing."""
    import pyarrow
    import pyarrow.parquet

    try:
        there = pyarrow.parquet.read_schema(path).names
        lacking = next((name for name in required if name not in there), None)
        if lacking is not None:
            raise _unreadable(path, f"there is no column {lacking!r}")
        table = pyarrow.parquet.read_table(
            path, columns=[name for name in dict.fromkeys((*DRAWN, *PAIRED, *MEASURED, *_OPTIONAL)) if name in there]
        )
    except (OSError, pyarrow.ArrowException) as problem:
        raise _unreadable(path, str(problem)) from None
    return RunRecords(table)


class RunRecords:
    """The records of one run, one entry an image in stream order.

    Labels are -1 for unknown images. A threshold is NaN where there was none. Scores that are not finite are replaced by a value
    below all others, as in the figures of the result.
    """

    def __init__(self, table: pyarrow.Table) -> None:
        self._table = table

    @classmethod
    def of(cls, records: Records) -> RunRecords:
        """Return the records of a run that has just ended."""
        import pyarrow

        return cls(pyarrow.table(records.columns()))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        return np.asarray(self._column("label"), np.int64)

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        scores = np.asarray(self._column("score"), np.float64)
        finite = np.isfinite(scores)
        return np.where(finite, scores, scores[finite].min() - 1.0 if finite.any() else 0.0)

    @cached_property
    def thresholds(self) -> NDArray[np.float64]:
        return np.asarray(self._column("threshold"), np.float64)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        return np.asarray(self._column("known"), bool)

    @cached_property
    def index(self) -> NDArray[np.int64]:
        return np.asarray(self._column("index"), np.int64)

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each answer is right: the class of a known image, or the rejection of an unknown one."""
        return np.where(self.labels >= 0, self.known & (self.index == self.labels), ~self.known)

    @cached_property
    def outcomes(self) -> Outcomes:
        """The columns that paired intervals are computed from."""
        places = (self._column(name) for name in ("source", "number", "domain"))
        return Outcomes.of(self.labels, self.scores, self.known, self.index, *places)

    @cached_property
    def measured(self) -> RunColumns:
        """The columns that measures are computed from."""
        there = [name for name in (*MEASURED, *_OPTIONAL) if name in self._table.column_names]
        return RunColumns.of({name: self._table.column(name).to_pylist() for name in there})

    @property
    def has_scores(self) -> bool:
        """Whether any score is finite."""
        return bool(np.isfinite(np.asarray(self._column("score"), np.float64)).any())

    def thinned(self, most: int) -> NDArray[np.int64]:
        """Return at most `most` steps, evenly spaced over the stream."""
        return np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64))

    def cumulative(self) -> dict[str, NDArray[np.float64]]:
        """Return the running accuracies; NaN until both sides have been seen."""
        desired = self.labels >= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            acc_d = 100 * np.cumsum(self.right & desired) / np.cumsum(desired)
            acc_u = 100 * np.cumsum(self.right & ~desired) / np.cumsum(~desired)
            both = acc_d + acc_u
            hm = np.where(both > 0, 2 * acc_d * acc_u / both, np.where(np.isnan(both), np.nan, 0.0))
        return {"Acc_D": acc_d, "Acc_U": acc_u, "HM": hm}

    def _column(self, name: str) -> Any:
        return self._table.column(name).to_numpy()


def score_limits(runs: list[RunRecords]) -> tuple[float, float]:
    """Return one score range for all charts of `runs`, so that they can be compared by eye."""
    scores = np.concatenate([run.scores for run in runs])
    low, high = float(scores.min()), float(scores.max())
    margin = 0.03 * (high - low) or 0.01
    return low - margin, high + margin


def _unreadable(path: Path, reason: str) -> Error:
    return Error(f"The records {path} cannot be read ({reason.splitlines()[0]}).", code="records-unreadable")
