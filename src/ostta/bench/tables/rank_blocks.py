"""Average ranks over streams as a table."""

from __future__ import annotations

from collections.abc import Iterator

from ..suite import METRICS
from .blocks import Block, Text
from .ranks import Ranks, ranks_of
from .suite_figures import SuiteFigures


def rank_blocks(figures: SuiteFigures) -> Iterator[Block]:
    """One table for each backbone with enough streams, the best row first."""
    for one in ranks_of(figures):
        if one.ranks is not None:
            name = METRICS[one.metric].rstrip(" ↑↓")
            lines = zip(one.ranks.methods, one.ranks.average, strict=True)
            yield Block(
                f"Average rank of {name}",
                figures.suite.rows,
                ((f"{one.backbone}, {one.ranks.streams} streams", ("rank ↓", "told apart from")),),
                tuple((one.rows[method], (Text(f"{rank:.2f}"), _apart(one.ranks, method))) for method, rank in lines),
            )


def _apart(ranks: Ranks, method: str) -> Text:
    worse = sum(better == method for better, _ in ranks.apart)
    better = sum(other == method for _, other in ranks.apart)
    parts = [f"{worse} worse"] * bool(worse) + [f"{better} better"] * bool(better)
    return Text(", ".join(parts) or "none")
