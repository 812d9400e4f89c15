"""The figure of `growth.py`: one row of panels for each question."""

from __future__ import annotations

import io

DESIRED, UNDESIRED, LINE, GREY, GREEN = "#2563eb", "#e11d48", "#111827", "#9ca3af", "#0f766e"
FONT = 9
COLOURS = {"zero_shot": GREY, "tda": LINE, "rosita": DESIRED, "unreliable": DESIRED, "reliable desired": UNDESIRED,
           "reliable undesired": GREEN}  # fmt: skip

Rows = list[dict[str, float | None]]
# Key of the rows -> label and colour.
Lines = dict[str, tuple[str, str]]


def plot(found: dict[str, Rows], growth: float) -> bytes:
    """A row of panels a question: time on the left; memory, or of banks the identifier, on the right."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(9, 10), layout=ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.08))
    panels = iter(figure.subplots(4, 2).flat)

    def panel(rows: str, title: str, unit: str, lines: Lines, scale: float = 1, steep: bool = False) -> None:
        axes, x = next(panels), next(iter(found[rows][0]))
        for key, (label, colour) in lines.items():
            values = [row for row in found[rows] if row[key] is not None]
            points = [(row[x], scale * row[key]) for row in values]  # type: ignore[operator]
            axes.plot(*zip(*points, strict=True), "o-", ms=3.5, lw=1.5, color=colour, label=label)
        axes.set_xscale("log")
        axes.set_xticks(_apart(axes.lines[0].get_xdata().tolist()))
        axes.set_xticks([], minor=True)
        axes.set_yscale("log" if steep else "linear")
        if not steep:
            axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
            axis.set_minor_formatter("")
        axes.set_title(title, fontsize=FONT + 1, loc="left", pad=21)
        axes.set_xlabel(x, fontsize=FONT)
        axes.set_ylabel(unit, fontsize=FONT)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=FONT)
        axes.grid(axis="y", color="#e5e7eb", lw=0.7)
        # Between title and panel, where no data are; a wide one may reach beyond its panel.
        tight = {"fontsize": FONT - 1, "handlelength": 1.2, "columnspacing": 0.8, "handletextpad": 0.4, "borderpad": 0}
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1.01), "borderaxespad": 0, "frameon": False}
        axes.legend(ncols=len(lines), **place, **tight).set_in_layout(False)

    def named(*names: str, unit: str = "ms") -> Lines:
        return {f"{name}, {unit}": (name, COLOURS[name.removeprefix("rosita, ")]) for name in names}

    methods = named("zero_shot", "tda", "rosita, unreliable", "rosita, reliable desired")
    kept = named("zero_shot", "tda", "rosita", unit="bytes")
    banks = {
        "undesired bank, ms": ("undesired, searched", UNDESIRED),
        "score bank, ms": ("of scores, unreliable", DESIRED),
    }
    identifier = {"identifier, µs": ("threshold and means from a full bank", DESIRED)}
    speed = {"images a second": ("all streams together", DESIRED)}
    sizes = {"process, bytes": ("growth of the process", LINE), "tensors, bytes": ("tensors of its state", GREY)}
    process = {"process, bytes": (f"whole process; in the last half {growth:+.1f} bytes a step", LINE)}
    panel("classes", "More classes: time of a step", "ms", methods, steep=True)
    panel("classes", "More classes: what is kept between steps", "MB", kept, 1e-6, steep=True)
    panel("banks", "Larger banks: time of a step of rosita", "ms", banks)
    panel("banks", "Larger bank of scores: time of the identifier", "µs", identifier)
    panel("streams", "More streams in a pool: speed", "images a second", speed)
    panel("streams", "More streams in a pool: memory of each", "kB", sizes, 1e-3)
    panel(
        "length",
        "Longer stream: time of a step of rosita",
        "ms",
        named("unreliable", "reliable desired", "reliable undesired"),
    )
    panel("length", "Longer stream: memory", "MB", process, 1e-6)
    buffer = io.BytesIO()
    # No date and no version inside: the same figures give the same bytes.
    figure.savefig(buffer, format="png", dpi=140, metadata={"Software": None})
    return buffer.getvalue()


def _apart(values: list[float], most: int = 7) -> list[float]:
    """Those of the rising values whose labels fit beside each other on a logarithmic axis."""
    kept, ratio = values[:1], max(1.8, 0.93 * (values[-1] / values[0]) ** (1 / (most - 1)))
    for value in values[1:]:
        kept += [value] if value >= ratio * kept[-1] else []
    return kept
