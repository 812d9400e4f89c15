"""Measures of a run in addition to the five figures of the paper, computed from the per-image records.

    openauc           share of pairs (known, unknown) in which the known image gets its class and the higher score
    oscr              area under the open-set classification rate curve; equal to `openauc` for the same score
    aupr_known        average precision of the scores, with known images as the positive class
    aupr_unknown      the same with unknown images as the positive class
    share_unknown     share of unknown images, which is the `aupr_unknown` of a random score
    ece               expected calibration error of P(known) in 15 bins of equal mass, 0 to 1
    brier             Brier score of P(known), 0 to 1
    augrc             area under the generalised risk-coverage curve
    error_at_80       share of failures among the 80 % of images with the highest scores; also for 90 and 95
    share_undecided   share of undecided images, which other measures count by their more probable side
    rejected_closed   share of known images that are rejected, on a stream without unknown images
    update_purity     share of updates that used the right label

In risk and coverage, a failure is an unknown image, or a known image with a wrong class. All measures are in percent
except `ece` and `brier`. A measure that cannot be computed from a run is None. `regret` and `worst_tenth` compare
several runs.

A package adds a measure with an entry point of the group `ostta.measures`. A user adds a measure by naming a file,
`path/file.py:Name`, among the metrics of a suite. Both are a function from `RunColumns` to a number or None, or a
`Measure`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import plugins
from ..core.checks import shown
from ..core.errors import reason_of
from ..core.types import Error, Verdict
from .metrics import ranked_scores, right_answers

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BINS = 15
WINDOW = 512


@dataclass(frozen=True, eq=False)
class RunColumns:
    """Per-image columns of one run, in the order of the stream. `labels` are -1 for unknown images.

    `probability` is P(known), NaN if the identifier has none, in which case `undecided` is false. `treated_as_known` is
    the verdict before the update, `pseudo_label` the best class before the update.
    """

    labels: NDArray[np.int64]
    scores: Floats
    accepted: Flags
    index: NDArray[np.int64]
    probability: Floats
    adapted: Flags
    pseudo_label: NDArray[np.int64]
    treated_as_known: Flags
    undecided: Flags

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> RunColumns:
        """Build columns from those of `Records.to_pandas`; `probability` and `undecided` are optional.

        >>> run = RunColumns.of({"label": [0, -1], "score": [0.9, 0.1], "known": [True, False], "index": [0, 0],
        ...                      "adapted": [False, False], "pseudo_label": [0, 0], "verdict": [None, None]})
        >>> run.known.tolist(), run.correct.tolist()
        ([True, False], [True, True])
        """
        scores = ranked_scores(np.asarray(columns["score"], np.float64))
        probability = columns.get("probability")
        missing = np.full(len(scores), math.nan) if probability is None else probability
        treated = (str(Verdict.RELIABLE_DESIRED), str(Verdict.UNRELIABLE_DESIRED))
        return cls(
            np.asarray(columns["label"], np.int64),
            scores,
            np.asarray(columns["known"], bool),
            np.asarray(columns["index"], np.int64),
            np.array([math.nan if value is None else value for value in missing], np.float64),
            np.asarray(columns["adapted"], bool),
            np.asarray(columns["pseudo_label"], np.int64),
            np.array([verdict in treated for verdict in columns["verdict"]], bool),
            np.asarray(columns.get("undecided", np.zeros(len(scores))), bool),
        )

    @property
    def known(self) -> Flags:
        """Whether the image belongs to one of the classes."""
        return np.asarray(self.labels >= 0)

    @property
    def right_class(self) -> Flags:
        """Whether the image is known and its best class is right, accepted or not."""
        return np.asarray(self.known & (self.index == self.labels))

    @property
    def correct(self) -> Flags:
        """Whether the answer is right: a known image accepted with its class, an unknown image rejected."""
        return right_answers(self.labels, self.accepted, self.index)

    @property
    def has_both_sides(self) -> bool:
        return bool(self.known.any() and not self.known.all())


Compute = Callable[[RunColumns], float | None]


@dataclass(frozen=True)
class Measure:
    """A measure; its column heading ends in ↑ or ↓ if one direction is better."""

    name: str
    heading: str
    compute: Compute
    digits: int = 2

    def __call__(self, run: RunColumns) -> float | None:
        """Return the value; None if it cannot be computed from the run or is not finite."""
        try:
            value = self.compute(run)
            return None if value is None or not math.isfinite(value) else float(value)
        except Exception as problem:  # a function of a plug-in may raise anything
            reason = f"{type(problem).__name__}: {reason_of(problem)}"
            raise Error(f"The measure {self.name!r} failed: {reason}.", code="measure-failed") from problem


# --- ranking ----------------------------------------------------------------------------------------------------------
def openauc(run: RunColumns) -> float | None:
    """OpenAUC (Wang et al., 2022): mean over pairs (known i, unknown j) of [class of i right] [s_i > s_j]."""
    if not run.has_both_sides:
        return None
    unknown = np.sort(run.scores[~run.known])
    right = run.scores[run.right_class]
    below, up_to = (np.searchsorted(unknown, right, side).sum() for side in ("left", "right"))
    return 100 * float(below + up_to) / 2 / (int(run.known.sum()) * len(unknown))


def oscr(run: RunColumns) -> float | None:
    """Area under the OSCR curve (Dhamija et al., 2018): known images right against unknown accepted."""
    if not run.has_both_sides:
        return None
    ends, order = _tie_ends(run.scores)
    right, unknown = (np.r_[0, np.cumsum(side[order])[ends]] for side in (run.right_class, ~run.known))
    return 100 * float(np.trapezoid(right / run.known.sum(), unknown / unknown[-1]))


def aupr_known(run: RunColumns) -> float | None:
    """Average precision with known images as the positive class."""
    return _average_precision(run.known, run.scores)


def aupr_unknown(run: RunColumns) -> float | None:
    """Average precision with unknown images as the positive class."""
    return _average_precision(~run.known, -run.scores)


def share_unknown(run: RunColumns) -> float | None:
    """Share of unknown images, which is the AUPR of a random score."""
    return 100 * float((~run.known).mean())


def _average_precision(positive: Flags, scores: Floats) -> float | None:
    if positive.all() or not positive.any():
        return None
    from sklearn.metrics import average_precision_score

    return 100 * float(average_precision_score(positive, scores))


# --- calibration ------------------------------------------------------------------------------------------------------
def ece(run: RunColumns) -> float | None:
    """Mean of |share of known images - mean P(known)| over bins; equal probabilities share a bin."""
    known, probability = _with_probability(run)
    if not len(probability):
        return None
    edges = np.quantile(probability, np.linspace(0, 1, BINS + 1))[1:-1]
    bins = np.searchsorted(edges, probability)
    gaps = [abs(float(np.sum(known[bins == each] - probability[bins == each]))) for each in np.unique(bins)]
    return sum(gaps) / len(probability)


def brier(run: RunColumns) -> float | None:
    """Mean of (P(known) - [image is known])^2."""
    known, probability = _with_probability(run)
    return float(np.mean((probability - known) ** 2)) if len(probability) else None


def _with_probability(run: RunColumns) -> tuple[Floats, Floats]:
    there = np.isfinite(run.probability)
    return run.known[there].astype(np.float64), run.probability[there]


# --- risk and coverage ------------------------------------------------------------------------------------------------
def augrc(run: RunColumns) -> float | None:
    """Area under the generalised risk-coverage curve (Traub et al., 2024)."""
    coverage, risk = _generalised_risk(run)
    return 100 * float(np.trapezoid(risk, coverage))


def error_at(share: float) -> Compute:
    """Return a measure: failures among the images of this coverage, in percent; ties are averaged."""

    def compute(run: RunColumns) -> float | None:
        coverage, risk = _generalised_risk(run)
        return 100 * float(np.interp(share, coverage, risk)) / share

    compute.__doc__ = f"Share of failures among the {100 * share:.0f} % of all images with the highest scores."
    return compute


def _generalised_risk(run: RunColumns) -> tuple[Floats, Floats]:
    """Return coverage from 0 to 1, highest scores first, and the covered failures as a share of all images."""
    ends, order = _tie_ends(run.scores)
    total = len(run.scores)
    failures = np.cumsum(~run.right_class[order])[ends]
    return np.r_[0.0, (ends + 1) / total], np.r_[0.0, failures / total]


def _tie_ends(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of the last image of each score, and the order from the highest to the lowest score."""
    order = np.argsort(-scores, kind="stable")
    return np.flatnonzero(np.diff(scores[order], append=np.nan) != 0), order


