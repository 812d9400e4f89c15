"""Per-image records: the parquet file beside a result, and paired differences between runs computed from it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..core.errors import translate_errors
from ..core.types import Error
from ..evaluation.intervals import (
    ALPHA,
    METRICS,
    Interval,
    Outcomes,
    Resampling,
    holm,
    interval,
    over_images,
    over_seeds,
)
from ..evaluation.loop import Records
from ..evaluation.measures import RunColumns, find_measure, regret
from ..evaluation.metrics import OF_SCORES, Values, ranked_scores, right_answers
from ..io import write_atomically
from .result import Result
from .spec import run_key

if TYPE_CHECKING:
    import pyarrow

# Columns that charts, paired intervals and measures need, and columns that only some runs have.
DRAWN = ("label", "score", "threshold", "known", "index")
PAIRED = ("label", "score", "known", "index", "source", "number", "domain")
MEASURED = ("label", "score", "known", "index", "adapted", "pseudo_label", "verdict")
_OPTIONAL = ("probability", "undecided")


def write_records(records: Records, path: Path) -> None:
    """Write the per-image columns as parquet."""
    write_atomically(path, parquet_bytes(records.columns()))


def parquet_bytes(columns: Mapping[str, Any]) -> bytes:
    """Return columns as a parquet file."""
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def read_records(path: Path, required: Sequence[str] = DRAWN) -> RunRecords:
    """Read the parquet file that a run kept; an Error if one of the `required` columns is missing."""
    import pyarrow
    import pyarrow.parquet

    message = f"The records {path} cannot be read ({{reason}})."
    with translate_errors("records-unreadable", message, OSError, ValueError, pyarrow.ArrowException):
        names = pyarrow.parquet.read_schema(path).names
        missing = next((name for name in required if name not in names), None)
        if missing is not None:
            raise ValueError(f"there is no column {missing!r}")
        read = [name for name in dict.fromkeys((*DRAWN, *PAIRED, *MEASURED, *_OPTIONAL)) if name in names]
        return RunRecords(pyarrow.parquet.read_table(path, columns=read))


def records_of(result: Result, folder: Path, required: Sequence[str]) -> RunRecords:
    """Read the records of a result in `folder`; an Error if it kept none or they cannot be read."""
    if result.records is None:
        raise Error("This run kept no records.", code="records-missing")
    return read_records(folder / result.records, required)


class RunRecords:
    """The records of one run, one entry an image in stream order.

    Labels are -1 for unknown images. A threshold is NaN if there was none. Scores that are not finite are replaced by a
    value below all others, as in the figures of the result.
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
        return ranked_scores(np.asarray(self._column("score"), np.float64))

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
        return right_answers(self.labels, self.known, self.index)

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


class RecordedMeasures:
    """Measures of the runs of a folder: from their result files, or from their records, which are read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, RunColumns | None] = {}

    def value(self, result: Result, measure: str, frozen: Result | None) -> float | None:
        """Return a measure of one run. `frozen`: the frozen run of the same seed, for `regret`."""
        if measure in result.measures:
            return result.measures[measure]
        columns = self._columns(result)
        if columns is None:
            return None
        if measure != "regret":
            return find_measure(measure)(columns)
        if frozen is None or frozen.stream.hash != result.stream.hash:
            return None
        base = self._columns(frozen)
        return None if base is None else regret(columns, base)

    def _columns(self, result: Result) -> RunColumns | None:
        key = str(result.records)
        if key not in self._read:
            try:
                self._read[key] = records_of(result, self._folder, MEASURED).measured
            except Error:
                self._read[key] = None
        return self._read[key]


# --- paired differences -----------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Measured:
    """The figures of a run in all resamples, and its answers in stream order."""

    values: dict[str, Values]
    # Hash of the images in their order; equal for runs that can be paired.
    order: int
    places: NDArray[np.int64]
    outcomes: Outcomes


Over = Literal["images", "images and seeds", "seeds"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The 95 % interval of a difference, its p-value, and the samples behind them.

    over: what was sampled. images: number of different images; changed: number of images on which the two sides differ;
    both 0 for an interval over seeds. resampled: one row a seed, for means over streams.
    """

    interval: Interval
    p_value: float
    over: Over
    images: int = 0
    changed: int = 0
    resampled: Values | None = None
    seeds: tuple[int, ...] = ()


