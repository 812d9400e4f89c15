"""The one loop: stream -> adapter -> records. No method has a loop of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..adapter import Adapter
from ..core.types import Error, Prediction, Timing
from ..core.words import counted
from ..lookahead import look_ahead
from ..streams import Sample
from . import metrics
from .intervals import Outcomes
from .measures import RunColumns

if TYPE_CHECKING:
    import pandas

# The fields of predictions that are columns of the records for readers.
_FIELDS = (
    "known", "index", "score", "threshold", "mu_desired", "mu_undesired", "verdict", "adapted", "loss", "reason", "pseudo_label",
)  # fmt: skip


@dataclass(repr=False)
class Records:
    """What happened, image by image, as columns: what `evaluate` returns.

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
        """One image more, and what was said about it.

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
            # As an array they take an eighth of what a tuple of Python's numbers does, and all of them stay until the end.
            features = np.array(prediction.features, dtype=np.float32)
            prediction = replace(prediction, features=None)
        self.features.append(features)
        self.predictions.append(prediction)

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array(self.label, dtype=np.int64)

    def column(self, name: str) -> NDArray[Any]:
        """One field of the predictions; None becomes NaN in columns of numbers.

        >>> records.column("known").tolist()
        [True, True, False]
        """
        # `probability` is optional: an identifier, or a plug-in's prediction, may have none.
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
        """The names of the diagnostics that any of the predictions has."""
        return sorted({name for prediction in self.predictions for name in prediction.diagnostics})

    def diagnostic(self, name: str) -> NDArray[np.float64]:
        """One diagnostic of the predictions, NaN where there is none.

        >>> records.diagnostic("matches").tolist()
        [nan, nan, nan]
        """
        return np.array([prediction.diagnostics.get(name, math.nan) for prediction in self.predictions])

    def scores(self) -> NDArray[np.float64]:
        """The scores; one that is not finite counts as lower than all others, as such an image is never accepted.

        >>> records.scores().round(2).tolist()
        [0.45, 0.45, 0.16]
        """
        scores: NDArray[np.float64] = self.column("score")
        finite = np.isfinite(scores)
        if not finite.any():
            raise Error("None of the scores is finite.")
        return np.where(finite, scores, scores[finite].min() - 1.0)

    def metrics(self) -> dict[str, float | None]:
        """The five figures, in percent; None where one side has no image.

        >>> records.metrics()["acc_desired"]
        100.0
        """
        return metrics.summary(self.labels, self.scores(), self.column("known"), self.column("index"))

    def run_columns(self) -> RunColumns:
        """The columns that the measures of `ostta.evaluation.measures` are computed from.

        >>> from ostta.evaluation.measures import find_measure
        >>> find_measure("openauc")(records.run_columns())
        100.0
        """
        names = ("known", "index", "score", "adapted", "pseudo_label", "verdict", "probability", "undecided")
        return RunColumns.of({"label": self.label} | {name: self.column(name) for name in names})

    def outcomes(self) -> Outcomes:
        """The columns that intervals of differences are made from.

        >>> from ostta.evaluation.intervals import paired_difference
        >>> paired_difference([records.outcomes()], [records.outcomes()], "accuracy")
        Interval(+0.00 [+0.00, +0.00])
        """
        known, index = self.column("known"), self.column("index")
        return Outcomes.of(self.labels, self.scores(), known, index, self.source, self.number, self.domain)

    def metrics_by_domain(self) -> dict[int, dict[str, float | None]]:
        """The figures of each domain's images alone, wherever in the stream they came.

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
        """Milliseconds of one part of the steps: encode, decide or update.

        >>> bool((records.timings("encode") > 0).all())
        True
        """
        return np.array([getattr(prediction.ms, part) for prediction in self.predictions])

    def columns(self) -> dict[str, Any]:
        """All that readers may want, as columns by name: what `to_pandas` and the files of records hold.

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
        """One row an image, in the order of the stream.

        source, number: where the image came from; label: the number of its class, -1 if undesired; domain: its domain's number.
        known, index, score, threshold, mu_desired, mu_undesired, verdict, adapted, loss, reason, pseudo_label: of the `Prediction`;
        None is a missing value. `probability`, that the image is known, and `undecided` are there if any image has a probability.
        Then one column for each of the method's diagnostics, such as ROSITA's `matches`;
        events: their kinds, if there were any;
        ms_encode, ms_decide, ms_update: milliseconds; and features, an array in each row, if the adapter was asked for them.

        >>> table = records.to_pandas()
        >>> table[table["label"] < 0]["verdict"].tolist()
        ['unreliable_undesired']
        """
        try:
            import pandas
        except ImportError as problem:
            raise Error('Records as a table need pandas: install it with `pip install "ostta[bench]"`.') from problem
        return pandas.DataFrame(self.columns())


class Running:
    """The accuracies so far, for the progress line, without a second pass over the records."""

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


def _image_of(sample: Sample) -> Image.Image:
    return sample.image


def evaluate(
    adapter: Adapter,
    stream: Iterable[Sample],
    watch: Callable[[int, float | None], None] | None = None,
    records: Records | None = None,
    step: Callable[[Sample], Prediction] | None = None,
    ahead: int = 1,
) -> Records:
    """Step `adapter` through `stream`. `watch(images so far, HM so far)` is called after every image.

    `records` are those of the images before, where a stream is gone on with; the new ones join them. `step` is how a sample
    is shown to the adapter, where not by its image. `ahead` images are encoded in one batch, as in `Adapter.stream`.

    >>> evaluate(adapter, [Sample(image, 0, "my photos", number) for number in range(2)])
    Records(2 images: 2 desired, 0 undesired; 2 accepted, 0 updates)
    """
    records = Records() if records is None else records
    running = Running()
    for label, prediction in zip(records.label, records.predictions, strict=True):
        running.add(label, prediction)
    for upcoming in look_ahead(adapter, stream, _image_of, ahead, position=len(records)):
        sample = upcoming.item
        prediction = upcoming.step() if step is None else step(sample)
        records.add(sample, prediction)
        running.add(sample.label, prediction)
        if watch is not None:
            watch(len(records), running.hm)
    return records
