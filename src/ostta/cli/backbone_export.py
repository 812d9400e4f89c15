"""`ostta backbone export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Backbone, Names, Template, parse_names


def export(
    backbone: Backbone,
    classes: Names,
    to: Annotated[Path, typer.Option(help="The folder to write. The exported backbone is called onnx:FOLDER.")],
    template: Template = None,
    int8: Annotated[bool, typer.Option("--int8", help="Quantize the dense layers to eight bits.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an exported backbone in the folder.")] = False,
) -> None:
    """Export an image tower and class embeddings for ONNX Runtime.

    The exported backbone works with methods that do not train the image tower, such as zero_shot and tda.

    Example: ostta backbone export --backbone embedded --classes "cat,dog,ship" --to pets
    """
    from .. import backbones
    from ..core.text import counted

    names = parse_names(classes)
    templates = template or backbones.DEFAULT_TEMPLATES
    about = backbones.export(backbones.load(backbone), names, to, templates=templates, int8=int8, force=force)
    print(f"{backbone} in {about.precision} with {counted(len(names), 'class', 'classes')}: onnx:{to}")
    print(f"The largest difference between its unit features and those in torch is {about.largest_difference:.1e}.")