# --- other measures ---------------------------------------------------------------------------------------------------
def share_undecided(run: RunColumns) -> float | None:
    """Share of undecided images; None if the identifier has no probabilities."""
    return 100 * float(run.undecided.mean()) if np.isfinite(run.probability).any() else None


def rejected_closed(run: RunColumns) -> float | None:
    """Share of rejected known images; None on a stream with unknown images."""
    return 100 * float((~run.accepted).mean()) if run.known.all() and len(run.known) else None


def update_purity(run: RunColumns) -> float | None:
    """Share of updates with a known image and its class, or an unknown image treated as unknown."""
    right = np.where(run.treated_as_known, run.pseudo_label == run.labels, ~run.known)
    return 100 * float(right[run.adapted].mean()) if run.adapted.any() else None


def regret(ours: RunColumns, frozen: RunColumns, window: int = WINDOW) -> float:
    """Largest loss of accuracy against the frozen classifier in any `window` consecutive images, in points.

    Accuracy is (C+1)-way: known images accepted with their class, and unknown images rejected. A stream shorter than
    the window is one window. The result is negative if the run is better in every window.

    >>> columns = {"label": [0, 0], "score": [0.9, 0.8], "index": [0, 0], "pseudo_label": [0, 0],
    ...            "adapted": [False] * 2, "verdict": [None] * 2}
    >>> frozen, ours = (RunColumns.of({**columns, "known": known}) for known in ([True, True], [True, False]))
    >>> regret(ours, frozen), regret(ours, frozen, window=1)
    (50.0, 100.0)
    """
    if not np.array_equal(ours.labels, frozen.labels):
        raise Error("Regret requires two runs on the same images in the same order.", code="runs-not-paired")
    size = min(window, len(ours.labels))
    lost = np.cumsum(np.r_[0, frozen.correct.astype(np.int64) - ours.correct])
    return 100 * float((lost[size:] - lost[:-size]).max()) / size


