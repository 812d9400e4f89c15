"""Paired intervals for the differences of a suite, from the records that its runs kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.types import Error
from ...intervals import METRICS, Outcomes, Resampling
from ..result import Result
from ..spec import run_key

Values = NDArray[np.float64]

_COLUMNS = ("label", "score", "known", "index", "source", "number", "domain")
# What of a spec decides which images a run shows.
OF_THE_STREAM = (
    "desired", "undesired", "corruption", "severity", "ratio", "limit", "classes", "undesired_classes", "scenario", "draw", "seed",
)  # fmt: skip


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


class PairedDifferences:
    """Differences between the runs of a suite in the same resamples, as far as records are there.

    All runs share one set of resamples, so differences may be averaged over streams too. `unusable` are the
    files of records that cannot be read, or are of other images than the rest.
    """

    def __init__(self, folder: Path, results: Iterable[Result], metrics: Sequence[str]) -> None:
        self._folder, self._metrics = folder, [metric for metric in metrics if metric in METRICS]
        self.unusable: list[str] = []
        self._values: dict[str, dict[str, Values]] = {}
        self._images: dict[str, int] = {}
        # One run of each stream is enough to know which images there are.
        kept = [result for result in results if result.records is not None and self._metrics]
        streams = {_stream(result): result for result in kept}
        shown = [outcomes for result in streams.values() if (outcomes := self._read(result)) is not None]
        self._resampling = Resampling(shown) if shown else None

    def __bool__(self) -> bool:
        return self._resampling is not None

    def difference(self, ours: Sequence[Result], theirs: Sequence[Result], metric: str) -> Values | None:
        """The mean over pairs of runs, of the images as they are and in each resample; None where it cannot be had."""
        if self._resampling is None or metric not in self._metrics or not ours:
            return None
        parts = []
        for one, other in zip(ours, theirs, strict=True):
            if one.stream.hash != other.stream.hash or _stream(one) != _stream(other):
                return None
            first, second = self._of(one).get(metric), self._of(other).get(metric)
            if first is None or second is None:
                return None
            if self._images[run_key(one.spec)] != self._images[run_key(other.spec)]:
                self._give_up(one)
                return None
            parts.append(first - second)
        mean: Values = np.mean(parts, axis=0)
        return mean if np.isfinite(mean[0]) else None

    def _of(self, result: Result) -> dict[str, Values]:
        key = run_key(result.spec)
        if key not in self._values:
            outcomes, resampling = self._read(result), self._resampling
            self._images[key] = 0 if outcomes is None else hash(frozenset(outcomes.images))
            continual = result.spec.scenario.kind == "continual"
            try:
                self._values[key] = (
                    {}
                    if outcomes is None or resampling is None
                    # The HM of a continual stream is the mean of its domains'.
                    else {m: resampling.values([outcomes], m, by_domain=continual and m == "hm") for m in self._metrics}
                )
            except KeyError:
                self._values[key] = self._give_up(result)
        return self._values[key]

    def _read(self, result: Result) -> Outcomes | None:
        if result.records is None:
            return None
        try:
            return read_outcomes(self._folder / result.records)
        except Error:
            self._give_up(result)
            return None

    def _give_up(self, result: Result) -> dict[str, Values]:
        if result.records is not None and result.records not in self.unusable:
            self.unusable.append(result.records)
        return {}


def _stream(result: Result) -> str:
    return repr([result.stream.hash, *(getattr(result.spec, name) for name in OF_THE_STREAM)])
