"""`ostta backbone statistics`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Data, Device, Dtype


def statistics(
    backbone: Annotated[str, typer.Option(help="A backbone with MaPLe prompts: BACKBONE+maple:PATH.")],
    images: Annotated[str, typer.Option(help="Source images: folder:PATH, parquet:PATH or another data set.")],
    out: Annotated[Path | None, typer.Option(help="The file to write. Default: a file beside the prompts.")] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="Maximum number of images.")] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    data: Data = None,
) -> None:
    """Measure token statistics for PromptAlign.

    They are computed from source images and stored beside the prompts.

    Example: ostta backbone statistics --backbone openai/clip-vit-base-patch16+maple:maple --images folder:imagenet/val
    """
    from ..bench.token_statistics import store_statistics
    from .progress import progress_line

    with progress_line("images") as watch:
        path, count, shape = store_statistics(
            backbone, images, out, limit=limit, device=device, dtype=dtype, root=data, watch=watch
        )
    print(f"Token statistics of {count} images, {list(shape)}: {path}")
