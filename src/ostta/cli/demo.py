"""`ostta demo`: the frozen classifier and ROSITA side by side on what ships with the package."""

from __future__ import annotations

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
    """Run zero-shot and ROSITA on the embedded model and sample: a table, and a report to open in a browser.

    Example: ostta demo --images 500 --out my-demo
    """
    from rich.console import Console
    from rich.table import Table

    from .. import backbones
    from ..bench.report.pages import report
    from ..bench.report.run_pictures import overview
    from ..bench.run.execute import carry_out, prepare
    from ..bench.spec import RunSpec
    from ..bench.tables.layout import HEADINGS, rows
    from ..files import make_folder, write_atomically
    from .run_progress import progress_line

    make_folder(out)
    backbone = backbones.load("embedded")
    finished = []
    for method in ("zero_shot", "rosita"):
        spec = RunSpec(method=method, desired="sample:cifar10c", undesired="sample:mnist", limit=images, seed=seed)
        prepared = prepare(spec, None, backbone)
        with progress_line(method) as watch:
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
    for row in rows([result for result, _ in finished]):
        table.add_row(*row)
    Console().print(table)
    for remark in finished[0][0].remarks:
        print(remark)
    page = out / "report.html"
    write_atomically(page, report(finished, "ostta demo: known or unknown, then which class").encode())
    write_atomically(out / "overview.png", overview({result.spec.method: records for result, records in finished}))
    print(f"Report: {page}")
