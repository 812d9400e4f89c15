"""`ostta backbone`: prepare what a method needs of a backbone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error
from .parsing import DEVICE_HELP, DTYPE_HELP

if TYPE_CHECKING:
    import torch

app = typer.Typer(help="Prepare backbones.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """A group of its own, although there is one command."""


@app.command()
def statistics(
    backbone: Annotated[str, typer.Option(help="A backbone with MaPLe prompts: BACKBONE+maple:PATH.")],
    images: Annotated[str, typer.Option(help="Source images, as a data set: folder:PATH, parquet:PATH or a name.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; else beside the prompts.")] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="Only so many images.")] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "float32",
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets; else the variable OSTTA_DATA.")] = None,
) -> None:
    """Take the token statistics of source images, which PromptAlign aligns with.

    Example: ostta backbone statistics --backbone openai/clip-vit-base-patch16+maple:maple --images folder:imagenet/val
    """
    from .. import backbones
    from ..backbones.maple import Maple
    from ..backbones.maple_files import measure_statistics, statistics_file, write_statistics
    from ..data.by_name import open_dataset
    from ..data.views import canonical
    from .run_progress import progress_line

    maple = backbones.load(backbone, device, dtype)
    if not isinstance(maple, Maple):
        raise Error(f"Token statistics are for backbones with MaPLe prompts, and {backbone} has none.")
    target = out or statistics_file(backbone)
    dataset = open_dataset(images, data, named=False, limit=limit)
    with progress_line("images") as watch:

        def views() -> Iterator[torch.Tensor]:
            for number in range(len(dataset)):
                yield canonical(dataset.image(number), maple.preprocessing)
                watch(number + 1, len(dataset), None)

        found, count = measure_statistics(maple, views())
    about = {"backbone": maple.id, "weight_hash": maple.weight_hash, "images": count, "of": dataset.name}
    write_statistics(found, target, about)
    print(f"Token statistics of {count} images, {list(found.means.shape)}: {target}")
