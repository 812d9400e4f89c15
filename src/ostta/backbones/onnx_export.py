"""From a backbone to a folder for ONNX Runtime."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.overlay import encode, lock_of
from ..core.types import Error
from ..io import folder_in_one_step, write_atomically
from .folders import short
from .onnx import INPUT, NEEDS_EXTRA, OUTPUT, Onnx, OnnxTower, load_onnx
from .onnx_files import DESCRIPTION, FEATURES, FILES, MODEL, TEXT, Exported, checked_names, file_hash, is_exported
from .prompts import checked_templates
from .protocol import DEFAULT_TEMPLATES, Backbone
from .wrapped import NoTower, Wrapped

# The version of the ONNX operators.
OPSET = 20
# Unit features must be those of torch to this, where nothing is rounded to eight bits.
EQUAL = 1e-4
# An ONNX file is one message of protobuf, which cannot be longer.
MOST_BYTES = 2**31 - 2**20
# Images that are compared, in batches of these sizes: a tower that is fixed to one size is noticed.
BATCHES = (1, 4, 3)


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

    The features are compared with those of torch before the folder is there at all; `largest_difference` of the answer says how
    well they agree. `int8` rounds the dense layers to eight bits. `force` replaces a backbone that was exported there earlier.

    >>> from ostta import backbones
    >>> about = backbones.export(backbones.load("embedded"), ["cat", "dog"], "pets")  # doctest: +SKIP
    >>> backbones.load("onnx:pets").classifier(["dog", "cat"]).shape  # doctest: +SKIP
    torch.Size([2, 192])
    """
    names, given = (
        checked_names(list(classes) if not isinstance(classes, str) else classes),
        checked_templates(templates),
    )
    if isinstance(backbone, Onnx) or isinstance(backbone.vision, NoTower):
        has = "is for ONNX Runtime already" if isinstance(backbone, Onnx) else "has no image tower"
        raise Error(f"The backbone {backbone.id} cannot be exported: it {has}.")
    place = Path(folder).expanduser().resolve()
    _check_place(place, force)
    _require("onnxruntime")
    _require("onnx")
    _require("onnxscript")
    _check_size(backbone)
    with torch.inference_mode(False), torch.no_grad(), lock_of(backbone.vision):
        text = backbone.classifier(names, given).detach().float().cpu().contiguous()
        program = _program(backbone)
        with folder_in_one_step(place) as partial:
            _write_model(program, partial / MODEL, int8)
            _write_text(text, partial / TEXT)
            content = {name: (partial / name).read_bytes() for name in FILES}
            apart = _largest_difference(backbone, OnnxTower(content[MODEL], one_by_one=int8))
            if not int8 and not apart <= EQUAL:
                raise Error(
                    f"The backbone {backbone.id} cannot be exported: its unit features differ by {apart:.1g} from those in torch, "
                    f"and {EQUAL:g} is the most."
                )
            about = Exported(
                backbone=backbone.id,
                weight_hash=backbone.weight_hash,
                precision="int8" if int8 else "float32",
                preprocessing=backbone.preprocessing,
                logit_scale=float(backbone.logit_scale),
                classes=names,
                # Where the embeddings were given, templates have no part in them.
                templates=() if isinstance(backbone, Wrapped) else given,
                defaults={owner: dict(options) for owner, options in backbone.defaults.items()},
                remark=backbone.remark,
                unfamiliar=tuple(backbone.unfamiliar(names)),
                largest_difference=apart,
                versions={
                    name: metadata.version(name) for name in ("ostta", "torch", "onnxruntime", "onnx", "onnxscript")
                },
                files={name: file_hash(data) for name, data in content.items()},
            )
            write_atomically(partial / DESCRIPTION, about.to_json().encode())
            load_onnx(partial)
    return about


