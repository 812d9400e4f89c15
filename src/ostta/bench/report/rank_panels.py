"""Average ranks over streams as panels of a page."""

from __future__ import annotations

from collections.abc import Iterator

from ...pages import Grid, Interval, Intervals, Part, Text
from ..suite import METRICS
from ..tables.ranks import Ranks, ranks_of
from ..tables.suite_figures import SuiteFigures


def rank_panels(figures: SuiteFigures) -> Iterator[Part]:
    """One panel for each backbone with enough streams, the best row first."""
    found = [(one.backbone, one.ranks) for one in ranks_of(figures) if one.ranks is not None]
    if not found:
        return
    name = METRICS[figures.headline].rstrip(" ↑↓")
    yield Text(
        f"Average rank of {name} over streams; 1 is the best. Lines: from the first to the last row that is not told apart from this one.",
        "note",
    )
    yield Grid([_panel(backbone, ranks) for backbone, ranks in found], small=True)


def _panel(backbone: str, ranks: Ranks) -> Intervals:
    rank = dict(zip(ranks.methods, ranks.average, strict=True))
    rows = []
    for method in ranks.methods:
        stretch = [rank[other] for joined in ranks.joined if method in joined for other in joined] or [rank[method]]
        rows.append(
            Interval(
                method, f"{rank[method]:.2f}", rank[method], min(stretch), max(stretch), method=method.split(" / ")[-1]
            )
        )
    count = len(ranks.methods)
    ticks = [(float(place), str(place)) for place in range(1, count + 1)]
    return Intervals(backbone, f"{ranks.streams} streams", rows, 0.8, count + 0.2, ticks)
