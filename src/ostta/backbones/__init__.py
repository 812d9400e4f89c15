"""Backbones: an image tower and a text tower in one space.

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
from ..core.modes import learning
from ..core.types import Error
from ..feature_files import PREFIX as FEATURES
from ..feature_files import features_path, read_features
from .choice import AUTO, Suggestion, suggest
from .clip import Clip, TwoTowers
from .embedded import load_embedded, load_embedded_maple
from .features import load_features
from .folders import load_folder
from .hub import model_folder
from .loaded import from_transformers
from .maple_files import load_maple
from .onnx import PREFIX, load_onnx
from .onnx_export import export
from .open_clip import from_open_clip
from .photos import Photos, load_photos
from .protocol import (
    DEFAULT_TEMPLATES,
    Backbone,
    EncodesWords,
    HasTextTower,
    HasTokenStatistics,
    ReadsPrompts,
    RelatesNames,
    TunesPrompts,
)
from .wrapped import wrap

__all__ = [
    "AUTO", "DEFAULT_TEMPLATES", "SHIPPED", "Backbone", "BackboneSource", "EncodesWords", "HasTextTower", "HasTokenStatistics", "ReadsPrompts", "RelatesNames",
    "Suggestion", "TunesPrompts",
    "as_backbone", "backbone_names", "check_name", "export", "from_open_clip", "from_transformers", "load", "require", "suggest", "wrap",
]  # fmt: skip

# Whatever stands for a backbone in `ostta.load`.
BackboneSource = str | Path | Backbone | Callable[[], Backbone] | tuple[Any, ...]
# What `load` knows without a download and without a path.
SHIPPED = ("embedded", "embedded+maple", "photos")
# What a backbone from outside must have at the least; `ostta.testing` checks what it does.
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
    """The backbone called "embedded", the one in a local folder, or the one of that id on the hub.

    "+maple:PATH" behind the name adds the MaPLe prompts of a checkpoint; the embedded one has its own, "embedded+maple".
    "onnx:FOLDER" is what `export` wrote, and runs on the processor. "features:FILE" is a feature file, which has no towers. A name that a package registers is known too.

    >>> load("embedded")  # or load("openai/clip-vit-base-patch16"), or load("models/my-clip")
    Embedded(embedded, 32 x 32 images, features of 128)
    """
    if str(name_or_folder).startswith(PREFIX):
        if device not in ("auto", "cpu", torch.device("cpu")) or dtype_named(dtype) != torch.float32:
            raise Error(f"{name_or_folder} runs on the processor in single precision, not on {device} in {dtype}.")
        return load_onnx(Path(str(name_or_folder).removeprefix(PREFIX)).expanduser().resolve())
    where, precision = device_named(device), dtype_named(dtype)
    if str(name_or_folder).startswith(FEATURES):
        if precision != torch.float32:
            raise Error(f"{name_or_folder} is used in single precision, not in {dtype}.")
        return load_features(features_path(str(name_or_folder)), where)
    if name_or_folder not in SHIPPED and name_or_folder in plugins.registered_names("backbone"):
        return made(plugins.registered("backbone", str(name_or_folder)), device, dtype)
    with learning():  # what is loaded in a caller's inference mode could never be learned from
        backbone = _load(name_or_folder)
        if (where, precision) != (torch.device("cpu"), torch.float32):
            backbone.place(where, precision)
        return backbone


def made(make: Callable[[], Any], device: str | torch.device, dtype: str | torch.dtype = "float32") -> Backbone:
    """The backbone that a class or a function from outside makes. It is moved if it has `place`; "auto" leaves others where they are."""
    with learning():
        backbone = make()
    missing = [part for part in _PARTS if not hasattr(backbone, part)]
    if missing:
        raise Error(f"{_called(make)} gives {shown(backbone)}, which is no backbone: it has no `{missing[0]}`.")
    where, precision = device_named(device), dtype_named(dtype)
    if (where, precision) != (backbone.device, backbone.dtype) and hasattr(backbone, "place"):
        with learning():
            backbone.place(where, precision)
    return _kept(backbone, None if device == "auto" else device, dtype)


def _is_backbone(given: Backbone | Callable[[], Backbone]) -> TypeGuard[Backbone]:
    # A class has what its objects have, and is none of them.
    return not isinstance(given, type) and hasattr(given, "vision")


def _called(make: object) -> str:
    return str(getattr(make, "__qualname__", shown(make)))


def as_backbone(
    given: BackboneSource,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backbone:
    """What `ostta.load` takes as a backbone: a name or folder for `load`, a backbone, what makes one, or a model loaded already.

    Such a model comes with what belongs to it: (model, processor) of transformers, (model, tokenizer, transform) of open_clip.
    One that is named is loaded onto `device` in `dtype`; any other must be there in that precision already.

    >>> as_backbone(adapter.backbone) is adapter.backbone
    True
    """
    if isinstance(given, str | Path):
        return load(given, device or "auto", dtype or "float32")
    if isinstance(given, tuple):
        return _kept(_over_loaded(given), device, dtype)
    if not _is_backbone(given):
        if isinstance(given, nn.Module):
            raise Error(
                f"A {type(given).__name__} alone does not say how images and texts are prepared for it: give (model, processor) of "
                "transformers or (model, tokenizer, transform) of open_clip, or use `ostta.backbones.wrap`."
            )
        if not callable(given):
            raise Error(f"`backbone` takes a name, a folder, a backbone or what makes one, not {shown(given)}.")
        return made(given, device or "auto", dtype or "float32")
    return _kept(given, device, dtype)


def _kept(backbone: Backbone, device: str | torch.device | None, dtype: str | torch.dtype | None) -> Backbone:
    if device is not None and device_named(device) != backbone.device:
        raise Error(
            f"The backbone {backbone.id} is on {backbone.device} and stays there: load or wrap it on {device} in the first place."
        )
    if dtype is not None and dtype_named(dtype) != backbone.dtype:
        raise Error(
            f"The backbone {backbone.id} is in {backbone.dtype} and stays so: load it as {dtype} in the first place."
        )
    return backbone


def _over_loaded(given: tuple[Any, ...]) -> Backbone:
    if len(given) not in (2, 3):
        raise Error(
            "A model that is loaded already is given as (model, processor) of transformers or as (model, tokenizer, transform) "
            f"of open_clip, not as {len(given)} things."
        )
    return from_transformers(*given) if len(given) == 2 else from_open_clip(*given)


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
    base, plus, place = name.partition("+maple:")
    if plus:
        return _with_maple(base, Path(place).expanduser())
    if plugins.names_file(name):
        raise Error(
            f"The backbone {name!r} is in a file, which only a command line or a suite may name: in Python, give what makes "
            'it, or `ostta.plugins.from_file("path/file.py:Name")`.'
        )
    check_name(name_or_folder)
    return load_folder(model_folder(name), name)


def check_name(name_or_folder: str | Path) -> None:
    """An Error where neither a folder nor a model on the hub can be called so; nothing is opened or asked.

    >>> check_name("embedded"), check_name("openai/clip-vit-base-patch16")
    (None, None)
    """
    name = str(name_or_folder).partition("+maple:")[0]
    known = (*SHIPPED, *plugins.registered_names("backbone"))
    if name in known or name.startswith((PREFIX, FEATURES)) or Path(name).expanduser().is_dir():
        return
    if isinstance(name_or_folder, Path) or name.startswith((".", "/", "~")):
        raise Error(f"There is no folder {name!r}.")
    if "/" not in name:
        # Models on the hub have an owner; asking it about a mistyped word would only take time.
        raise Error(
            f'There is no backbone {name!r}: say "photos", "embedded", a folder, or an id of the hub such as {_NAMES[3][0]}.'
        )


def require(name: str) -> None:
    """An Error where the files of a backbone are not here; those of a model on the hub are fetched, if they can be. Nothing is loaded.

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
            raise Error(f"There is no folder {str(folder)!r}; `ostta backbone export` makes one.")
    elif not Path(base).expanduser().is_dir():
        model_folder(base)
    if plus and not Path(place).expanduser().exists():
        raise Error(f"There are no MaPLe prompts at {place!r} for {base}: docs/maple.md says where to get them.")


def _with_maple(base: str, place: Path) -> TwoTowers:
    place = place.resolve()
    clip = _load(base)
    if not isinstance(clip, Clip):
        raise Error(f"MaPLe's prompts are for CLIP models, and {base} is none.")
    return load_maple(clip, place, f"{clip.id}+maple:{place}")


def backbone_names() -> list[tuple[str, str, str]]:
    """What `load` takes: name, what it is, how to get it.

    >>> backbone_names()[0]
    ('embedded', 'small CLIP for 32 x 32 images, CIFAR-10 and CIFAR-100 classes', 'ships with ostta')
    """
    own = [name for name in plugins.registered_names("backbone") if name not in SHIPPED]
    return [*_NAMES, *((name, "a plug-in", plugins.package("backbone", name)) for name in own)]