# --- inside -----------------------------------------------------------------------------------------------------------
def _check_place(place: Path, force: bool) -> None:
    """Only what an export wrote is ever replaced."""
    if not place.exists():
        return
    if not place.is_dir():
        raise Error(f"{place} is a file: name a folder to export to.")
    found = {entry.name for entry in place.iterdir()}
    if not found:
        return
    if not is_exported(place) or not found <= {DESCRIPTION, *FILES}:
        raise Error(
            f"The folder {place} holds other things than an exported backbone: name another one, or an empty one."
        )
    if not force:
        raise Error(
            f"The folder {place} holds an exported backbone already: name another one, or replace it with `force`."
        )


def _require(library: str) -> None:
    try:
        importlib.import_module(library)
    except ImportError as problem:
        raise Error(NEEDS_EXTRA.format(library)) from problem


def _check_size(backbone: Backbone) -> None:
    tower = backbone.vision
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*tower.parameters(), *tower.buffers()))
    if size > MOST_BYTES:
        raise Error(
            f"The image tower of {backbone.id} cannot be exported: it has {size / 2**30:.1f} GiB, and an ONNX file at most 2 GiB."
        )


def _program(backbone: Backbone) -> Any:
    """The image tower as an ONNX program whose batches may have any size."""
    size = backbone.preprocessing.image_size
    # Neither 0 nor 1, which the tracer takes for numbers that never change.
    pixels = torch.zeros(2, 3, size, size, device=_device(backbone.vision))
    try:
        with _quiet():
            traced = torch.export.export(
                backbone.vision, (pixels,), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
            )
            program: Any = torch.onnx.export(
                traced, dynamo=True, opset_version=OPSET, input_names=[INPUT], output_names=[OUTPUT], verbose=False
            )
            from onnx_ir.passes.common import ClearMetadataAndDocStringPass

            # Paths of this machine's files, among others.
            ClearMetadataAndDocStringPass()(program.model)
    except Exception as problem:  # somebody else's module, and the tracer's own kinds
        raise Error(f"The image tower of {backbone.id} cannot be written as ONNX: {short(problem)}") from problem
    return program


def _write_model(program: Any, file: Path, int8: bool) -> None:
    try:
        with _quiet():
            if int8:
                _quantise(program.model_proto, file)
            else:
                program.save(str(file), external_data=False)
    except Exception as problem:  # of the libraries' own kinds
        raise Error(f"The ONNX model cannot be written: {short(problem)}") from problem


def _quantise(model: Any, file: Path) -> None:
    """Write the model with dense layers of eight bits, their inputs scaled anew at every pass.

    Weights are unsigned: with signed ones, processors without VNNI add two products in sixteen bits, which overflows, and the
    features are wrong. Convolutions stay as they are, as their kernels of eight bits are slower than those of single precision.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    del model.graph.value_info[:]  # shapes that no longer hold once the quantiser has turned weights round
    quantize_dynamic(model, str(file), ["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QUInt8)


def _write_text(text: torch.Tensor, file: Path) -> None:
    from safetensors.torch import save

    write_atomically(file, save({FEATURES: text}))


def _largest_difference(backbone: Backbone, tower: OnnxTower) -> float:
    """Between unit features of the two towers, on smooth images and on noise."""
    chance, size = torch.Generator().manual_seed(0), backbone.preprocessing.image_size
    apart = 0.0
    for count in BATCHES:
        rough = torch.randn(count, 3, 4, 4, generator=chance)
        smooth = torch.nn.functional.interpolate(rough, size=(size, size), mode="bilinear")
        pixels = smooth + 0.3 * torch.randn(count, 3, size, size, generator=chance)
        ours = encode(backbone.vision, pixels.to(_device(backbone.vision))).float().cpu()
        try:
            theirs = encode(tower, pixels)
        except Exception as problem:  # of the library's own kinds
            raise Error(f"ONNX Runtime cannot run the image tower of {backbone.id}: {short(problem)}") from problem
        difference = float((ours - theirs).abs().max())
        if not difference < float("inf"):  # so for NaN
            raise Error(f"The backbone {backbone.id} cannot be exported: its features of some images are not finite.")
        apart = max(apart, difference)
    return apart


def _device(tower: nn.Module) -> torch.device:
    return next((tensor.device for tensor in tower.parameters()), torch.device("cpu"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notes of the exporter; what matters in them is checked here and raised."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
