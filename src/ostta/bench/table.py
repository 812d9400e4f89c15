"""Tables of results: the frozen row first, differences to it, a dash where a figure does not exist."""

from __future__ import annotations

from collections.abc import Sequence

from .result import Result

HEADINGS = ("method", "AUROC ↑", "FPR95 ↓", "Acc_D ↑", "Acc_U ↑", "HM ↑", "ΔHM", "updates", "ms/step")


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """One row a result, in the order of `HEADINGS`."""
    ordered = sorted(results, key=lambda result: result.spec.method != "zero_shot")
    frozen = next((result for result in ordered if result.spec.method == "zero_shot"), None)
    return [_row(result, frozen) for result in ordered]


def _row(result: Result, frozen: Result | None) -> tuple[str, ...]:
    figures = result.metrics
    base = frozen.metrics.hm if frozen is not None else None
    delta = "–" if base is None or figures.hm is None or result is frozen else f"{figures.hm - base:+.2f}"
    return (
        result.spec.method,
        *(_number(v) for v in (figures.auroc, figures.fpr95, figures.acc_desired, figures.acc_undesired, figures.hm)),
        delta,
        str(result.updates),
        f"{result.latency_ms.total.p50:.1f}",
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
