"""`ostta bench table` and `ostta bench report`: what a folder has of a suite, as tables or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error
from .parsing import DTYPE_HELP

if TYPE_CHECKING:
    from ..bench.tables.suite_figures import SuiteFigures

_Suite = Annotated[str, typer.Argument(help="See `ostta bench ls`, or a TOML file of yours.")]
_Out = Annotated[Path, typer.Option(help="Folder of the result files.")]
_Fpr95 = Annotated[str, typer.Option(help="How FPR95 is counted: interpolated (published), strict or undesired.")]
_Seeds = Annotated[str | None, typer.Option(help="a,b,c in place of the suite's seeds.")]
_Limit = Annotated[int | None, typer.Option(help="As it was given to the runs.")]
_Only = Annotated[list[str] | None, typer.Option(help="axis=entry,entry, as often as needed: --only method=rosita.")]
_Device = Annotated[str | None, typer.Option(help="That of the runs: cpu, cuda or mps.")]
_Dtype = Annotated[str | None, typer.Option(help=f"That of the runs. {DTYPE_HELP}")]


def table(
    suite: _Suite,
    format_: Annotated[str, typer.Option("--format", help="md, csv or latex.")] = "md",
    fpr95: _Fpr95 = "interpolated",
    out: _Out = Path("ostta-runs"),
    seeds: _Seeds = None,
    limit: _Limit = None,
    only: _Only = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Print the tables of a suite from the results that are there: frozen row first, spread over seeds, the paper's figures beside.

    Example: ostta bench table embedded/k --format latex --only stream=C-10C/MNIST
    """
    from ..bench.tables.export import FORMATS
    from ..registry import pick

    write = FORMATS[pick(format_, FORMATS, "format")]
    figures = _figures_of(suite, fpr95, out, seeds, limit, only, device, dtype)
    if not figures.collected.found:
        raise Error(figures.collected.missing)
    typer.echo(write(figures), nl=False)


def report(
    suite: _Suite,
    to: Annotated[Path | None, typer.Option(help="The page; else SUITE.html in the folder of the results.")] = None,
    fpr95: _Fpr95 = "interpolated",
    out: _Out = Path("ostta-runs"),
    seeds: _Seeds = None,
    limit: _Limit = None,
    only: _Only = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Write one HTML page about a suite: tables, pictures, failed runs and the options of every run; nothing on it is loaded from elsewhere.

    Example: ostta bench report embedded/scores --to scores.html
    """
    from ..bench.report.pages import page_name, suite_report
    from ..files import write_atomically

    figures = _figures_of(suite, fpr95, out, seeds, limit, only, device, dtype)
    path = out / page_name(suite) if to is None else to
    write_atomically(path, suite_report(figures).encode())
    typer.echo(path)


def _figures_of(
    suite: str,
    fpr95: str,
    out: Path,
    seeds: str | None,
    limit: int | None,
    only: list[str] | None,
    device: str | None,
    dtype: str | None,
) -> SuiteFigures:
    from ..bench.suite import load_suite
    from ..bench.tables.suite_figures import SuiteFigures
    from ..bench.tables.suite_results import collect_results
    from ..metrics import FPR95
    from ..registry import pick
    from .parsing import parse_only, parse_seeds

    pick(fpr95, FPR95, "convention of FPR95")
    # Results may be read where there is no such device.
    given = {name: value for name, value in {"device": device, "dtype": dtype}.items() if value is not None}
    collected = collect_results(load_suite(suite), out, parse_seeds(seeds), limit, parse_only(only or []), given)
    return SuiteFigures(collected, fpr95)
