"""Result files, one JSON file a run, and the metrics that tables show of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError

from ..core.types import Error
from ..evaluation.analyses import BankBytes, Distances, ReliableAccuracy
from ..evaluation.measures import MEASURES, WINDOW, find_measure
from ..evaluation.metrics import CONVENTION, FPR95, NAMES, SUPPORTING
from ..io import read_regular, readable, write_atomically
from ..schema import first_problem
from .machine import Load
from .spec import FileModel, RunSpec

SCHEMA = 1


class Side(FileModel):
    """One side of the stream: which data set, how many images, and where its pixels come from."""

    name: str
    images: int
    classes: int
    origin: str
    note: str = ""


class StreamInfo(FileModel):
    """The stream of a run. `hash`: hash of its order. `draw`: what the seed drew.

    `identity` also covers origin, corruption, severity and content (`streams.Stream.identity`).
    """

    added_later: ClassVar[tuple[str, ...]] = ("draw",)

    hash: str
    desired: Side
    undesired: Side | None
    seed: int
    draw: Literal["order", "images", "orders"] = "order"
    identity: str


class Figures(FileModel):
    """Figures in percent; None if the stream has images of one side only.

    FPR95 has three conventions (`ostta.evaluation.metrics`).
    """

    auroc: float | None
    fpr95: float | None
    acc_desired: float | None
    acc_undesired: float | None
    hm: float | None
    fpr95_strict: float | None = None
    fpr95_undesired: float | None = None
    accepted_desired: float | None = None
    accuracy: float | None = None


class Metrics(Figures):
    """Figures over the whole stream."""

    convention: str = CONVENTION


class DomainFigures(FileModel):
    """Figures over the images of one domain."""

    name: str
    images: int
    metrics: Figures


class Quantiles(FileModel):
    """Median, 95th percentile and mean. Steps with an update are much slower than others, which a median hides."""

    p50: float
    p95: float
    mean: float


class Latency(FileModel):
    """Milliseconds a step, without preprocessing."""

    encode: Quantiles
    decide: Quantiles
    update: Quantiles
    total: Quantiles


class Analyses(FileModel):
    """Quantities that the paper reports beside the five figures (`ostta.evaluation.analyses`); None if not available.

    stream_distances: distances of the features of all images, if the adapter option `features` kept them.
    bank_distances: distances of the two banks of the method at the end. average_matches: mean K+ of L_D. reliable: in
    percent.
    """

    stream_distances: Distances | None
    bank_distances: Distances | None
    average_matches: float | None
    reliable: ReliableAccuracy
    bank_bytes: BankBytes
    adapted_parameters: int | None


class Result(FileModel):
    """The content of a result file.

    domains, hm_mean_domains: figures of each domain and the mean of their HM, for a scenario with several domains. The
    mean is the headline of a continual run; None if a domain has no HM. peak_memory_mb: from the first image on, with
    model and data loaded; None if the system does not provide it.
    """

    added_later: ClassVar[tuple[str, ...]] = (
        "domains",
        "hm_mean_domains",
        "analyses",
        "threads",
        "resets",
        "cached_features",
        "events",
        "load",
        "measures",
    )

    schema_version: int = SCHEMA
    spec: RunSpec
    # By owner (method, score, identifier, adapter), then by name.
    options: dict[str, dict[str, Any]]
    option_sources: dict[str, dict[str, str]]
    stream: StreamInfo
    weight_hash: str
    class_names_hash: str
    unfamiliar_classes: list[str]
    metrics: Metrics
    counts: dict[str, int]
    updates: int
    latency_ms: Latency
    peak_memory_mb: float | None
    seconds: float
    versions: dict[str, str]
    hardware: str
    remarks: list[str]
    # A file in the same folder, so that a result file cannot name files elsewhere.
    records: Annotated[str, Field(pattern=r"^[^/\\]+\.parquet$")] | None = None
    domains: list[DomainFigures] = Field(default_factory=list)
    hm_mean_domains: float | None = None
    analyses: Analyses | None = None
    # The last bits of sums depend on the number of threads, so an exact repetition needs the same number.
    threads: int | None = None
    # Image features came from a cache or a file: the figures are the same, and the times are not comparable.
    cached_features: bool = False
    # Number of resets of the trained parameters (`reset_every`).
    resets: int = 0
    # Number of events of each kind: actions of the guard, and resets.
    events: dict[str, int] = Field(default_factory=dict)
    # Load of the machine.
    load: Load | None = None
    # Measures of `ostta.evaluation.measures` and of plug-ins by name; None if the run does not have a value.
    measures: dict[str, float | None] = Field(default_factory=dict)

    @property
    def stream_identity(self) -> tuple[str, ...]:
        """A value that all results on the same images in the same order share."""
        return (self.stream.hash, self.stream.identity)

    @property
    def shown(self) -> int:
        """The number of images of the run."""
        return self.counts["desired"] + self.counts["undesired"]

    @property
    def busy(self) -> bool:
        """Whether other work made the times of the run longer."""
        return self.load is not None and self.load.busy

    def write(self, path: Path) -> None:
        write_json(self.model_dump(mode="json"), path)


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write values as JSON that people can read."""
    text = readable(json.dumps(content, indent=2, ensure_ascii=False))
    write_atomically(path, f"{text}\n".encode())


