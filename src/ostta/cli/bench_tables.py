"""`ostta bench table`, `pictures` and `report`: what a folder has of a suite, or at all, as tables, pictures or a page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error
from .parsing import DTYPE_HELP

if TYPE_CHECKING:
    from ..bench.figures import SuiteFigures

PARQUET = "parquet"
_Suite = Annotated[
    str, typer.Argument(help="See `ostta bench ls`; or a TOML file of yours; or a folder, for whatever lies there.")
]
_Out = Annotated[Path, typer.Option(help="Folder of a suite's result files.")]
_Fpr95 = Annotated[str, typer.Option(help="How FPR95 is counted: interpolated (published), strict or undesired.")]
_Seeds = Annotated[str | None, typer.Option(help="a,b,c in place of the suite's seeds.")]
_Limit = Annotated[int | None, typer.Option(help="As it was given to the runs.")]
_Only = Annotated[list[str] | None, typer.Option(help="axis=entry,entry, as often as needed: --only method=rosita.")]
_Device = Annotated[str | None, typer.Option(help="That of the runs: cpu, cuda or mps.")]
_Dtype = Annotated[str | None, typer.Option(help=f"That of the runs. {DTYPE_HELP}")]


def table(
    suite: _Suite,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="md or latex: tables; latex-compact: the headline only, one column a stream; csv or parquet: one row a run and seed; figures: CSV of all figures and their intervals; "
            "json: everything.",
        ),
    ] = "md",
    to: Annotated[Path | None, typer.Option(help="A file to write to, in place of the terminal.")] = None,
    fpr95: _Fpr95 = "interpolated",
    out: _Out = Path("ostta-runs"),
    seeds: _Seeds = None,
    limit: _Limit = None,
    only: _Only = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Print the tables of a suite, or of whatever lies in a folder: frozen row first, paired intervals, the paper's figures beside.

    Example: ostta bench table embedded/k --format latex --only stream=C-10C/MNIST

    Example: ostta bench table ostta-runs --format parquet --to runs.parquet
    """
    from ..bench.data_export import parquet, run_rows
    from ..bench.formats import FORMATS
    from ..config.registry import require_known
    from ..io import write_atomically

    require_known(format_, [*FORMATS, PARQUET], "format")
    if format_ == PARQUET and to is None:
        raise Error("A parquet file cannot be printed: name a file with `--to runs.parquet`.")
    figures = _figures_of(suite, fpr95, out, seeds, limit, only, device, dtype)
    if not figures.collected.found:
        raise Error(figures.collected.missing)
    if to is None:
        typer.echo(FORMATS[format_](figures), nl=False)
        return
    write_atomically(to, parquet(run_rows(figures)) if format_ == PARQUET else FORMATS[format_](figures).encode())
    typer.echo(to)


def pictures(
    suite: _Suite,
    to: Annotated[Path, typer.Option(help="The folder of the pictures.")] = Path("ostta-pictures"),
    format_: Annotated[str, typer.Option("--format", help="svg, pdf or png, or several: svg,pdf.")] = "svg,pdf",
    out: _Out = Path("ostta-runs"),
    seeds: _Seeds = None,
    limit: _Limit = None,
    only: _Only = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Draw a suite, or whatever lies in a folder, for papers and slides: differences to the frozen row, and average ranks over streams.

    Example: ostta bench pictures ostta-runs --to figures --format pdf
    """
    from ..pages.pictures import save_pictures

    formats = [name.strip() for name in format_.split(",")]
    figures = _figures_of(suite, "interpolated", out, seeds, limit, only, device, dtype)
    paths, sentences = save_pictures(figures, to, formats)
    for line in (*sentences, *paths):
        typer.echo(line)


def report(
    suite: _Suite,
    to: Annotated[
        Path | None,
        typer.Option(help="The page; else SUITE.html in the folder of the results, of a folder report.html."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data sets, for images of the streams; else the variable OSTTA_DATA."),
    ] = None,
    opened: Annotated[
        list[str] | None,
        typer.Option(
            "--open", help="Of a folder: a data set that a result file names by a path, to be read for the page."
        ),
    ] = None,
    fpr95: _Fpr95 = "interpolated",
    out: _Out = Path("ostta-runs"),
    seeds: _Seeds = None,
    limit: _Limit = None,
    only: _Only = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Write one HTML page about a suite: overview, tables, images, charts and the commands; nothing on it is loaded from elsewhere.

    Example: ostta bench report embedded/scores --data DATA --to scores.html
    """
    from ..bench.collected import is_folder
    from ..bench.stream import seen_images, stream_images
    from ..io import write_atomically
    from ..pages.suite import page_name, suite_report

    figures = _figures_of(suite, fpr95, out, seeds, limit, only, device, dtype)
    path = figures.collected.folder / page_name(suite) if to is None else to
    # Of a folder, only its result files say which sets they are of.
    asking = partial(stream_images, root=data, opened=opened or ())
    images = asking if is_folder(suite) else partial(seen_images, root=data)
    write_atomically(path, suite_report(figures, images).encode())
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
    from ..bench.figures import figures_of
    from .parsing import parse_only, parse_seeds

    # Results may be read where there is no such device.
    given = {name: value for name, value in {"device": device, "dtype": dtype}.items() if value is not None}
    chosen = parse_only(only or [])
    return figures_of(suite, out, seeds=parse_seeds(seeds), limit=limit, only=chosen, fpr95=fpr95, given=given)
