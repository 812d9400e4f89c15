"""`ostta demo`: the frozen classifier, ROSITA and the profile `field` side by side on data that ship with the package."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..bench.result import Result


class Setting(StrEnum):
    """What the demo shows."""

    paper = "paper"
    photos = "photos"


@dataclass(frozen=True)
class Demo:
    """The stream of a demo: `fields` of its runs, the largest number of known images, and a title for `images` of them."""

    backbone: str
    fields: dict[str, Any]
    most: int
    title: str


DEMOS = {
    Setting.paper: Demo(
        "embedded",
        {"desired": "sample:cifar10c", "undesired": "sample:mnist"},
        1000,
        "CIFAR-10 under snow, severity 5 ({0} images), against MNIST ({0}), embedded model",
    ),
    Setting.photos: Demo(
        "photos",
        {
            "desired": "sample:photosc",
            "undesired": "sample:photos_unknownc",
            "severity": 4,
            "scenario": {
                "kind": "domains",
                "domains": [
                    {"desired": "sample:photos", "undesired": "sample:photos_unknown", "name": "clean"},
                    {"desired": "sample:photosc", "undesired": "sample:photos_unknownc", "name": "snow"},
                ],
            },
        },
        100,
        "{0} photographs of 10 classes and {0} of others, clean and then under snow (severity 4), backbone photos",
    ),
}


def demo(
    setting: Annotated[
        Setting,
        typer.Argument(help="paper: thumbnails under snow against digits. photos: photographs, clean and under snow."),
    ] = Setting.paper,
    images: Annotated[
        int | None,
        typer.Option(
            min=10, max=1000, help="Desired images; as many undesired ones join them. All of the sample if not given."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report and the result files.")] = Path("ostta-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the stream's order and of the augmentation.")] = 0,
) -> None:
    """Run zero-shot, ROSITA and what we recommend on a model and a sample that ship: a table, and a report to open in a browser.

    Example: ostta demo photos --out my-demo
    """
    from .. import backbones
    from ..bench.run import carry_out, prepare
    from ..bench.spec import RunSpec, name_of
    from ..bench.stream import SeenImages, uncorrupted
    from ..config.profiles import apply_profile
    from ..io import make_folder, write_atomically
    from ..pages.demo import demo_page
    from .run_progress import progress_line

    shown = DEMOS[setting]
    count = min(images or shown.most, shown.most)
    make_folder(out)
    backbone = backbones.load(shown.backbone)
    finished = []
    for wanted in (apply_profile(None, "zero_shot"), apply_profile(None, "rosita"), apply_profile("field")):
        fields = {**dataclasses.asdict(wanted), **shown.fields, "backbone": shown.backbone}
        spec = RunSpec(**fields, limit=count, seed=seed)
        prepared = prepare(spec, None, backbone)
        with progress_line(name_of(spec)) as watch:
            result, records = carry_out(prepared, watch)
        result.write(prepared.path(out))
        finished.append((result, records))
    _print([result for result, _ in finished], shown.title.format(count))
    page = out / "report.html"
    seen = SeenImages(prepared.stream, prepared.adapter.classes, uncorrupted(spec.desired, None))
    write_atomically(page, demo_page(finished, seen).encode())
    print(f"Report: {page}")
    if setting is Setting.paper:
        print("The same on photographs: ostta demo photos")


def _print(results: list[Result], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from ..bench.spec import name_of
    from ..bench.tables import HEADINGS, rows

    table = Table(box=None, pad_edge=False, title=title)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for name, cells in rows(results):
        table.add_row(name, *(cell.text for cell in cells))
    # No figure is cut short, neither in a pipe nor in a narrow window.
    Console(width=max(Console().width, 120)).print(table)
    for result in results:
        if result.domains:
            parts = ", ".join(
                f"{domain.name} {domain.metrics.hm:.2f}" for domain in result.domains if domain.metrics.hm is not None
            )
            print(f"HM of {name_of(result.spec)}: {parts}")
    for remark in results[0].remarks:
        print(remark)
    for busy in [result.load.remark for result in results if result.load is not None and result.busy][:1]:
        print(busy)