def read_result(path: Path) -> Result:
    """Read a result file; an Error if it does not match the schema."""
    try:
        return Result.model_validate_json(read_regular(path, "result file"))
    except ValidationError as problem:
        raise Error(
            f"{path} is not a result file of this version ({first_problem(problem)}).", code="result-invalid"
        ) from None


# --- metrics ----------------------------------------------------------------------------------------------------------
class Headings(dict[str, str]):
    """Headings of metrics by name; those of measures from plug-ins are looked up."""

    def __missing__(self, name: str) -> str:
        return find_measure(name).heading


# Metrics of tables and their headings. `accuracy` is over all desired images, accepted or not.
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
    """Return whether a lower value of `metric` is better.

    >>> lower_is_better("fpr95"), lower_is_better("hm")
    (True, False)
    """
    return METRICS[metric].endswith("↓")


# Parameter groups of the backbone itself.
NOTHING_ADDED = ("layernorm", "norm", "full", "first_block", "last_block")


def metric_value(result: Result, metric: str, fpr95: str = "interpolated", part: str = "") -> float | None:
    """Return a metric of one run, over the whole stream or over the domain `part`; None if the run does not have it.

    The metrics are `updates` and those of `METRICS`, except the spreads over seeds.
    """
    figures: Figures | None = result.metrics
    if part:
        figures = next((domain.metrics for domain in result.domains if domain.name == part), None)
    elif metric == "hm" and result.spec.scenario.kind == "continual":
        return result.hm_mean_domains
    elif metric == "accuracy" and result.metrics.accuracy is None and result.spec.identifier == "all":
        # Older files have no accuracy; it equals `acc_desired` if the identifier accepts all images.
        metric = "acc_desired"
    if metric in (*NAMES, *SUPPORTING):
        figure: float | None = getattr(figures, FPR95[fpr95] if metric == "fpr95" else metric, None)
        return figure
    compute = None if part else _OF_RESULT.get(metric)
    return None if compute is None else compute(result)


def _open_accuracy(result: Result) -> float | None:
    """Return the share of known images accepted with their class and unknown images rejected."""
    sides = (
        (result.counts["desired"], result.metrics.acc_desired),
        (result.counts["undesired"], result.metrics.acc_undesired),
    )
    known = [(count, share) for count, share in sides if share is not None]
    total = sum(count for count, _ in known)
    return sum(count * share for count, share in known) / total if total else None


def _analysis(path: str) -> Callable[[Result], float | None]:
    """Return a function that reads a value of the analyses of a run; None if one of them does not exist."""

    def compute(result: Result) -> float | None:
        value: Any = result.analyses
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        return None if value is None else float(value)

    return compute


def _classes(result: Result) -> int:
    return result.stream.desired.classes if result.spec.classes is None else len(result.spec.classes)


def _bank_features(result: Result) -> float | None:
    """Return the number of features that the banks of the method can hold."""
    options, classes = result.options["method"], _classes(result)
    if result.analyses is None:
        return None
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
    if result.analyses is None or group not in ("lora", *NOTHING_ADDED):
        return None
    return result.analyses.adapted_parameters if group == "lora" else 0.0


def _bank_mb(result: Result) -> float | None:
    return None if result.analyses is None else result.analyses.bank_bytes.features / 1e6


# Metrics that are not figures of `ostta.evaluation.metrics`.
_OF_RESULT: dict[str, Callable[[Result], float | None]] = {
    "open_accuracy": _open_accuracy,
    "events": lambda result: float(sum(result.events.values())),
    "updates": lambda result: float(result.updates),
    "ms": lambda result: None if result.cached_features else result.latency_ms.total.mean,
    "classes": lambda result: float(_classes(result)),
    **{name: _analysis(f"stream_distances.{name}") for name in ("euclidean", "cosine", "wasserstein")},
    "average_matches": _analysis("average_matches"),
    "reliable_pseudo_label": _analysis("reliable.pseudo_label"),
    "reliable_undesired": _analysis("reliable.undesired"),
    "adapted_parameters": _analysis("adapted_parameters"),
    "bank_mb": _bank_mb,
    "bank_features": _bank_features,
    "added_parameters": _added_parameters,
}


DASH = "–"


COUNTS = ("updates", "events", "classes", "bank_features", "adapted_parameters", "added_parameters")


DIGITS = {
    **dict.fromkeys(COUNTS, 1),
    "ms": 1,
    "euclidean": 4,
    "cosine": 4,
    "wasserstein": 4,
    "bank_mb": 3,
    "hm_std": 3,
    "gpu_memory_gb": 3,
}


def number(value: float | None, metric: str, *, signed: bool = False) -> str:
    """Format a value of a metric for a table; a dash for None."""
    if value is None:
        return DASH
    if metric in COUNTS and value == round(value):
        return f"{value:+,.0f}" if signed else f"{value:,.0f}"
    digits = MEASURES[metric].digits if metric in MEASURES else DIGITS.get(metric, 2)
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
