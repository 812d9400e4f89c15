"""Export a backbone to a folder for ONNX Runtime."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..core.errors import import_extra, translate_errors
from ..core.overlay import encode, lock_of
from ..core.types import Error
from ..io import folder_in_one_step, write_atomically
from .onnx import (
    DESCRIPTION,
    FEATURES,
    FILES,
    INPUT,
    MODEL,
    OUTPUT,
    TEXT,
    Onnx,
    OnnxTower,
    file_hash,
    is_exported,
    load_onnx,
)
from .prompts import check_class_names, check_templates
from .protocol import DEFAULT_TEMPLATES, Backbone
from .wrapped import NoTower, Wrapped

if TYPE_CHECKING:
    from .onnx_schema import Exported

# ONNX operator set version.
OPSET = 20
# Maximum accepted difference between the unit features of ONNX Runtime and torch, in single precision.
TOLERANCE = 1e-4
# An ONNX file is one protobuf message, and these are limited to 2 GiB.
MAX_BYTES = 2**31 - 2**20
# Several batch sizes, to detect a tower that was exported with a fixed batch size.
BATCHES = (1, 4, 3)
LIBRARIES = ("onnxruntime", "onnx", "onnxscript")


def export(
    backbone: Backbone,
    classes: Sequence[str],
    folder: str | Path,
    *,
    templates: Sequence[str] = DEFAULT_TEMPLATES,
    int8: bool = False,
    force: bool = False,
) -> Exported:
    """Write the image tower of `backbone` and the embeddings of `classes` to `folder`, for `load("onnx:FOLDER")`.

    The features are compared with those of torch before the folder is created. `largest_difference` of the returned
    description is the result of this comparison. `int8` quantises the dense layers to eight bits. `force` replaces an
    existing export.

    >>> from ostta import backbones
    >>> about = backbones.export(backbones.load("embedded"), ["cat", "dog"], "pets")  # doctest: +SKIP
    >>> backbones.load("onnx:pets").classifier(["dog", "cat"]).shape  # doctest: +SKIP
    torch.Size([2, 192])
    """
    names, checked_templates = check_class_names(classes), check_templates(templates)
    place = Path(folder).expanduser().resolve()
    _check_backbone(backbone)
    _check_folder(place, force)
    for library in LIBRARIES:
        import_extra(library, "A backbone for ONNX Runtime", "onnx")
    with torch.inference_mode(False), torch.no_grad(), lock_of(backbone.vision):
        text = backbone.classifier(names, checked_templates).detach().float().cpu().contiguous()
        program = _program(backbone)
        with folder_in_one_step(place) as partial:
            _write_model(program, partial / MODEL, int8)
            _write_text(text, partial / TEXT)
            content = {name: (partial / name).read_bytes() for name in FILES}
            difference = _largest_difference(backbone, OnnxTower(content[MODEL], one_by_one=int8))
            if not int8 and not difference <= TOLERANCE:
                raise _not_exportable(
                    backbone,
                    f"its unit features differ by {difference:.1g} from those in torch, and the limit is {TOLERANCE:g}",
                )
            about = _describe(backbone, names, checked_templates, int8, difference, content)
            write_atomically(partial / DESCRIPTION, about.to_json().encode())
            load_onnx(partial)
    return about


def _describe(
    backbone: Backbone,
    classes: tuple[str, ...],
    templates: tuple[str, ...],
    int8: bool,
    difference: float,
    content: dict[str, bytes],
) -> Exported:
    from .onnx_schema import Exported, PreprocessingModel

    return Exported(
        backbone=backbone.id,
        weight_hash=backbone.weight_hash,
        precision="int8" if int8 else "float32",
        preprocessing=PreprocessingModel.of(backbone.preprocessing),
        logit_scale=float(backbone.logit_scale),
        classes=classes,
        # Embeddings passed to `wrap` do not depend on templates.
        templates=() if isinstance(backbone, Wrapped) else templates,
        defaults=json.loads(json.dumps({owner: dict(options) for owner, options in backbone.defaults.items()})),
        remark=backbone.remark,
        unfamiliar=tuple(backbone.unfamiliar(classes)),
        largest_difference=difference,
        versions={name: metadata.version(name) for name in ("ostta", "torch", *LIBRARIES)},
        files={name: file_hash(data) for name, data in content.items()},
    )


def _not_exportable(backbone: Backbone, reason: str) -> Error:
    return Error(f"The backbone {backbone.id} cannot be exported: {reason}.", code="backbone-not-exportable")


def _check_backbone(backbone: Backbone) -> None:
    tower = backbone.vision
    if isinstance(backbone, Onnx):
        raise _not_exportable(backbone, "it is already a backbone for ONNX Runtime")
    if isinstance(tower, NoTower):
        raise _not_exportable(backbone, "it has no image tower")
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*tower.parameters(), *tower.buffers()))
    if size > MAX_BYTES:
        raise _not_exportable(
            backbone, f"its image tower has {size / 2**30:.1f} GiB, and an ONNX file is limited to 2 GiB"
        )


def _check_folder(place: Path, force: bool) -> None:
    """Raise an Error unless `place` does not exist, is empty, or contains an export that may be replaced."""
    if not place.exists():
        return
    if not place.is_dir():
        raise Error(f"{place} is a file: name a folder to export to.", code="folder-in-use")
    entries = {entry.name for entry in place.iterdir()}
    if not entries:
        return
    if not is_exported(place) or not entries <= {DESCRIPTION, *FILES}:
        raise Error(
            f"The folder {place} has files that are not of an exported backbone: name another folder or an empty one.",
            code="folder-in-use",
        )
    if not force:
        raise Error(
            f"The folder {place} already has an exported backbone: name another folder, or replace it with `force`.",
            code="folder-in-use",
        )


def _program(backbone: Backbone) -> Any:
    """Return the image tower as an ONNX program that accepts batches of any size."""
    size = backbone.preprocessing.image_size
    # Two images, because the tracer treats a batch size of 0 or 1 as constant.
    pixels = torch.zeros(2, 3, size, size, device=_device(backbone.vision))
    message = f"The image tower of {backbone.id} cannot be converted to ONNX: {{reason}}."
    with translate_errors("backbone-not-exportable", message), _without_logs():
        traced = torch.export.export(
            backbone.vision, (pixels,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
        )
        program: Any = torch.onnx.export(
            traced, dynamo=True, opset_version=OPSET, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass

        # The metadata contains local file paths.
        ClearMetadataAndDocStringPass()(program.model)
    return program


def _write_model(program: Any, file: Path, int8: bool) -> None:
    message = "The ONNX model cannot be written: {reason}."
    with translate_errors("backbone-not-exportable", message), _without_logs():
        if int8:
            _quantise(program.model_proto, file)
        else:
            program.save(str(file), external_data=False)


def _quantise(model: Any, file: Path) -> None:
    """Write the model with dynamically quantised eight-bit dense layers.

    The weights are unsigned, because with signed weights CPUs without VNNI add two products in sixteen bits, which can
    overflow. Only dense layers are quantised, because eight-bit convolutions are slower than in single precision.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    del model.graph.value_info[:]  # the quantiser transposes weights, after which these shapes are wrong
    quantize_dynamic(model, str(file), ["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QUInt8)


def _write_text(text: torch.Tensor, file: Path) -> None:
    from safetensors.torch import save

    write_atomically(file, save({FEATURES: text}))


def _largest_difference(backbone: Backbone, tower: OnnxTower) -> float:
    """Return the largest difference between the unit features of the two towers on smooth, noisy images."""
    generator, size = torch.Generator().manual_seed(0), backbone.preprocessing.image_size
    largest = 0.0
    for count in BATCHES:
        coarse = torch.randn(count, 3, 4, 4, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")
        pixels = smooth + 0.3 * torch.randn(count, 3, size, size, generator=generator)
        ours = encode(backbone.vision, pixels.to(_device(backbone.vision))).float().cpu()
        message = f"ONNX Runtime cannot run the image tower of {backbone.id}: {{reason}}."
        with translate_errors("backbone-not-exportable", message):
            theirs = encode(tower, pixels)
        difference = float((ours - theirs).abs().max())
        if not difference < float("inf"):  # also catches NaN
            raise _not_exportable(backbone, "its features of some images are not finite")
        largest = max(largest, difference)
    return largest


def _device(tower: nn.Module) -> torch.device:
    return next((tensor.device for tensor in tower.parameters()), torch.device("cpu"))


@contextmanager
def _without_logs() -> Iterator[None]:
    """Suppress warnings and log messages of the exporter. Errors are still raised."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