class PairedDifferences:
    """Differences between the runs of a suite in shared resamples of images, as far as records exist.

    All runs share one set of resamples, so that differences can be averaged over streams. `unreadable`: files of
    records that cannot be read. `different`: files of records with other images than those of the stream.
    """

    def __init__(self, folder: Path, results: Iterable[Result], metrics: Sequence[str]) -> None:
        self._folder, self._metrics = folder, [metric for metric in metrics if metric in METRICS]
        self.unreadable: list[str] = []
        self.different: list[str] = []
        self._measured: dict[str, _Measured | None] = {}
        # One run of each stream has all of its images.
        kept = [result for result in results if result.records is not None and self._metrics]
        streams = {result.stream_identity: result for result in kept}
        shown = [outcomes for result in streams.values() if (outcomes := self._read(result)) is not None]
        self._resampling = Resampling(shown) if shown else None

    def __bool__(self) -> bool:
        return self._resampling is not None

    def evidence(
        self, ours: Mapping[int, Result], theirs: Mapping[int, Result], metric: str, differences: Mapping[int, float]
    ) -> Evidence | None:
        """Return the evidence of the `differences` of `metric`, one a seed; None if no interval can be computed."""
        pairs = {seed: (ours[seed], theirs[seed]) for seed in differences}
        found = self._over_images(pairs, metric)
        if found is not None:
            return found
        # Seeds that only reorder the same images are not independent samples.
        if all(one.spec.draw == other.spec.draw == "images" for one, other in pairs.values()):
            seeds = over_seeds(list(differences.values()))
            return None if seeds is None else Evidence(*seeds, over="seeds")
        return None

    def _over_images(self, pairs: Mapping[int, tuple[Result, Result]], metric: str) -> Evidence | None:
        """Return the evidence in the resamples of images, from two runs a seed."""
        if self._resampling is None or metric not in self._metrics or not pairs:
            return None
        parts, images, changed = [], set[int](), set[int]()
        for one, other in pairs.values():
            if one.stream_identity != other.stream_identity:
                return None
            first, second = self._of(one), self._of(other)
            if first is None or second is None:
                return None
            if first.order != second.order:
                _note(one, self.different)
                return None
            parts.append(first.values[metric] - second.values[metric])
            images.update(first.places.tolist())
            differ = answers(first.outcomes, metric) != answers(second.outcomes, metric)
            changed.update(first.places[differ].tolist())
        return evidence_of_resamples(np.stack(parts), len(changed), len(images), tuple(pairs))

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
            _note(result, self.different)
            return None
        return _Measured(values, hash(tuple(outcomes.images)), places, outcomes)

    def _read(self, result: Result) -> Outcomes | None:
        try:
            return records_of(result, self._folder, PAIRED).outcomes
        except Error:
            _note(result, self.unreadable)
            return None


def _note(result: Result, files: list[str]) -> None:
    """Append the file of the records to `files`."""
    if result.records is not None and result.records not in files:
        files.append(result.records)


def evidence_of_resamples(resampled: Values, changed: int, images: int, seeds: tuple[int, ...] = ()) -> Evidence | None:
    """Return the evidence of resampled differences, one row a seed; None if too few resamples are finite."""
    found = interval(resampled)
    if not np.isfinite(np.atleast_2d(resampled)[:, 0]).all() or not math.isfinite(found.low):
        return None
    over: Over = "images and seeds" if len(np.atleast_2d(resampled)) > 1 else "images"
    return Evidence(found, over_images(resampled, changed), over, images, changed, resampled, seeds)


def answers(run: Outcomes, metric: str) -> NDArray[Any]:
    """Return the scores, the best classes or the answers of all images, whichever `metric` depends on."""
    if metric in OF_SCORES:
        return run.scores
    return run.index if metric == "accuracy" else np.where(run.accepted, run.index, -1)


def are_significant(family: Sequence[Evidence]) -> list[bool]:
    """Return which differences are significant: the interval excludes zero, and the p-value is small after Holm."""
    corrected = holm([each.p_value for each in family])
    return [each.interval.excludes_zero and chance < ALPHA for each, chance in zip(family, corrected, strict=True)]
