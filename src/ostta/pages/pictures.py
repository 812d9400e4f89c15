"""Charts of a suite or a folder as SVG, PDF and PNG files for papers and slides."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..bench.against_frozen import Ranks, ToFrozen, ranks_of, to_frozen
from ..bench.figures import SuiteFigures
from ..bench.naming import file_name
from ..bench.result import metric_name
from ..config.registry import require_known
from ..core.types import Error
from ..io import make_folder, write_atomically
from .parts import Axis, Chart, Mark, axis_around

# Colours of the style sheet, on white.
COLOURS = {"known": "#1d5fd0", "zero": "#566274", "": "#16202e"}
FONT = 9
# Without date and version, equal figures give equal files.
METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}
# Streams in one picture of differences.
MOST_STREAMS = 4
# In inches.
PANEL, NAMES, LINE_HEIGHT, RANKS_WIDTH = 2.1, 1.9, 0.26, 6.4


def save_pictures(figures: SuiteFigures, folder: Path, formats: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Write all pictures. Return their paths, and a sentence for each picture that cannot be drawn."""
    for format_ in formats:
        require_known(format_, METADATA, "format of pictures")
    drawn, sentences = list(_differences(figures)), []
    for one in ranks_of(figures):
        if one.ranks is None:
            sentences.append(one.why_not)
            continue
        title = (
            f"Average rank of {metric_name(one.metric)} over {one.ranks.streams} streams, {one.backbone}; "
            "bars join methods without a significant difference"
        )
        drawn.append((f"ranks-{file_name(one.backbone)}", _ranks(one.ranks, title)))
    if not drawn:
        reasons = ["There is nothing to draw: no row has a frozen row to compare with.", *sentences]
        raise Error(" ".join(reasons), code="nothing-to-draw")
    make_folder(folder)
    paths = []
    for stem, picture in drawn:
        for format_ in formats:
            paths.append(folder / f"{stem}.{format_}")
            write_atomically(paths[-1], as_file(picture, format_))
    return paths, sentences


def as_file(picture: Any, format_: str) -> bytes:
    """Return the content of a file. Texts stay texts in SVG and PDF."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ostta", "pdf.fonttype": 42}):
        # A tight box widens a picture of few panels to its title and its label.
        picture.savefig(buffer, format=format_, dpi=160, metadata=METADATA[format_], bbox_inches="tight")
    return buffer.getvalue()


def drawing(charts: Sequence[Chart], size: tuple[float, float], title: str, *, axes: bool = True) -> Any:
    """Draw charts side by side, on one scale of x. Without `axes`, only their marks are drawn."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    for chart, place in zip(charts, figure.subplots(1, len(charts), sharex=True, squeeze=False)[0], strict=True):
        place.set_xlim(chart.x.low, chart.x.high)
        place.set_ylim(chart.y.low, chart.y.high)
        place.set_title(chart.title, fontsize=FONT)
        for mark in chart.marks:
            _draw(place, mark)
        if not axes:
            place.set_axis_off()
            continue
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=FONT)
        for axis, set_ticks in ((chart.x, place.set_xticks), (chart.y, place.set_yticks)):
            set_ticks([value for value, _ in axis.shown()], [text for _, text in axis.shown()])
    if charts[0].x.name:
        figure.supxlabel(charts[0].x.name, fontsize=FONT)
    figure.suptitle(title, fontsize=FONT + 1)
    return figure


def _draw(place: Any, mark: Mark) -> None:
    words = mark.style.split()
    colour = next((COLOURS[word] for word in words if word in COLOURS), COLOURS[""])
    for stroke in mark.strokes:
        x, y = zip(*stroke, strict=True)
        if mark.kind == "label":
            side = {"start": "left", "middle": "center", "end": "right"}[mark.style]
            place.text(*stroke[0], mark.text, ha=side, va="center", fontsize=FONT)
        elif mark.kind == "dots":
            place.plot(x, y, "o", ms=5, color=colour, mfc="white" if "open" in words else colour)
        elif mark.kind == "area":
            place.fill(x, y, color=colour, alpha=0.6)
        else:
            width = 3.2 if "thick" in words else 0.9 if "thin" in words else 1.3
            place.plot(x, y, color=colour, lw=width, ls="--" if "zero" in words else "-", solid_capstyle="round")