def worst_tenth(values: Sequence[float], *, lower_is_better: bool = False) -> float | None:
    """Return the mean of the worst tenth of the values of several orders; None for fewer than ten orders.

    >>> worst_tenth([70.0, 71.0, 72.0, 73.0, 74.0, 75.0, 76.0, 77.0, 78.0, 60.0]), worst_tenth([70.0])
    (60.0, None)
    """
    if len(values) < 10:
        return None
    worst = sorted(values, reverse=lower_is_better)[: math.ceil(len(values) / 10)]
    return sum(worst) / len(worst)


# --- the registry -----------------------------------------------------------------------------------------------------
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("openauc", "OpenAUC ↑", openauc),
        Measure("oscr", "OSCR ↑", oscr),
        Measure("aupr_known", "AUPR known ↑", aupr_known),
        Measure("aupr_unknown", "AUPR unknown ↑", aupr_unknown),
        Measure("share_unknown", "unknown, %", share_unknown),
        Measure("ece", "ECE ↓", ece, 4),
        Measure("brier", "Brier ↓", brier, 4),
        Measure("augrc", "AUGRC ↓", augrc),
        *(Measure(f"error_at_{share}", f"error at {share} % ↓", error_at(share / 100)) for share in (80, 90, 95)),
        Measure("share_undecided", "undecided, %", share_undecided),
        Measure("rejected_closed", "known rejected, closed ↓", rejected_closed),
        Measure("update_purity", "right among updates ↑", update_purity),
    )
}


def is_measure(name: str) -> bool:
    """Return whether the name is that of a measure or of a plug-in file.

    >>> is_measure("openauc"), is_measure("mine.py:purity"), is_measure("hm")
    (True, True, False)
    """
    return name in measure_names() or plugins.names_file(name)


def measure_names() -> list[str]:
    """Return the names of all measures, built-in measures first."""
    return [*MEASURES, *(name for name in plugins.registered_names("measure") if name not in MEASURES)]


def find_measure(name: str) -> Measure:
    """Return the measure with this name. `path/file.py:Name` runs the file, so the name must come from the user.

    >>> find_measure("openauc").heading
    'OpenAUC ↑'
    """
    if name in MEASURES:
        return MEASURES[name]
    if plugins.names_file(name):
        plugin = plugins.from_file(name)
    elif name in plugins.registered_names("measure"):
        plugin = plugins.registered("measure", name)
    else:
        raise Error(f"There is no measure {name!r}; use one of {', '.join(measure_names())}.", code="measure-unknown")
    if isinstance(plugin, Measure):
        return Measure(name, plugin.heading, plugin.compute, plugin.digits)
    if not callable(plugin):
        raise Error(
            f"The measure {name!r} must be a function of RunColumns or a Measure, not {shown(plugin)}.",
            code="plugin-invalid",
        )
    return Measure(name, name.rpartition(":")[2], plugin)


def measure_run(run: RunColumns, problems: list[str]) -> dict[str, float | None]:
    """Return the values of all measures; the message of a measure that fails is appended to `problems`."""
    values: dict[str, float | None] = {}
    for name in measure_names():
        try:
            values[name] = find_measure(name)(run)
        except Error as problem:
            problems.append(str(problem))
    return values
