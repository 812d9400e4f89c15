"""Backbones: an image tower and a text tower in one space.

>>> from ostta import backbones
>>> clip = backbones.load("openai/clip-vit-base-patch16")  # doctest: +SKIP
>>> clip.classifier(["cat", "dog"]).shape  # doctest: +SKIP
torch.Size([2, 512])
"""

from __future__ import annotations

from pathlib import Path

from ..core.modes import learning
from ..core.types import Error
from .clip import Clip
from .embedded import load_embedded, load_embedded_maple
from .folders import load_folder
from .hub import fetch
from .maple_files import load_maple
from .onnx import PREFIX, load_onnx
from .onnx_export import export
from .prompts import require_prompt_tuning
from .protocol import DEFAULT_TEMPLATES, Backbone
from .wrapped import wrap

__all__ = [
    "DEFAULT_TEMPLATES",
    "SHIPPED",
    "Backbone",
    "backbone_names",
    "export",
    "load",
    "require_prompt_tuning",
    "wrap",
]

# What `load` knows without a download and without a path.
SHIPPED = ("embedded", "embedded+maple")
_DOWNLOADED = "downloaded when first used"
_NAMES = (
    ("embedded", "small CLIP for 32 x 32 images, CIFAR-10 and CIFAR-100 classes", "ships with ostta"),
    ("embedded+maple", "the same with MaPLe prompts and token statistics", "ships with ostta"),
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
    ("onnx:FOLDER", "any of these for ONNX Runtime: zero_shot, tda, dpe", "ostta backbone export; see docs/onnx.md"),
)


def load(name_or_folder: str | Path) -> Backbone:
    """The backbone called "embedded", the one in a local folder, or the one of that id on the hub.

    "+maple:PATH" behind the name adds the MaPLe prompts of a checkpoint; the embedded one has its own, "embedded+maple".
    "onnx:FOLDER" is what `export` wrote.
    """
    with learning():  # what is loaded in a caller's inference mode could never be learned from
        return _load(name_or_folder)


def _load(name_or_folder: str | Path) -> Backbone:
    if name_or_folder == "embedded":
        return load_embedded()
    if name_or_folder == "embedded+maple":
        return load_embedded_maple()
    if str(name_or_folder).startswith(PREFIX):
        return load_onnx(Path(str(name_or_folder).removeprefix(PREFIX)).expanduser().resolve())
    folder = Path(name_or_folder).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        return load_folder(folder, str(folder))
    name = str(name_or_folder)
    base, plus, place = name.partition("+maple:")
    if plus:
        return _with_maple(base, Path(place).expanduser())
    if isinstance(name_or_folder, Path) or name.startswith((".", "/", "~")):
        raise Error(f"There is no folder {name!r}.")
    if "/" not in name:
        # Models on the hub have an owner; asking it about a mistyped word would only take time.
        raise Error(
            f'There is no backbone {name!r}: say "embedded", a folder, or an id of the hub such as {_NAMES[2][0]}.'
        )
    return load_folder(fetch(name), name)


def _with_maple(base: str, place: Path) -> Backbone:
    place = place.resolve()
    clip = load(base)
    if not isinstance(clip, Clip):
        raise Error(f"MaPLe's prompts are for CLIP models, and {base} is none.")
    return load_maple(clip, place, f"{clip.id}+maple:{place}")


def backbone_names() -> list[tuple[str, str, str]]:
    """What `load` takes: name, what it is, how to get it."""
    return list(_NAMES)