def _differences(figures: SuiteFigures) -> Iterator[tuple[str, Any]]:
    found = to_frozen(figures)
    columns = list(dict.fromkeys(one.column for one in found))
    for start in range(0, len(columns), MOST_STREAMS):
        shown = columns[start : start + MOST_STREAMS]
        stem = "differences" if len(columns) <= MOST_STREAMS else f"differences-{start // MOST_STREAMS + 1}"
        yield stem, _difference_panels([one for one in found if one.column in shown], figures.suite.title)


def _difference_panels(found: Sequence[ToFrozen], title: str) -> Any:
    """Draw one panel for each stream, on one scale. A filled dot is a marked difference."""
    rows = list(dict.fromkeys(one.row for one in found))
    columns = list(dict.fromkeys(one.column for one in found))
    about = f"{metric_name(found[0].metric)} minus that of the frozen row, in points, with the paired 95 % interval"
    across = axis_around([value for one in found for value in (one.low, one.high, one.difference, 0.0)], about)
    charts = []
    for number, column in enumerate(columns):
        names = [(-place, " ".join(row) if number == 0 else "") for place, row in enumerate(rows)]
        stream = "\n/ ".join(" / ".join(column).split(" / "))
        chart = Chart(across, Axis(-len(rows) + 0.4, 0.6, marks=names), title=stream)
        chart.upright(0.0, "zero thin")
        for one in (one for one in found if one.column == column):
            height, style = -rows.index(one.row), "known" if one.marked else ""
            if one.low is not None and one.high is not None:
                chart.line([(one.low, height), (one.high, height)], style)
            chart.dots([(one.difference, height)], style if one.marked else "open")
        charts.append(chart)
    return drawing(charts, (NAMES + PANEL * len(columns), LINE_HEIGHT * (len(rows) + 3.6)), title)


def _ranks(ranks: Ranks, title: str) -> Any:
    """Draw average ranks on one line, the best on the left, with a bar over methods that are not told apart.

    Names hang below the line, the better half on the left side and the others on the right.
    """
    count, joined = len(ranks.methods), ranks.joined
    half, bars = math.ceil(count / 2), 0.6 + 0.5 * len(joined)
    room = 0.45 * (count - 1)
    chart = Chart(Axis(1 - room, count + room), Axis(-(half + bars + 0.6), 2.2))
    chart.line([(1, 0), (count, 0)], "thin")
    for tick in range(1, count + 1):
        chart.spans([(tick, 0, 0.25)], "thin")
        chart.label(tick, 0.8, str(tick), "middle")
    for number, (method, rank) in enumerate(zip(ranks.methods, ranks.average, strict=True)):
        left = number < half
        depth = -(bars + (number if left else count - 1 - number) + 0.4)
        edge = 1 - 0.06 * (count - 1) if left else count + 0.06 * (count - 1)
        chart.line([(rank, 0), (rank, depth), (edge, depth)], "thin")
        text = f"{method}  {rank:.2f}" if left else f"{rank:.2f}  {method}"
        chart.label(edge, depth, f" {text} ", "end" if left else "start")
    places = dict(zip(ranks.methods, ranks.average, strict=True))
    for number, stretch in enumerate(joined):
        depth = -0.45 - 0.5 * number
        chart.line([(places[stretch[0]] - 0.03, depth), (places[stretch[-1]] + 0.03, depth)], "known thick")
    return drawing([chart], (RANKS_WIDTH, 0.92 * LINE_HEIGHT * (half + bars + 3.4)), title, axes=False)
