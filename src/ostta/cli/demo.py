"""`ostta demo`: the frozen classifier, ROSITA and the profile `field` side by side on what ships with the package."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer


def demo(
    images: Annotated[
        int, typer.Option(min=10, max=1000, help="Desired images; as many undesired ones join them.")
    ] = 1000,
    out: Annotated[Path, typer.Option(help="Folder for the report and the result files.")] = Path("ostta-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the stream's order and of the augmentation.")] = 0,
) -> None:
    """Run zero-shot, ROSITA and what we recommend on the embedded model and sample: a table, and a report to open in a browser.

    Example: ostta demo --images 500 --out my-demo
    """
    from rich.console import Console
    from rich.table import Table

    from .. import backbones
    from ..bench.run import carry_out, prepare
    from ..bench.spec import RunSpec, name_of
    from ..bench.stream import SeenImages, uncorrupted
    from ..bench.tables import HEADINGS, rows
    from ..config.profiles import apply_profile
    from ..io import make_folder, write_atomically
    from ..pages.demo import demo_page
    from .run_progress import progress_line

    make_folder(out)
    backbone = backbones.load("embedded")
    finished = []
    for wanted in (apply_profile(None, "zero_shot"), apply_profile(None, "rosita"), apply_profile("field")):
        spec = RunSpec(
            **dataclasses.asdict(wanted),
            desired="sample:cifar10c",
            undesired="sample:mnist",
            limit=images,
            seed=seed,
        )
        prepared = prepare(spec, None, backbone)
        with progress_line(name_of(spec)) as watch:
            result, records = carry_out(prepared, watch)
        result.write(prepared.path(out))
        finished.append((result, records))
    table = Table(
        box=None,
        pad_edge=False,
        title=f"CIFAR-10 under snow, severity 5 ({images} images), against MNIST ({images}), embedded model",
    )
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for name, cells in rows([result for result, _ in finished]):
        table.add_row(name, *(cell.text for cell in cells))
    # No figure is cut short, neither in a pipe nor in a narrow window.
    Console(width=max(Console().width, 120)).print(table)
    for remark in finished[0][0].remarks:
        print(remark)
    for busy in [result.load.remark for result, _ in finished if result.load is not None and result.busy][:1]:
        print(busy)
    page = out / "report.html"
    seen = SeenImages(prepared.stream, prepared.adapter.classes, uncorrupted(spec.desired, None))
    write_atomically(page, demo_page(finished, seen).encode())
    print(f"Report: {page}")
