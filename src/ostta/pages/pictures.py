"""Pictures of a suite or a folder as files for papers and slides: SVG, PDF and PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.against_frozen import ToFrozen, ranks_of, to_frozen
from ..bench.figures import SuiteFigures
from ..bench.metric_values import METRICS
from ..bench.statistics import Ranks
from ..config.registry import require_known
from ..core.types import Error
from ..io import make_folder, write_atomically

KNOWN, FAINT, LINE = "#1d4ed8", "#6b7280", "#111827"


FONT = 9


# No date and no version inside: the same figures give the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def canvas(size: tuple[float, float], columns: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, without the frame's upper and right side; several share the scale of the first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, columns, sharex=True, squeeze=False)[0]
    for part in axes:
        part.spines[["top", "right"]].set_visible(False)
        part.tick_params(labelsize=FONT)
    return figure, axes if columns > 1 else np.atleast_1d(axes)[0]


def as_file(figure: Any, format_: str) -> bytes:
    """The figure as a file's bytes; texts stay texts in SVG and PDF."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ostta", "pdf.fonttype": 42}):
        figure.savefig(
            buffer, format=require_known(format_, METADATA, "format of pictures"), dpi=160, metadata=METADATA[format_]
        )
    return buffer.getvalue()


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


# In inches.
WIDTH, RANK_HEIGHT = 6.4, 0.24


def rank_picture(ranks: Ranks, title: str) -> Any:
    """The best rank on the left. Names hang below the line, the better half on the left side and the others on the right."""
    count = len(ranks.methods)
    half, joined = math.ceil(count / 2), ranks.joined
    bars = 0.6 + 0.5 * len(joined)
    figure, axes = canvas((WIDTH, RANK_HEIGHT * (half + bars + 3.4)))
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


# Streams in one picture of differences.
MOST_STREAMS = 4


def save_pictures(figures: SuiteFigures, folder: Path, formats: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Write them; the paths, and a sentence for each picture that cannot be drawn."""
    for format_ in formats:
        require_known(format_, METADATA, "format of pictures")
    drawn, sentences = list(_differences(figures)), []
    for one in ranks_of(figures):
        if one.ranks is None:
            sentences.append(one.why_not)
            continue
        name = METRICS[one.metric].rstrip(" ↑↓")
        title = f"Average rank of {name} over {one.ranks.streams} streams, {one.backbone}; bars: not told apart"
        drawn.append((f"ranks-{_tidy(one.backbone)}", rank_picture(one.ranks, title)))
    if not drawn:
        raise Error(" ".join(["There is nothing to draw: no row has a frozen row beside it.", *sentences]))
    make_folder(folder)
    paths = []
    for stem, picture in drawn:
        for format_ in formats:
            paths.append(folder / f"{stem}.{format_}")
            write_atomically(paths[-1], as_file(picture, format_))
    return paths, sentences


def _differences(figures: SuiteFigures) -> Iterator[tuple[str, Any]]:
    found = to_frozen(figures)
    columns = list(dict.fromkeys(one.column for one in found))
    for start in range(0, len(columns), MOST_STREAMS):
        shown = columns[start : start + MOST_STREAMS]
        stem = "differences" if len(columns) <= MOST_STREAMS else f"differences-{start // MOST_STREAMS + 1}"
        yield stem, difference_picture([one for one in found if one.column in shown], figures.suite.title)


def _tidy(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_-" else "-" for c in name)
