"""All pictures of a suite or a folder, as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...config.registry import require_known
from ...core.types import Error
from ...io import make_folder, write_atomically
from ..suite import METRICS
from ..tables.ranks import ranks_of
from ..tables.suite_figures import SuiteFigures
from ..tables.to_frozen import to_frozen
from .difference_picture import difference_picture
from .drawing import METADATA, as_file
from .rank_picture import rank_picture

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
