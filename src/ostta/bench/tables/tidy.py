"""Results as tidy data: one row a run and seed, one column a quantity."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.types import Error
from ...evaluation.measures import MEASURES
from ...evaluation.metrics import BEHIND, FPR95, NAMES
from ..result import Result
from .folder_results import FoundFiles, read_folder
from .run_names import method_name, stream_key, stream_name, stream_names, used_condition

if TYPE_CHECKING:
    import pandas

# Of the spec, in the order of the columns. Options have columns of their own behind all others.
_SPEC = (
    "backbone", "method", "score", "identifier", "profile", "guard", "desired", "undesired", "classes", "undesired_classes",
    "corruption", "severity", "ratio", "limit", "draw", "seed", "device", "dtype",
)  # fmt: skip
_FIGURES = (*NAMES, *(name for name in FPR95.values() if name not in NAMES), *BEHIND)


def tidy_row(result: Result, file: str, stream: str | None = None) -> dict[str, Any]:
    """One result as plain values; None where it does not say. An option that was set is `option_NAME`.

    `stream` is the name of the stream among others (`run_names.stream_names`); by default, the name that it has alone.
    """
    spec, total = result.spec, result.latency_ms.total
    cached = result.cached_features
    return {
        "file": file,
        "name": method_name(spec),
        "stream": stream_name(spec) if stream is None else stream,
        **{name: _plain(getattr(spec, name)) for name in _SPEC},
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
        # Where features came from an earlier run, times say nothing.
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


def results_frame(folder: Path) -> pandas.DataFrame:
    """All results of a folder; an Error where there are none. `ostta.bench.load_results` is the public name of it."""
    files = read_folder(folder)
    if not files.results:
        raise Error(f"There are no results in {folder}; `ostta run --out {folder}` makes one.")
    return frame(tidy_rows(files))


def tidy_rows(files: FoundFiles) -> list[dict[str, Any]]:
    """The runs of a folder by stream, backbone, method and seed."""
    names = stream_names(result.spec for result in files.results.values())
    rows = [
        tidy_row(result, files.paths[key].name, names[stream_key(result.spec)]) for key, result in files.results.items()
    ]
    return sorted(rows, key=lambda row: (row["stream"], row["backbone"], row["name"], row["seed"]))


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a table of pandas."""
    try:
        import pandas
    except ImportError as problem:
        raise Error('Results as a table need pandas: install it with `pip install "ostta[bench]"`.') from problem
    return pandas.DataFrame.from_records(list(rows), columns=list(dict.fromkeys(name for row in rows for name in row)))


def parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a parquet file. A column whose values are of several kinds, as options can be, is one of texts."""
    import io

    import pyarrow
    import pyarrow.parquet

    columns: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        mixed = len(kinds) > 1 and not kinds <= {int, float}
        columns[name] = [None if value is None else str(value) for value in values] if mixed else values
        if kinds == {int, float}:
            columns[name] = [None if value is None else float(value) for value in values]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """A list or an object as one text."""
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value, default=str)
