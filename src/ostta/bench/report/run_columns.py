"""The columns that pictures of a run are drawn from, out of its records in memory or out of the file they were kept in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.types import Error
from ...evaluation.loop import Records

_COLUMNS = ("label", "score", "threshold", "known", "index")


@dataclass(frozen=True)
class RunColumns:
    """One entry an image, in the order of the stream; labels are -1 for undesired images, a threshold is NaN where there is none."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    known: NDArray[np.bool_]
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, records: Records) -> RunColumns:
        return cls(
            records.labels,
            records.scores(),
            records.column("threshold"),
            records.column("known"),
            records.column("index"),
        )

    @classmethod
    def read(cls, path: Path) -> RunColumns:
        """From the parquet file that `write_records` made."""
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(path, columns=list(_COLUMNS))
            columns: dict[str, Any] = {name: table.column(name).to_numpy() for name in _COLUMNS}
        except (OSError, KeyError, pyarrow.ArrowException) as problem:
            raise Error(f"The records {path} cannot be read ({str(problem).splitlines()[0]}).") from None
        scores = columns["score"].astype(np.float64)
        finite = np.isfinite(scores)
        if not finite.any():
            raise Error(f"None of the scores in the records {path} is finite.")
        return cls(
            columns["label"].astype(np.int64),
            np.where(finite, scores, scores[finite].min() - 1.0),
            columns["threshold"].astype(np.float64),
            columns["known"].astype(bool),
            columns["index"].astype(np.int64),
        )

    def thinned(self, most: int) -> NDArray[np.int64]:
        """At most so many places, evenly through the stream: all that a picture can show."""
        return np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).astype(np.int64))

    def cumulative(self) -> dict[str, NDArray[np.float64]]:
        """The running accuracies; NaN until both sides have been seen."""
        desired = self.labels >= 0
        right = self.known & (self.index == self.labels)
        with np.errstate(divide="ignore", invalid="ignore"):
            acc_d = 100 * np.cumsum(right & desired) / np.cumsum(desired)
            acc_u = 100 * np.cumsum(~self.known & ~desired) / np.cumsum(~desired)
            both = acc_d + acc_u
            hm = np.where(both > 0, 2 * acc_d * acc_u / both, np.where(np.isnan(both), np.nan, 0.0))
        return {"Acc_D": acc_d, "Acc_U": acc_u, "HM": hm}


def score_limits(runs: list[RunColumns]) -> tuple[float, float]:
    """One range for all pictures, so that they can be compared by eye."""
    scores = np.concatenate([run.scores for run in runs])
    low, high = float(scores.min()), float(scores.max())
    margin = 0.03 * (high - low) or 0.01
    return low - margin, high + margin
