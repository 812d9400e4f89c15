"""`ostta demo`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Seed

if TYPE_CHECKING:
    from ..bench.result import Result


class Setting(StrEnum):
    """The data of the demo."""

    paper = "paper"
    photos = "photos"


def demo(
    setting: Annotated[
        Setting,
        typer.Argument(help="paper: thumbnails under snow and digits. photos: photographs, clean and under snow."),
    ] = Setting.paper,
    images: Annotated[
        int | None,
        typer.Option(min=10, max=1000, help="Number of known images, and of unknown images. Default: all."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the report and the result files.")] = Path("ostta-demo"),
    seed: Seed = 0,
) -> None:
    """Compare the frozen model, ROSITA and the recommended profile.

    The model and the images are included. The command prints a table and writes report.html.

    Example: ostta demo photos --out my-demo
    """
    from .. import backbones
    from ..bench.demo import DEMOS
    from ..bench.run import carry_out, prepare
    from ..bench.spec import name_of
    from ..io import make_folder, write_atomically
    from ..pages.demo import demo_page
    from ..pages.images import SeenImages, uncorrupted
    from .progress import progress_line

    shown = DEMOS[setting]
    make_folder(out)
    backbone = backbones.load(shown.backbone)
    finished = []
    for spec in shown.specs(images, seed):
        prepared = prepare(spec, None, backbone)
        with progress_line(name_of(spec)) as watch:
            finished.append(carry_out(prepared, watch))
        finished[-1][0].write(prepared.path(out))
    _print_results([result for result, _ in finished], shown.title.format(spec.limit))
    page = out / "report.html"
    seen = SeenImages(prepared.stream, prepared.adapter.classes, uncorrupted(spec.desired, None))
    write_atomically(page, demo_page(finished, seen).encode())
    print(f"Report: {page}")
    if setting is Setting.paper:
        print("The same comparison on photographs: ostta demo photos")


def _print_results(results: list[Result], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..bench.spec import name_of
    from ..bench.tables import HEADINGS, rows

    table = Table(box=None, pad_edge=False, title=title)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for name, cells in rows(results):
        table.add_row(name, *(cell.text for cell in cells))
    # In a pipe or a narrow window, figures are not truncated.
    Console(width=max(Console().width, 120)).print(table)
    for result in results:
        domains = [f"{one.name} {one.metrics.hm:.2f}" for one in result.domains or () if one.metrics.hm is not None]
        if domains:
            print(f"HM of {name_of(result.spec)}: {', '.join(domains)}")
    for remark in results[0].remarks:
        print(remark)
    for busy in [result.load.remark for result in results if result.load is not None and result.busy][:1]:
        print(busy)
