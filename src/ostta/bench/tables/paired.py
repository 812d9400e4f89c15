"""Paired intervals for the differences of a suite, from the records that its runs kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.types import Error
from ...evaluation.intervals import METRICS, OF_SCORES, Outcomes, Resampling, Values
from ...evaluation.measures import RunColumns
from ..result import Result
from ..spec import run_key

_COLUMNS = ("label", "score", "known", "index", "source", "number", "domain")


def read_outcomes(path: Path) -> Outcomes:
    """From the parquet file that a run kept."""
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, columns=list(_COLUMNS))
        columns: dict[str, Any] = {name: table.column(name).to_numpy() for name in _COLUMNS}
    except (OSError, KeyError, pyarrow.ArrowException) as problem:
        raise Error(f"The records {path} cannot be read ({str(problem).splitlines()[0]}).") from None
    scores = columns["score"].astype(np.float64)
    finite = np.isfinite(scores)
    # As in the figures of the result: an image without a score is never accepted, and is below all others.
    lowest = scores[finite].min() - 1.0 if finite.any() else 0.0
    return Outcomes.of(
        columns["label"],
        np.where(finite, scores, lowest),
        columns["known"],
        columns["index"],
        columns["source"],
        columns["number"],
        columns["domain"],
    )


def read_run_columns(path: Path) -> RunColumns:
    """The columns that measures are computed from, in the order of the stream, from the parquet file that a run kept."""
    import pyarrow
    import pyarrow.parquet

    names = ("label", "score", "known", "index", "adapted", "pseudo_label", "verdict", "probability", "undecided")
    try:
        there = pyarrow.parquet.read_schema(path).names
        table = pyarrow.parquet.read_table(path, columns=[name for name in names if name in there])
        return RunColumns.of({name: table.column(name).to_pylist() for name in table.column_names})
    except (OSError, KeyError, pyarrow.ArrowException) as problem:
        raise Error(f"The records {path} cannot be read ({str(problem).splitlines()[0]}).") from None


@dataclass(frozen=True, eq=False)
class _Measured:
    """What of a run's records is kept: its figures in all resamples, and what it said of each image in the order of the stream."""

    values: dict[str, Values]
    # Of the images in their order: two runs can be paired where it is the same.
    order: int
    places: NDArray[np.int64]
    answers: NDArray[np.int64]
    index: NDArray[np.int64]
    scores: Values

    def said(self, metric: str) -> NDArray[Any]:
        """What of it the metric depends on."""
        if metric in OF_SCORES:
            return self.scores
        return self.index if metric == "accuracy" else self.answers


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """The differences of pairs of runs, one row a pair: of the images as they are, then in each resample.

    images: how many different ones. changed: on how many of them the two sides differ, in any pair.
    """

    resampled: Values
    images: int
    changed: int


class PairedDifferences:
    """Differences between the runs of a suite in the same resamples, as far as records are there.

    All runs share one set of resamples, so differences may be averaged over streams too. `unusable` are the
    files of records that cannot be read, or are of other images than the rest.
    """

    def __init__(self, folder: Path, results: Iterable[Result], metrics: Sequence[str]) -> None:
        self._folder, self._metrics = folder, [metric for metric in metrics if metric in METRICS]
        self.unusable: list[str] = []
        self._measured: dict[str, _Measured | None] = {}
        # One run of each stream is enough to know which images there are.
        kept = [result for result in results if result.records is not None and self._metrics]
        streams = {result.stream_identity: result for result in kept}
        shown = [outcomes for result in streams.values() if (outcomes := self._read(result)) is not None]
        self._resampling = Resampling(shown) if shown else None

    def __bool__(self) -> bool:
        return self._resampling is not None

    def difference(self, ours: Sequence[Result], theirs: Sequence[Result], metric: str) -> PairedDifference | None:
        """One run a seed on each side; None where it cannot be had."""
        if self._resampling is None or metric not in self._metrics or not ours:
            return None
        parts, images, changed = [], set[int](), set[int]()
        for one, other in zip(ours, theirs, strict=True):
            if one.stream_identity != other.stream_identity:
                return None
            first, second = self._of(one), self._of(other)
            if first is None or second is None:
                return None
            if first.order != second.order:
                self._give_up(one)
                return None
            parts.append(first.values[metric] - second.values[metric])
            images.update(first.places.tolist())
            changed.update(first.places[first.said(metric) != second.said(metric)].tolist())
        rows = np.stack(parts)
        return PairedDifference(rows, len(images), len(changed)) if np.isfinite(rows[:, 0]).all() else None

    def _of(self, result: Result) -> _Measured | None:
        key = run_key(result.spec)
        if key not in self._measured:
            self._measured[key] = self._measure(result)
        return self._measured[key]

    def _measure(self, result: Result) -> _Measured | None:
        outcomes, drawn = self._read(result), self._resampling
        if outcomes is None or drawn is None:
            return None
        continual = result.spec.scenario.kind == "continual"
        try:
            # The HM of a continual stream is the mean of its domains'.
            values = {m: drawn.values([outcomes], m, by_domain=continual and m == "hm") for m in self._metrics}
            places = drawn.places(outcomes)
        except KeyError:
            self._give_up(result)
            return None
        answers = np.where(outcomes.accepted, outcomes.index, -1)
        return _Measured(values, hash(tuple(outcomes.images)), places, answers, outcomes.index, outcomes.scores)

    def _read(self, result: Result) -> Outcomes | None:
        if result.records is None:
            return None
        try:
            return read_outcomes(self._folder / result.records)
        except Error:
            self._give_up(result)
            return None

    def _give_up(self, result: Result) -> None:
        if result.records is not None and result.records not in self.unusable:
            self.unusable.append(result.records)
