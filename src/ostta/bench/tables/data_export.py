"""The figures of a suite as data: its runs, one line each (`runs_csv`), and its figures with their intervals, as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ...core.csv_cells import guarded
from .folder_results import FoundCell
from .footnotes import footnotes
from .ranks import ranks_of
from .run_names import stream_key, stream_names
from .suite_figures import FROZEN, Figure, Names, SuiteFigures
from .tidy import tidy_row
from .to_frozen import means_to_frozen, to_frozen

FIGURE_COLUMNS = (
    "metric", "mean", "std", "seeds", "low", "high", "over", "images", "marked", "best", "paper", "gap", "doubt",
)  # fmt: skip


def runs_csv(figures: SuiteFigures) -> str:
    """One line a run and seed, as `ostta.bench.load_results` has them; of a suite, with where it stands in the tables."""
    return _csv(run_rows(figures))


def run_rows(figures: SuiteFigures) -> list[dict[str, Any]]:
    """The runs that a suite's tables show, each once: where it stands in the tables, then what `tidy_row` says of it."""
    suite, rows = figures.suite, []
    # The axes of a folder are made from its runs, and say nothing more.
    named = not any(isinstance(cell, FoundCell) for cell in figures.collected.cells)
    streams = stream_names(result.spec for _, _, result in figures.distinct)
    for row, column, result in figures.distinct:
        names = zip((*suite.rows, *suite.columns), (*row, *column), strict=True)
        at = {"suite": suite.name} | {f"in_{axis}": name for axis, name in names}
        stream = streams[stream_key(result.spec)]
        rows.append((at if named else {}) | tidy_row(result, figures.collected.file_of(result), stream))
    return rows


def figures_csv(figures: SuiteFigures) -> str:
    """One line a figure, unrounded; empty where there is none. Each axis of the suite has a column of its own.

    `part` is the name of a domain, where the figure is of it alone; `group` that of a group of columns, where it is their mean.
    low and high are the paired interval of a difference, where there is one, and `over` what was drawn for it.
    """
    return _csv(figure_rows(figures))


def figures_json(figures: SuiteFigures) -> str:
    """All that tables, footnotes and pictures are made from."""
    suite, collected = figures.suite, figures.collected
    content = {
        "suite": suite.name,
        "title": suite.title,
        "rows": suite.rows,
        "columns": suite.columns,
        "headline": figures.headline,
        "missing": len(collected.cells) - collected.found,
        "figures": figure_rows(figures),
        "to_frozen": [asdict(one) for one in to_frozen(figures)],
        "means_to_frozen": [asdict(one) for one in means_to_frozen(figures)],
        "ranks": [
            {"backbone": one.backbone, "metric": one.metric, "why_not": one.why_not or None}
            | ({} if one.ranks is None else asdict(one.ranks) | {"apart": sorted(one.ranks.apart)})
            for one in ranks_of(figures)
        ],
        "runs": run_rows(figures),
        "notes": footnotes(figures),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def figure_rows(figures: SuiteFigures) -> list[dict[str, Any]]:
    """What `figures_csv` has, as values."""
    suite = figures.suite
    # To the frozen row always, to ROSITA where the tables have it too.
    shown = [each for each in figures.differences if each.against == FROZEN or each in figures.shown_differences]
    differences = [each.name for each in shown]
    rows = []
    for row, column, part, group, metric, figure in _figures(figures, differences):
        names = dict(zip(suite.rows, row, strict=True))
        names |= dict(zip(suite.columns, column or [""] * len(suite.columns), strict=True))
        # An axis may be called as one of our columns is.
        named = {f"axis_{axis}" if axis in _OURS else axis: name for axis, name in names.items()}
        values = {name: metric if name == "metric" else getattr(figure, name) for name in FIGURE_COLUMNS}
        rows.append({"suite": suite.name} | named | {"part": part, "group": group} | values)
    return rows


_OURS = {"suite", "part", "group", *FIGURE_COLUMNS}


def _figures(figures: SuiteFigures, differences: Sequence[str]) -> Iterator[tuple[Names, Names, str, str, str, Figure]]:
    """Row, column, part, group, metric and figure."""
    for row in figures.rows:
        for column in figures.columns:
            for metric in (*figures.suite.metrics, *differences, *figures.cost):
                if (figure := figures.figure(row, column, metric)) is not None:
                    yield row, column, "", "", metric, figure
            for part in figures.suite.parts:
                if (figure := figures.figure(row, column, figures.headline, part)) is not None:
                    yield row, column, part, "", figures.headline, figure
        for group in figures.groups:
            for metric in (*figures.suite.metrics, *differences):
                yield row, (), "", group or "all others", metric, figures.group_figure(row, group, metric)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(guarded, columns))
    writer.writerows(_cells(row.get(name) for name in columns) for row in rows)
    return out.getvalue()


def _cells(values: Iterable[Any]) -> list[str]:
    return ["" if value is None else guarded(value) if isinstance(value, str) else repr(value) for value in values]
