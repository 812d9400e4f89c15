"""Backbones: an image tower and a text tower with a shared embedding space.

>>> from ostta import backbones
>>> clip = backbones.load("openai/clip-vit-base-patch16")  # doctest: +SKIP
>>> clip.classifier(["cat", "dog"]).shape  # doctest: +SKIP
torch.Size([2, 512])
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import nn

from ..config import plugins
from ..core.checks import shown
from ..core.devices import device_named, dtype_named
from ..core.overlay import learning
from ..core.types import Error
from ..feature_files import PREFIX as FEATURES
from ..feature_files import features_path, read_features
from .choice import AUTO, Suggestion, suggest
from .clip import Clip, TwoTowers
from .embedded import load_embedded, load_embedded_maple
from .features import load_features
from .huggingface import from_transformers, load_folder, model_folder
from .maple import load_maple
from .onnx import PREFIX, load_onnx
from .onnx_export import export
from .open_clip import from_open_clip
from .photos import Photos, load_photos
from .protocol import (
    DEFAULT_TEMPLATES,
    Backbone,
    EncodesWords,
    HasCentre,
    HasTextTower,
    HasTokenStatistics,
    ReadsPrompts,
    RelatesNames,
    TunesPrompts,
)
from .wrapped import wrap

__all__ = [
    "AUTO", "DEFAULT_TEMPLATES", "SHIPPED", "Backbone", "BackboneSource", "EncodesWords", "HasCentre", "HasTextTower",
    "HasTokenStatistics", "ReadsPrompts", "RelatesNames", "Suggestion", "TunesPrompts", "as_backbone", "backbone_names",
    "check_name", "export", "from_open_clip", "from_transformers", "load", "require", "suggest", "wrap",
]  # fmt: skip

# Types that `ostta.load` accepts as a backbone.
BackboneSource = str | Path | Backbone | Callable[[], Backbone] | tuple[Any, ...]
# Names that `load` accepts without a download and without a path.
SHIPPED = ("embedded", "embedded+maple", "photos")
# Attributes that a plug-in backbone must have; `ostta.testing` checks its behaviour.
_PARTS = (
    "id", "vision", "preprocessing", "logit_scale", "defaults", "device", "dtype", "trainable", "restorable", "remark",
    "feature_width", "weight_hash", "classifier", "unfamiliar",
)  # fmt: skip
_DOWNLOADED = "downloaded when first used"
_NAMES = (
    ("embedded", "small CLIP for 32 x 32 images, CIFAR-10 and CIFAR-100 classes", "ships with ostta"),
    ("embedded+maple", "the same with MaPLe prompts and token statistics", "ships with ostta"),
    (
        "photos",
        "EfficientNet-lite0 for photographs, ImageNet classes and WordNet nouns above them; no text tower",
        "ships with ostta",
    ),
    ("openai/clip-vit-base-patch16", "CLIP ViT-B/16, the paper's model", _DOWNLOADED),
    ("openai/clip-vit-base-patch32", "CLIP ViT-B/32", _DOWNLOADED),
    ("openai/clip-vit-large-patch14", "CLIP ViT-L/14", _DOWNLOADED),
    ("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "OpenCLIP ViT-B/32, LAION-2B", _DOWNLOADED),
    ("laion/CLIP-ViT-B-16-laion2B-s34B-b88K", "OpenCLIP ViT-B/16, LAION-2B", _DOWNLOADED),
    ("laion/CLIP-ViT-L-14-laion2B-s32B-b82K", "OpenCLIP ViT-L/14, LAION-2B", _DOWNLOADED),
    ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "OpenCLIP ViT-H/14, LAION-2B", _DOWNLOADED),
    ("google/siglip-base-patch16-224", "SigLIP ViT-B/16", _DOWNLOADED),
    ("google/siglip2-base-patch16-224", "SigLIP 2 ViT-B/16, fixed resolution", _DOWNLOADED),
    ("FOLDER", "any CLIP or SigLIP in the hub's format", "hf download ID --local-dir FOLDER"),
    ("BACKBONE+maple:PATH", "any CLIP with the MaPLe prompts at PATH", "a public checkpoint; see docs/maple.md"),
    ("features:FILE", "features of images that any of these encoded", "ostta features extract; see docs/features.md"),
    ("onnx:FOLDER", "any of these for ONNX Runtime, without gradients", "ostta backbone export; see docs/onnx.md"),
)


def load(
    name_or_folder: str | Path, device: str | torch.device = "cpu", dtype: str | torch.dtype = "float32"
) -> Backbone:
    """Load a backbone that ships with ostta, from a local folder, or from the Hugging Face hub.

    "+maple:PATH" after the name adds the MaPLe prompts of a checkpoint; "embedded+maple" uses prompts that ship with
    ostta. "onnx:FOLDER" loads an exported backbone, which runs on the CPU. "features:FILE" loads a feature file, which
    has no towers. Names registered by installed packages are also accepted.

    >>> load("embedded")  # or load("openai/clip-vit-base-patch16"), or load("models/my-clip")
    Embedded(embedded, 32 x 32 images, features of 128)
    """
    if str(name_or_folder).startswith(PREFIX):
        if device not in ("auto", "cpu", torch.device("cpu")) or dtype_named(dtype) != torch.float32:
            raise Error(
                f"{name_or_folder} runs on the CPU in single precision, not on {device} in {dtype}.",
                code="device-unsupported",
            )
        return load_onnx(Path(str(name_or_folder).removeprefix(PREFIX)).expanduser().resolve())
    target_device, target_dtype = device_named(device), dtype_named(dtype)
    if str(name_or_folder).startswith(FEATURES):
        if target_dtype != torch.float32:
            raise Error(f"{name_or_folder} is in single precision, not in {dtype}.", code="device-unsupported")
        return load_features(features_path(str(name_or_folder)), target_device)
    if name_or_folder not in SHIPPED and name_or_folder in plugins.registered_names("backbone"):
        return call_factory(plugins.registered("backbone", str(name_or_folder)), device, dtype)
    with learning():  # tensors created in inference mode cannot be trained
        backbone = _load(name_or_folder)
        if (target_device, target_dtype) != (torch.device("cpu"), torch.float32):
            backbone.place(target_device, target_dtype)
        return backbone


def call_factory(
    factory: Callable[[], Any], device: str | torch.device, dtype: str | torch.dtype = "float32"
) -> Backbone:
    """Call the class or function of a plug-in and return its backbone, moved to the device if it has `place`."""
    with learning():
        backbone = factory()
    missing = [part for part in _PARTS if not hasattr(backbone, part)]
    if missing:
        raise Error(
            f"{getattr(factory, '__qualname__', shown(factory))} returns {shown(backbone)}, which is not a backbone: "
            f"it has no `{missing[0]}`.",
            code="backbone-invalid",
        )
    target_device, target_dtype = device_named(device), dtype_named(dtype)
    if (target_device, target_dtype) != (backbone.device, backbone.dtype) and hasattr(backbone, "place"):
        with learning():
            backbone.place(target_device, target_dtype)
    return _check_place(backbone, None if device == "auto" else device, dtype)


def _is_backbone(given: Backbone | Callable[[], Backbone]) -> TypeGuard[Backbone]:
    # A backbone class has these attributes too, but it is a factory, not a backbone.
    return not isinstance(given, type) and hasattr(given, "vision")


def as_backbone(
    given: BackboneSource,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backbone:
    """Return the backbone for the argument of `ostta.load`: a name or folder, a backbone, a factory, or a loaded model.

    A loaded model is a tuple: (model, processor) of transformers or (model, tokenizer, transform) of open_clip. A
    backbone given by name is loaded onto `device` in `dtype`; any other backbone must already have this device and
    precision.

    >>> as_backbone(adapter.backbone) is adapter.backbone
    True
    """
    if isinstance(given, str | Path):
        return load(given, device or "auto", dtype or "float32")
    if isinstance(given, tuple):
        if len(given) not in (2, 3):
            raise Error(
                "A loaded model must be given as (model, processor) of transformers or as (model, tokenizer, "
                f"transform) of open_clip, not as {len(given)} objects.",
                code="backbone-invalid",
            )
        loaded = from_transformers(*given) if len(given) == 2 else from_open_clip(*given)
        return _check_place(loaded, device, dtype)
    if not _is_backbone(given):
        if isinstance(given, nn.Module):
            raise Error(
                f"A {type(given).__name__} alone has no preprocessing and no tokenizer: give (model, processor) of "
                "transformers or (model, tokenizer, transform) of open_clip, or use `ostta.backbones.wrap`.",
                code="backbone-invalid",
            )
        if not callable(given):
            raise Error(
                f"`backbone` must be a name, a folder, a backbone or a function that returns one, not {shown(given)}.",
                code="backbone-invalid",
            )
        return call_factory(given, device or "auto", dtype or "float32")
    return _check_place(given, device, dtype)


def _check_place(backbone: Backbone, device: str | torch.device | None, dtype: str | torch.dtype | None) -> Backbone:
    target_device = None if device is None else device_named(device)
    target_dtype = None if dtype is None else dtype_named(dtype)
    if target_device not in (None, backbone.device):
        message = f"is already on {backbone.device}, not on {target_device}: load or wrap it on {target_device}"
    elif target_dtype not in (None, backbone.dtype):
        message = f"is already in {backbone.dtype}, not in {target_dtype}: load it in {target_dtype}"
    else:
        return backbone
    raise Error(f"The backbone {backbone.id} {message}.", code="device-unsupported")


def _load(name_or_folder: str | Path) -> TwoTowers | Photos:
    if name_or_folder == "photos":
        return load_photos()
    if name_or_folder == "embedded":
        return load_embedded()
    if name_or_folder == "embedded+maple":
        return load_embedded_maple()
    folder = Path(name_or_folder).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        return load_folder(folder, str(folder))
    name = str(name_or_folder)
    base, plus, checkpoint = name.partition("+maple:")
    if plus:
        place, clip = Path(checkpoint).expanduser().resolve(), _load(base)
        if not isinstance(clip, Clip):
            raise Error(f"MaPLe prompts require a CLIP model, which {base} is not.", code="backbone-unsupported")
        return load_maple(clip, place, f"{clip.id}+maple:{place}")
    if plugins.names_file(name):
        raise plugins.file_not_allowed("backbone", name, "function that returns it")
    check_name(name_or_folder)
    return load_folder(model_folder(name), name)


def check_name(name_or_folder: str | Path) -> None:
    """Raise an Error if the name is neither a folder nor a valid hub id, without file access or network requests.

    >>> check_name("embedded"), check_name("openai/clip-vit-base-patch16")
    (None, None)
    """
    name = str(name_or_folder).partition("+maple:")[0]
    known = (*SHIPPED, *plugins.registered_names("backbone"))
    if name in known or name.startswith((PREFIX, FEATURES)) or Path(name).expanduser().is_dir():
        return
    if isinstance(name_or_folder, Path) or name.startswith((".", "/", "~")):
        raise Error(f"There is no folder {name!r}.", code="backbone-not-found")
    if "/" not in name:
        # Every model id on the hub has an owner, so a misspelt name is rejected without a request.
        raise Error(
            f'There is no backbone {name!r}: use "photos", "embedded", a folder, or an id on the hub such as '
            f"{_NAMES[3][0]}.",
            code="backbone-not-found",
        )


def require(name: str) -> None:
    """Raise an Error if the files of a backbone are missing. Download models from the hub, but do not load them.

    >>> require("embedded")
    >>> require("./nowhere")
    Traceback (most recent call last):
    ostta.core.types.Error: There is no folder './nowhere'.
    """
    check_name(name)
    base, plus, place = name.partition("+maple:")
    if base in (*SHIPPED, *plugins.registered_names("backbone")):
        return
    if base.startswith(FEATURES):
        read_features(features_path(base))
    elif base.startswith(PREFIX):
        folder = Path(base.removeprefix(PREFIX)).expanduser()
        if not folder.is_dir():
            raise Error(
                f"There is no folder {str(folder)!r}: write it with `ostta backbone export`.", code="backbone-not-found"
            )
    elif not Path(base).expanduser().is_dir():
        model_folder(base)
    if plus and not Path(place).expanduser().exists():
        raise Error(
            f"There are no MaPLe prompts at {place!r} for {base}: see docs/maple.md for public checkpoints.",
            code="prompts-not-found",
        )


def backbone_names() -> list[tuple[str, str, str]]:
    """Return the name, description and origin of every backbone that `load` accepts.

    >>> backbone_names()[0]
    ('embedded', 'small CLIP for 32 x 32 images, CIFAR-10 and CIFAR-100 classes', 'ships with ostta')
    """
    own = [name for name in plugins.registered_names("backbone") if name not in SHIPPED]
    return [*_NAMES, *((name, "a plug-in", plugins.package("backbone", name)) for name in own)]
