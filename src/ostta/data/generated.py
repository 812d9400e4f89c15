"""Corrupted sets that are made here, image by image, from a clean one."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from . import corruptions
from .dataset import Dataset
from .fingerprint import folder_fingerprint

# How ImageNet-C was made: short side 256, centre of 224, corruption, JPEG at quality 85.
_SHORT_SIDE, _CROP, _QUALITY = 256, 224, 85
# Where the public textures of frost are looked for below ROOT.
FROST = "frost"


def generated(
    name: str, clean: Dataset, corruption: str, severity: int, seed: int, root: Path | None = None
) -> Dataset:
    """`clean` under a corruption; the same image number, seed, corruption and severity always give the same pixels.

    Images whose shorter side has up to 64 pixels keep their size and take the constants of CIFAR-10-C; larger ones are made as
    ImageNet-C was.
    """
    corruptions.checked(corruption, severity)
    textures = root / FROST if root is not None and corruption == "frost" and (root / FROST).is_dir() else None

    def read(i: int) -> Image.Image:
        image = clean.image(i)
        large = min(image.size) > corruptions.SMALL_SIDE
        pixels = np.asarray(benchmark_size(image) if large else image)
        made = Image.fromarray(corruptions.corrupt(pixels, corruption, severity, seed=seed, index=i, textures=textures))
        return _through_jpeg(made) if large else made

    what = f"{corruption}, severity {severity}, seed {seed}"
    if corruption == "frost":
        what += f", {corruptions.frost_source(textures)}"
    note = f"made here from {clean.name}: {what}; not the official files"
    if clean.note:
        note += f"; {clean.note}"
    condition = f"{corruption} {severity} seed {seed} {textures_fingerprint(textures)}".rstrip()
    return replace(clean, name=name, origin="generated", note=note, _read=read, condition=condition)


def textures_fingerprint(textures: Path | None) -> str:
    """Identify the frost textures in a folder; empty for the texture that is generated."""
    return "" if textures is None else f"textures {folder_fingerprint(textures)}"


def benchmark_size(image: Image.Image) -> Image.Image:
    """The centre of 224 pixels once the short side has 256, by the rules of the loader that ImageNet-C was made with."""
    width, height = image.size
    short = min(width, height)
    resized = image.resize(
        (int(_SHORT_SIDE * width / short), int(_SHORT_SIDE * height / short)), Image.Resampling.BILINEAR
    )
    left, top = round((resized.width - _CROP) / 2), round((resized.height - _CROP) / 2)
    return resized.crop((left, top, left + _CROP, top + _CROP))


def _through_jpeg(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    with Image.open(buffer) as decoded:
        return decoded.convert("RGB")
