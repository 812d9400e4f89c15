"""Average ranks on one line, with a bar over methods that are not told apart: the critical-difference picture."""

from __future__ import annotations

import math
from typing import Any

from ..tables.ranks import Ranks
from .drawing import FONT, KNOWN, LINE, canvas

# In inches.
WIDTH, LINE_HEIGHT = 6.4, 0.24


def rank_picture(ranks: Ranks, title: str) -> Any:
    """The best rank on the left. Names hang below the line, the better half on the left side and the others on the right."""
    count = len(ranks.methods)
    half, joined = math.ceil(count / 2), ranks.joined
    bars = 0.6 + 0.5 * len(joined)
    figure, axes = canvas((WIDTH, LINE_HEIGHT * (half + bars + 3.4)))
    axes.set_axis_off()
    axes.set_xlim(1 - 0.45 * (count - 1), count + 0.45 * (count - 1))
    axes.set_ylim(-(half + bars + 0.6), 2.2)
    axes.set_title(title, fontsize=FONT + 1, loc="left")
    axes.plot([1, count], [0, 0], color=LINE, lw=1.0)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, 0.25], color=LINE, lw=1.0)
        axes.text(tick, 0.45, str(tick), ha="center", va="bottom", fontsize=FONT)
    for number, (method, rank) in enumerate(zip(ranks.methods, ranks.average, strict=True)):
        left = number < half
        depth = -(bars + (number if left else count - 1 - number) + 0.4)
        edge = 1 - 0.06 * (count - 1) if left else count + 0.06 * (count - 1)
        axes.plot([rank, rank, edge], [0, depth, depth], color=LINE, lw=0.8)
        text = f"{method}  {rank:.2f}" if left else f"{rank:.2f}  {method}"
        axes.text(edge, depth, f" {text} ", ha="right" if left else "left", va="center", fontsize=FONT)
    places = dict(zip(ranks.methods, ranks.average, strict=True))
    for number, stretch in enumerate(joined):
        ends = places[stretch[0]] - 0.03, places[stretch[-1]] + 0.03
        axes.plot(ends, [-0.45 - 0.5 * number] * 2, color=KNOWN, lw=3.2, solid_capstyle="round")
    return figure
