"""Which number of a result file each metric of a suite is, and whether it may be set against the paper's."""

from __future__ import annotations

from ...evaluation.metrics import BEHIND, FPR95, NAMES
from ..paper.mapping import BACKBONES
from ..result import Result
from ..suite import Cell

# Properties of the memory and the machine: a shorter stream changes none of them.
OF_ANY_LENGTH = ("classes", "bank_features", "bank_mb", "adapted_parameters", "added_parameters")
OF_THE_MACHINE = ("ms", "gpu_memory_gb")
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


def why_not_comparable(result: Result, cell: Cell, metric: str, *, shortened: bool, fpr95: str) -> str:
    """Why a figure of this run cannot be set against the paper's; empty where it can. `shortened`: by a limit that is not the suite's."""
    if metric in OF_THE_MACHINE:
        return "another machine"
    backbone = result.spec.backbone
    # The embedded models play the part of the paper's without being them.
    if backbone.startswith("embedded") or BACKBONES.get(backbone) != cell.paper.get("backbone"):
        return "another backbone"
    if metric == "fpr95" and FPR95[fpr95] != "fpr95":
        return "another convention of FPR95"
    if metric in OF_ANY_LENGTH:
        return ""
    sides = [side for side in (result.stream.desired, result.stream.undesired) if side is not None]
    if any(side.origin != "official" for side in sides):
        return "not the published images"
    return "fewer images" if shortened or result.counts.get("undesired_missing", 0) else ""
