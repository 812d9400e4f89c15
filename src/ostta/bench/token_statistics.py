"""Token statistics of source images, which PromptAlign aligns the tokens of test images with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from .. import backbones
from ..backbones.maple import measure_statistics, statistics_file, write_statistics
from ..core.types import Error
from ..data.views import canonical
from .extract import open_part
from .run import Watch


def store_statistics(
    backbone: str,
    images: str,
    out: Path | None = None,
    *,
    limit: int | None = None,
    device: str = "auto",
    dtype: str = "float32",
    root: Path | None = None,
    watch: Watch,
) -> tuple[Path, int, torch.Size]:
    """Measure the token statistics of a data set and write them to `out`, by default beside the prompts.

    Returns the path, the number of images and the shape of the statistics.
    """
    model = backbones.load(backbone, device, dtype)
    if not isinstance(model, backbones.HasTokenStatistics):
        raise Error(
            f"Token statistics are for backbones with MaPLe prompts, and {backbone} has none.",
            code="backbone-without-prompts",
        )
    path = out or statistics_file(backbone)
    _, dataset = open_part(images, root, limit, 0, desired=True, named=False)

    def views() -> Iterator[torch.Tensor]:
        for number in range(len(dataset)):
            yield canonical(dataset.image(number), model.preprocessing)
            watch(number + 1, len(dataset), None)

    found, count = measure_statistics(model, views())
    about = {"backbone": model.id, "weight_hash": model.weight_hash, "images": count, "of": dataset.name}
    write_statistics(found, path, about)
    return path, count, found.means.shape
