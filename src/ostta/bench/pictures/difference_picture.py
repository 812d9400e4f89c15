"""Each method's difference to the frozen row on every stream, with its interval: one panel a stream, one scale for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..suite import METRICS
from ..tables.to_frozen import ToFrozen
from .drawing import FAINT, FONT, KNOWN, LINE, canvas

# In inches.
PANEL, NAMES, LINE_HEIGHT = 2.1, 1.9, 0.26


def difference_picture(found: Sequence[ToFrozen], title: str) -> Any:
    """A filled dot is a difference that is marked; an open one is not told apart from none."""
    rows = list(dict.fromkeys(one.row for one in found))
    columns = list(dict.fromkeys(one.column for one in found))
    figure, panels = canvas((NAMES + PANEL * len(columns), LINE_HEIGHT * (len(rows) + 3.6)), len(columns))
    for number, (column, axes) in enumerate(zip(columns, panels if len(columns) > 1 else [panels], strict=True)):
        axes.axvline(0, color=FAINT, lw=0.9, ls="--")
        for one in (one for one in found if one.column == column):
            height, colour = -rows.index(one.row), KNOWN if one.marked else LINE
            if one.low is not None and one.high is not None:
                axes.plot([one.low, one.high], [height, height], color=colour, lw=1.3)
            face = colour if one.marked else "white"
            axes.plot([one.difference], [height], "o", ms=5, color=colour, mfc=face)
        axes.set_ylim(-len(rows) + 0.4, 0.6)
        axes.set_yticks([-place for place in range(len(rows))], [" ".join(row) if not number else "" for row in rows])
        axes.set_title("\n/ ".join(" / ".join(column).split(" / ")), fontsize=FONT)
    name = METRICS[found[0].metric].rstrip(" ↑↓")
    figure.supxlabel(f"{name} minus that of the frozen row, in points, with the paired 95 % interval", fontsize=FONT)
    figure.suptitle(title, fontsize=FONT + 1)
    return figure
