"""`ostta run` with one seed: one run and its result."""

from __future__ import annotations

from pathlib import Path

from ..bench.folder import ResultFolder
from ..bench.result import METRICS, number, read_result
from ..bench.run import ensure_result, prepare
from ..bench.spec import RunSpec, is_frozen, name_of
from ..bench.tables import HEADINGS, rows
from .progress import progress_line


def run_one(spec: RunSpec, data: Path | None, out: Path, *, records: bool | None, log: str | None) -> None:
    """Carry out a run, or find its result, and print the result. The path of the file is printed last."""
    prepared = prepare(spec, data)
    for remark in filter(None, prepared.remarks):
        print(remark)
    with progress_line(name_of(spec)) as watch:
        file = ensure_result(prepared, out, keep_records=records, watch=watch, log=log)
    path, result = file.path, read_result(file.path)
    if file.note:
        print(file.note)
    if not file.fresh:
        print("Result reused: the folder has the result of this run on the same stream, weights and classes.")
    frozen = ResultFolder(out, containing=result.stream.hash).frozen_for(result)
    name, cells = rows([result] if frozen is None else [frozen, result])[-1]
    for heading, cell in zip(HEADINGS, (name, *(cell.text for cell in cells)), strict=True):
        no_frozen = heading == "ΔHM" and frozen is None and not is_frozen(spec)
        note = " (the folder has no frozen result of this stream: --method zero_shot computes it)" if no_frozen else ""
        print(f"{heading:<10} {cell}{note}")
    print("Further measures:")
    for name, value in result.measures.items():
        if value is not None:
            print(f"  {number(value, name):>7} {METRICS[name]}")
    if result.domains:
        print(f"HM of each domain, mean {number(result.hm_mean_domains, 'hm')}:")
        for domain in result.domains:
            print(f"  {number(domain.metrics.hm, 'hm'):>6} {domain.name} ({domain.images} images)")
    if result.load is not None and result.load.remark:
        print(result.load.remark)
    print(path)
