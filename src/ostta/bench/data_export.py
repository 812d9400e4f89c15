"""Results as data, one row a run or one row a figure: CSV, JSON, parquet or a data frame."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..config.plugins import names_file
from ..config.registry import find_components
from ..core.errors import import_extra
from ..core.text import guarded
from ..core.types import Error
from ..evaluation.measures import MEASURES
from ..evaluation.metrics import FPR95, NAMES, SUPPORTING
from .against_frozen import means_to_frozen, ranks_of, to_frozen
from .collected import Names
from .figures import FROZEN, Figure, SuiteFigures
from .folder import ResultFolder
from .footnotes import footnotes
from .naming import method_name, short, stream_name, stream_names, used_condition
from .records import parquet_bytes
from .result import Result
from .spec import RunSpec, stream_key

if TYPE_CHECKING:
    import pandas


# Fields of the spec in the order of the columns. Options have columns after all others.
_SPEC = (
    "backbone", "method", "score", "identifier", "profile", "guard", "desired", "undesired", "classes",
    "undesired_classes", "corruption", "severity", "ratio", "limit", "draw", "arrangement", "seed", "device",
    "dtype",
)  # fmt: skip


_FIGURES = (*NAMES, *(name for name in FPR95.values() if name not in NAMES), *SUPPORTING)


def tidy_row(result: Result, file: str, stream: str | None = None) -> dict[str, Any]:
    """Return one result as plain values; None for missing values. An option that was set is `option_NAME`.

    `stream` is the name of the stream among others (`naming.stream_names`); by default, its name alone.
    """
    spec, total = result.spec, result.latency_ms.total
    cached = result.cached_features
    return {
        "file": file,
        "name": method_name(spec),
        "stream": stream_name(spec) if stream is None else stream,
        **{name: _plain(getattr(spec, name)) for name in _SPEC},
        "score": _score(spec),
        **used_condition(spec),
        "scenario": spec.scenario.kind,
        **{name: getattr(result.metrics, name) for name in _FIGURES},
        "hm_mean_domains": result.hm_mean_domains,
        **{name if name in MEASURES else f"measure_{name}": value for name, value in result.measures.items()},
        "images_desired": result.counts.get("desired"),
        "images_undesired": result.counts.get("undesired"),
        "updates": result.updates,
        "resets": result.resets,
        "events": sum(result.events.values()),
        # Times of runs on cached features are not comparable.
        "ms_mean": None if cached else total.mean,
        "ms_p50": None if cached else total.p50,
        "ms_p95": None if cached else total.p95,
        "seconds": result.seconds,
        "peak_memory_mb": result.peak_memory_mb,
        "records": result.records,
        "stream_hash": result.stream.hash,
        "stream_identity": result.stream.identity,
        "weight_hash": result.weight_hash,
        "class_names_hash": result.class_names_hash,
        "ostta": result.versions.get("ostta"),
        "torch": result.versions.get("torch"),
        "hardware": result.hardware,
        "threads": result.threads,
        **{f"option_{name}": _plain(value) for name, value in sorted(spec.options.items())},
    }


def tidy_rows(folder: ResultFolder) -> list[dict[str, Any]]:
    """Return the newest result of each run, ordered by stream, backbone, method and seed."""
    newest = list(folder.newest.values())
    names = stream_names(stored.result.spec for stored in newest)
    rows = [tidy_row(stored.result, stored.path.name, names[stream_key(stored.result.spec)]) for stored in newest]
    return sorted(rows, key=lambda row: (row["stream"], row["backbone"], row["name"], row["seed"]))


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a pandas table."""
    library = import_extra("pandas", "A table of results", "bench")
    table: pandas.DataFrame = library.DataFrame.from_records(list(rows), columns=_names(rows))
    return table


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a parquet file. A column with values of several types becomes text."""
    columns: dict[str, list[Any]] = {}
    for name in _names(rows):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        if len(kinds) > 1:
            common = float if kinds == {int, float} else str
            values = [None if value is None else common(value) for value in values]
        columns[name] = values
    return parquet_bytes(columns)


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all columns, in the order in which the rows have them."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _plain(value: Any) -> Any:
    """Return a list or an object as text, and the name of code in a file without its folder."""
    if names_file(value):
        return short(value)
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value, default=str)


def _score(spec: RunSpec) -> str | None:
    """Return the score of a run; None if it is the default of an identifier that is not registered."""
    if spec.score is not None:
        return short(spec.score)
    with suppress(Error):
        return find_components(RunSpec().method, None, spec.identifier).score.name
    return None


FIGURE_COLUMNS = (
    "metric", "mean", "std", "seeds", "low", "high", "over", "images", "marked", "best", "paper", "gap", "doubt",
)  # fmt: skip


def run_rows(figures: SuiteFigures) -> list[dict[str, Any]]:
    """Return one row for each run of the tables, as `load_results`; for a suite, with its place in the tables."""
    suite, rows = figures.suite, []
    # The axes of a folder repeat the columns of its runs.
    named = not figures.collected.of_folder
    streams = stream_names(result.spec for _, _, result in figures.distinct)
    for row, column, result in figures.distinct:
        names = zip((*suite.rows, *suite.columns), (*row, *column), strict=True)
        at = {"suite": suite.name} | {f"in_{axis}": name for axis, name in names}
        stream = streams[stream_key(result.spec)]
        rows.append((at if named else {}) | tidy_row(result, figures.collected.file_of(result), stream))
    return rows


def figures_json(figures: SuiteFigures) -> str:
    """Return all data of tables, footnotes and charts as JSON."""
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
    """Return one row for each figure, not rounded. Each axis of the suite has a column.

    `part`: name of a domain, if the figure is of one domain. `group`: name of a group of columns, if the figure is a
    mean over it. low, high: the paired interval of a difference; over: what was sampled for it.
    """
    suite = figures.suite
    # Differences to the frozen row always, and to ROSITA if the tables show them.
    shown = [each for each in figures.differences if each.against == FROZEN or each in figures.shown_differences]
    differences = [each.name for each in shown]
    rows = []
    for row, column, part, group, metric, figure in _figures(figures, differences):
        names = dict(zip(suite.rows, row, strict=True))
        names |= dict(zip(suite.columns, column or [""] * len(suite.columns), strict=True))
        # An axis may have the name of another column.
        named = {f"axis_{axis}" if axis in _OURS else axis: name for axis, name in names.items()}
        values = {name: metric if name == "metric" else getattr(figure, name) for name in FIGURE_COLUMNS}
        rows.append({"suite": suite.name} | named | {"part": part, "group": group} | values)
    return rows


_OURS = {"suite", "part", "group", *FIGURE_COLUMNS}


def _figures(figures: SuiteFigures, differences: Sequence[str]) -> Iterator[tuple[Names, Names, str, str, str, Figure]]:
    """Yield row, column, part, group, metric and figure."""
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


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, with empty cells for missing values."""
    out, names = io.StringIO(), _names(rows)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(guarded, names))
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> str:
    return "" if value is None else guarded(value) if isinstance(value, str) else repr(value)
