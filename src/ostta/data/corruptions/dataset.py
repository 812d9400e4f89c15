"""Corrupted data sets generated from a clean data set, image by image."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from ..dataset import Dataset, folder_fingerprint
from . import SMALL_SIDE, checked, corrupt, frost_source

# The procedure of ImageNet-C: short side 256, centre crop 224, corruption, JPEG quality 85.
_SHORT_SIDE, _CROP, _QUALITY = 256, 224, 85
# Folder of the public frost textures below the data folder.
FROST = "frost"


def generated(
    name: str, clean: Dataset, corruption: str, severity: int, seed: int, root: Path | None = None
) -> Dataset:
    """Return the data set `clean` with a corruption, determined by image number, seed, corruption and severity.

    Images with a short side of up to 64 pixels keep their size and use the constants of CIFAR-10-C. Larger images are
    processed like those of ImageNet-C.
    """
    checked(corruption, severity)
    textures = root / FROST if root is not None and corruption == "frost" and (root / FROST).is_dir() else None

    def read(i: int) -> Image.Image:
        image = clean.image(i)
        large = min(image.size) > SMALL_SIDE
        pixels = np.asarray(benchmark_size(image) if large else image)
        corrupted = Image.fromarray(corrupt(pixels, corruption, severity, seed=seed, index=i, textures=textures))
        return _through_jpeg(corrupted) if large else corrupted

    what = f"{corruption}, severity {severity}, seed {seed}"
    if corruption == "frost":
        what += f", {frost_source(textures)}"
    note = f"made here from {clean.name}: {what}; not the official files"
    if clean.note:
        note += f"; {clean.note}"
    condition = f"{corruption} {severity} seed {seed} {textures_fingerprint(textures)}".rstrip()
    return replace(clean, name=name, origin="generated", note=note, _read=read, condition=condition)


def textures_fingerprint(textures: Path | None) -> str:
    """Return a fingerprint of the frost textures in a folder, or "" for the generated texture."""
    return "" if textures is None else f"textures {folder_fingerprint(textures)}"


def benchmark_size(image: Image.Image) -> Image.Image:
    """Resize the short side to 256 pixels and take the centre crop of 224 pixels, with the rounding of ImageNet-C."""
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
