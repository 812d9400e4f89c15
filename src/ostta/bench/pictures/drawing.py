"""What all pictures share. Figures are made without pyplot, so nothing global is touched."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ...config.registry import require_known

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
