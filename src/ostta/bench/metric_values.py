"""The metrics of suites: headings, the number of a result file behind each, and how it is printed."""

from __future__ import annotations

from ..evaluation.measures import MEASURES, WINDOW, find_measure
from ..evaluation.metrics import BEHIND, FPR95, NAMES
from .result import Result


# What a table can show, by the names of the paper's figures, and how it is headed. `accuracy` is over all desired images, accepted or not.
class Headings(dict[str, str]):
    """The headings of metrics by name; that of a measure from outside is looked up."""

    def __missing__(self, name: str) -> str:
        return find_measure(name).heading


METRICS = Headings(
    {
        "auroc": "AUROC ↑",
        "fpr95": "FPR95 ↓",
        "acc_desired": "Acc_D ↑",
        "acc_undesired": "Acc_U ↑",
        "hm": "HM ↑",
        "hm_std": "HM, standard deviation",
        "accepted_desired": "accepted D ↑",
        "accuracy": "accuracy ↑",
        "open_accuracy": "(C+1)-way accuracy ↑",
        "events": "events",
        "euclidean": "Euclidean ↑",
        "cosine": "cosine ↑",
        "wasserstein": "Wasserstein ↑",
        "average_matches": "K+",
        "reliable_pseudo_label": "right among reliable desired ↑",
        "reliable_undesired": "right among reliable undesired ↑",
        "ms": "ms/step ↓",
        "gpu_memory_gb": "GPU memory, GB ↓",
        "classes": "classes",
        "bank_features": "features kept ↓",
        "bank_mb": "features kept, MB ↓",
        "adapted_parameters": "parameters ↓",
        "added_parameters": "added parameters ↓",
        "hm_worst_tenth": "HM, worst tenth ↑",
        "regret": f"regret, worst {WINDOW} ↓",
        **{measure.name: measure.heading for measure in MEASURES.values()},
    }
)


def metric_name(metric: str) -> str:
    """Return the heading of a metric without its arrow.

    >>> metric_name("hm")
    'HM'
    """
    return METRICS[metric].rstrip(" ↑↓")


def lower_is_better(metric: str) -> bool:
    """Whether a lower value of `metric` is the better one.

    >>> lower_is_better("fpr95"), lower_is_better("hm")
    (True, False)
    """
    return METRICS[metric].endswith("↓")


# Parameters that the backbone has anyway.
NOTHING_ADDED = ("layernorm", "norm", "full", "first_block", "last_block")


def metric_value(result: Result, metric: str, fpr95: str = "interpolated", part: str = "") -> float | None:
    """The figure of one run, over the whole stream or over the domain `part`; None where the run cannot give it.

    `updates` and the metrics of `suite.METRICS` are known, but for the spreads over seeds, which no single run has.
    """
    if part:
        domain = next((domain for domain in result.domains if domain.name == part), None)
        if domain is None or metric not in (*NAMES, *BEHIND):
            return None
        of_part: float | None = getattr(domain.metrics, FPR95[fpr95] if metric == "fpr95" else metric)
        return of_part
    if metric == "hm" and result.spec.scenario.kind == "continual":
        return result.hm_mean_domains
    if metric in (*NAMES, "accepted_desired"):
        figure: float | None = getattr(result.metrics, FPR95[fpr95] if metric == "fpr95" else metric)
        return figure
    if metric == "accuracy":
        # Files from before it was counted have it only where the identifier rejects none.
        accepts_all = result.spec.identifier == "all"
        return (
            result.metrics.acc_desired if result.metrics.accuracy is None and accepts_all else result.metrics.accuracy
        )
    if metric == "open_accuracy":
        return _open_accuracy(result)
    if metric == "events":
        return float(sum(result.events.values()))
    if metric == "updates":
        return float(result.updates)
    if metric == "ms":
        return None if result.cached_features else result.latency_ms.total.mean
    if metric == "classes":
        return float(_classes(result))
    return _analysis(result, metric)


def _open_accuracy(result: Result) -> float | None:
    """Known images with their class and accepted, and unknown ones rejected, of all images."""
    sides = (
        (result.counts["desired"], result.metrics.acc_desired),
        (result.counts["undesired"], result.metrics.acc_undesired),
    )
    known = [(count, share) for count, share in sides if share is not None]
    total = sum(count for count, _ in known)
    return sum(count * share for count, share in known) / total if total else None


def _analysis(result: Result, metric: str) -> float | None:
    found = result.analyses
    if found is None:
        return None
    if metric in ("euclidean", "cosine", "wasserstein"):
        return None if found.stream_distances is None else float(getattr(found.stream_distances, metric))
    figures: dict[str, float | None] = {
        "average_matches": found.average_matches,
        "reliable_pseudo_label": found.reliable.pseudo_label,
        "reliable_undesired": found.reliable.undesired,
        "bank_mb": found.bank_bytes.features / 1e6,
        "bank_features": _bank_features(result),
        "adapted_parameters": found.adapted_parameters,
        "added_parameters": _added_parameters(result),
    }
    return figures.get(metric)


def _classes(result: Result) -> int:
    return result.stream.desired.classes if result.spec.classes is None else len(result.spec.classes)


def _bank_features(result: Result) -> float | None:
    """How many features the method has room for, by its options."""
    options, classes = result.options["method"], _classes(result)
    try:
        rooms = {
            "rosita": lambda: options["k"] * classes + options["undesired_bank"],
            "tda": lambda: (options["shots"] + options["negative_shots"]) * classes,
            "dpe": lambda: options["shots"] * classes,
            "oga": lambda: options["shots"] * classes,
            "prototypes": lambda: options["pool"],
        }
        return float(rooms[result.spec.method]())
    except KeyError:
        return None


def _added_parameters(result: Result) -> float | None:
    group = result.options["method"].get("group")
    if group == "lora" and result.analyses is not None:
        return result.analyses.adapted_parameters
    return 0.0 if group in NOTHING_ADDED else None


DASH = "–"


COUNTS = ("updates", "events", "classes", "bank_features", "adapted_parameters", "added_parameters")


DIGITS = {"ms": 1, "euclidean": 4, "cosine": 4, "wasserstein": 4, "bank_mb": 3, "hm_std": 3, "gpu_memory_gb": 3}


def number(value: float | None, metric: str, *, signed: bool = False) -> str:
    """As tables print it: a dash for None."""
    if value is None:
        return DASH
    if metric in COUNTS and value == round(value):
        return f"{value:+,.0f}" if signed else f"{value:,.0f}"
    digits = 1 if metric in COUNTS else MEASURES[metric].digits if metric in MEASURES else DIGITS.get(metric, 2)
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
