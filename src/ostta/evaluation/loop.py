"""The evaluation loop of all methods, stream -> adapter -> records, and the records: one prediction per image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..adapter import Adapter
from ..core.errors import import_extra
from ..core.text import counted
from ..core.types import Error, Prediction, Timing
from ..lookahead import look_ahead
from ..streams import Sample
from . import metrics
from .intervals import Outcomes
from .measures import RunColumns

if TYPE_CHECKING:
    import pandas

# Fields of predictions that are columns of the table.
_FIELDS = (
    "known", "index", "score", "threshold", "mu_desired", "mu_undesired", "verdict", "adapted", "loss", "reason",
    "pseudo_label",
)  # fmt: skip


@dataclass(repr=False)
class Records:
    """Predictions of a run, image by image, as columns: the result of `evaluate`.

    >>> records = Records()
    >>> records.add(Sample(image, 0, "my photos", 1), adapter.step(image))
    >>> records
    Records(1 image: 1 desired, 0 undesired; 1 accepted, 0 updates)
    """

    source: list[str] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    label: list[int] = field(default_factory=list)
    domain: list[int] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    features: list[NDArray[np.float32] | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.predictions)

    def __repr__(self) -> str:
        desired = int((self.labels >= 0).sum())
        accepted, updates = int(self.column("known").sum()), int(self.column("adapted").sum())
        return (
            f"Records({counted(len(self), 'image')}: {desired} desired, {len(self) - desired} undesired; "
            f"{accepted} accepted, {counted(updates, 'update')})"
        )

    def add(self, sample: Sample, prediction: Prediction) -> None:
        """Append one image and its prediction.

        >>> records = Records()
        >>> records.add(Sample(image, 0, "my photos", 1), adapter.step(image))
        >>> len(records)
        1
        """
        self.source.append(sample.source)
        self.number.append(sample.index)
        self.label.append(sample.label)
        self.domain.append(sample.domain)
        features = None
        if prediction.features is not None:
            # An array takes an eighth of the memory of a tuple, and all features are kept until the end of the run.
            features = np.array(prediction.features, dtype=np.float32)
            prediction = replace(prediction, features=None)
        self.features.append(features)
        self.predictions.append(prediction)

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array(self.label, dtype=np.int64)

    def column(self, name: str) -> NDArray[Any]:
        """Return one field of the predictions as an array; None becomes NaN in columns of numbers.

        >>> records.column("known").tolist()
        [True, True, False]
        """
        # Predictions of a plug-in may lack optional fields such as `probability`.
        values = [getattr(prediction, name, None) for prediction in self.predictions]
        if name in ("known", "adapted", "undecided"):
            return np.array(values, dtype=bool)
        if name in ("index", "pseudo_label"):
            return np.array(values, dtype=np.int64)
        if name in ("verdict", "reason"):
            return np.array([None if value is None else str(value) for value in values], dtype=object)
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    @property
    def diagnostics(self) -> list[str]:
        """Names of all diagnostics that occur in the predictions."""
        return sorted({name for prediction in self.predictions for name in prediction.diagnostics})

    def diagnostic(self, name: str) -> NDArray[np.float64]:
        """Return one diagnostic of the predictions, NaN if a prediction has none.

        >>> records.diagnostic("matches").tolist()
        [nan, nan, nan]
        """
        return np.array([prediction.diagnostics.get(name, math.nan) for prediction in self.predictions])

    def scores(self) -> NDArray[np.float64]:
        """Return the scores. A score that is not finite ranks below all others, because its image is never accepted.

        >>> records.scores().round(2).tolist()
        [0.45, 0.45, 0.16]
        """
        scores: NDArray[np.float64] = self.column("score")
        if not np.isfinite(scores).any():
            raise Error("None of the scores is finite, so no figure can be computed.", code="scores-not-finite")
        return metrics.ranked_scores(scores)

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics in percent; None if a side has no image.

        >>> records.metrics()["acc_desired"]
        100.0
        """
        return metrics.summary(self.labels, self.scores(), self.column("known"), self.column("index"))

    def run_columns(self) -> RunColumns:
        """Return the columns for the measures of `ostta.evaluation.measures`.

        >>> from ostta.evaluation.measures import find_measure
        >>> find_measure("openauc")(records.run_columns())
        100.0
        """
        names = ("known", "index", "score", "adapted", "pseudo_label", "verdict", "probability", "undecided")
        return RunColumns.of({"label": self.label} | {name: self.column(name) for name in names})

    def outcomes(self) -> Outcomes:
        """Return the columns for confidence intervals of differences.

        >>> from ostta.evaluation.intervals import paired_difference
        >>> paired_difference([records.outcomes()], [records.outcomes()], "accuracy")
        Interval(+0.00 [+0.00, +0.00])
        """
        known, index = self.column("known"), self.column("index")
        return Outcomes.of(self.labels, self.scores(), known, index, self.source, self.number, self.domain)

    def metrics_by_domain(self) -> dict[int, dict[str, float | None]]:
        """Return the metrics of each domain.

        >>> sorted(records.metrics_by_domain())
        [0]
        """
        columns = (self.labels, self.scores(), self.column("known"), self.column("index"))
        domains = np.array(self.domain, dtype=np.int64)
        return {
            int(number): metrics.summary(*(column[domains == number] for column in columns))
            for number in np.unique(domains)
        }

    def timings(self, part: str) -> NDArray[np.float64]:
        """Return the milliseconds of one part of the steps: encode, decide or update.

        >>> bool((records.timings("encode") > 0).all())
        True
        """
        return np.array([getattr(prediction.ms, part) for prediction in self.predictions])

    def columns(self) -> dict[str, Any]:
        """Return all columns by name, as in `to_pandas` and in files of records.

        >>> list(records.columns())[:6]
        ['source', 'number', 'label', 'domain', 'known', 'index']
        """
        columns: dict[str, Any] = {name: getattr(self, name) for name in ("source", "number", "label", "domain")}
        columns |= {name: self.column(name) for name in _FIELDS}
        probability = self.column("probability")
        if np.isfinite(probability).any():
            columns |= {"probability": probability, "undecided": self.column("undecided")}
        for name in self.diagnostics:
            columns[f"diagnostic_{name}" if name in columns else name] = self.diagnostic(name)
        if any(prediction.events for prediction in self.predictions):
            columns["events"] = [
                ", ".join(event.kind for event in prediction.events) or None for prediction in self.predictions
            ]
        columns |= {f"ms_{part.name}": self.timings(part.name) for part in fields(Timing)}
        if any(row is not None for row in self.features):
            columns["features"] = self.features
        return columns

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with one row per image, in the order of the stream.

        source, number:       origin of the image
        label:                number of its class, -1 if it is unknown
        domain:               number of its domain
        known, index, score, threshold, mu_desired, mu_undesired, verdict, adapted, loss, reason, pseudo_label:
                              as in `Prediction`
        probability, undecided:  if any image has a probability
        one column for each diagnostic of the method, such as `matches` of ROSITA
        events:               kinds of the events, if there are any
        ms_encode, ms_decide, ms_update:  milliseconds
        features:             one array per row, if the adapter option `features` is on

        >>> table = records.to_pandas()
        >>> table[table["label"] < 0]["verdict"].tolist()
        ['unreliable_undesired']
        """
        table: pandas.DataFrame = import_extra("pandas", "A table of records", "bench").DataFrame(self.columns())
        return table


class Running:
    """Running accuracies for the progress line, updated after every image."""

    def __init__(self) -> None:
        self._right = self._desired = self._rejected = self._undesired = 0

    def add(self, label: int, prediction: Prediction) -> None:
        if label >= 0:
            self._desired += 1
            self._right += prediction.known and prediction.index == label
        else:
            self._undesired += 1
            self._rejected += not prediction.known

    @property
    def hm(self) -> float | None:
        if not self._desired or not self._undesired:
            return None
        return metrics.harmonic_mean(100 * self._right / self._desired, 100 * self._rejected / self._undesired)


def evaluate(
    adapter: Adapter,
    stream: Iterable[Sample],
    watch: Callable[[int, float | None], None] | None = None,
    records: Records | None = None,
    step: Callable[[Sample], Prediction] | None = None,
    ahead: int = 1,
) -> Records:
    """Step `adapter` through `stream` and return the records. `watch(images, HM)` is called after every image.

    `records` are the records of earlier images of a resumed stream; the new records are appended to them. `step`
    replaces the step on the image of a sample. `ahead` images are encoded in one batch, as in `Adapter.stream`.

    >>> evaluate(adapter, [Sample(image, 0, "my photos", number) for number in range(2)])
    Records(2 images: 2 desired, 0 undesired; 2 accepted, 0 updates)
    """
    records = Records() if records is None else records
    running = Running()
    for label, prediction in zip(records.label, records.predictions, strict=True):
        running.add(label, prediction)
    for upcoming in look_ahead(adapter, stream, attrgetter("image"), ahead, position=len(records)):
        sample = upcoming.item
        prediction = upcoming.step() if step is None else step(sample)
        records.add(sample, prediction)
        running.add(sample.label, prediction)
        if watch is not None:
            watch(len(records), running.hm)
    return records
