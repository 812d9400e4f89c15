"""`ostta backbone`: prepare what a method needs of a backbone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.types import Error
from .options import Data, Device, Dtype, Template

if TYPE_CHECKING:
    import torch

    from ..streams import Source

app = typer.Typer(help="Prepare backbones.", no_args_is_help=True)


@app.command()
def statistics(
    backbone: Annotated[str, typer.Option(help="A backbone with MaPLe prompts: BACKBONE+maple:PATH.")],
    images: Annotated[str, typer.Option(help="Source images, as a data set: folder:PATH, parquet:PATH or a name.")],
    out: Annotated[Path | None, typer.Option(help="The file to write; else beside the prompts.")] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="Only so many images.")] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    data: Data = None,
) -> None:
    """Take the token statistics of source images, which PromptAlign aligns with.

    Example: ostta backbone statistics --backbone openai/clip-vit-base-patch16+maple:maple --images folder:imagenet/val
    """
    from .. import backbones
    from ..backbones.maple import measure_statistics, statistics_file, write_statistics
    from ..data.by_name import open_dataset
    from ..data.names import is_own
    from ..data.views import canonical
    from ..streams import draw
    from .run_progress import progress_line

    model = backbones.load(backbone, device, dtype)
    if not isinstance(model, backbones.HasTokenStatistics):
        raise Error(
            f"Token statistics are for backbones with MaPLe prompts, and {backbone} has none.",
            code="backbone-without-prompts",
        )
    target = out or statistics_file(backbone)
    dataset: Source = open_dataset(images, data, named=False, limit=None if is_own(images) else limit)
    if limit is not None and is_own(images):
        # Its first images may be of one class.
        dataset = draw(dataset, limit, 0, desired=True)
    with progress_line("images") as watch:

        def views() -> Iterator[torch.Tensor]:
            for number in range(len(dataset)):
                yield canonical(dataset.image(number), model.preprocessing)
                watch(number + 1, len(dataset), None)

        found, count = measure_statistics(model, views())
    about = {"backbone": model.id, "weight_hash": model.weight_hash, "images": count, "of": dataset.name}
    write_statistics(found, target, about)
    print(f"Token statistics of {count} images, {list(found.means.shape)}: {target}")


@app.command("suggest")
def suggest_backbone(
    classes: Annotated[str, typer.Option(help="Class names: a,b,c or a file with one a line.")],
) -> None:
    """Say which of the backbones that ship knows these class names, and what each name means to it.

    Example: ostta backbone suggest --classes "dog,elephant,guitar"
    """
    from .. import backbones
    from ..data.class_names import described, parse_classes

    names, descriptions = described(parse_classes(classes))
    found = backbones.suggest(names, described=bool(descriptions))
    print(f"{found.backbone}: {found.reason}.")
    for name, meaning in found.meanings.items():
        print(f"  {name}: {meaning}")


@app.command()
def export(
    backbone: Annotated[str, typer.Option(help="embedded, a hub id, a local folder, or one with MaPLe prompts.")],
    classes: Annotated[str, typer.Option(help="Class names: a,b,c or a file with one a line.")],
    to: Annotated[Path, typer.Option(help="The folder to write; onnx:FOLDER is the backbone's name from then on.")],
    template: Template = None,
    int8: Annotated[bool, typer.Option("--int8", help="Round the dense layers to eight bits.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a backbone that was exported there earlier.")] = False,
) -> None:
    """Write an image tower and the embeddings of classes for ONNX Runtime: for methods that train nothing in it, such as zero_shot and tda.

    Example: ostta backbone export --backbone embedded --classes "cat,dog,ship" --to pets, then --backbone onnx:pets
    """
    from .. import backbones
    from ..data.class_names import described, parse_classes

    names, descriptions = described(parse_classes(classes))
    if descriptions:
        raise Error(
            "An exported backbone has embeddings of class names in templates: give the classes without descriptions.",
            code="descriptions-unsupported",
        )
    templates = template or backbones.DEFAULT_TEMPLATES
    about = backbones.export(backbones.load(backbone), names, to, templates=templates, int8=int8, force=force)
    count = f"{len(names)} class{'es' if len(names) > 1 else ''}"
    print(f"{backbone} in {about.precision} with {count}: onnx:{to}")
    print(f"The largest difference between its unit features and those in torch is {about.largest_difference:.1e}.")
