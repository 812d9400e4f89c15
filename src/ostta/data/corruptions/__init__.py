"""The fifteen common corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C.

Algorithms and constants are those of the published files. Their authors used an unseeded generator, so the published
pixels cannot be reproduced; the pixels computed here are a function of (image, seed, index, name, severity).

`levels.py` has the constants. To add a corruption, write a function from (pixels, generator, constants...) to pixels,
and add its two ladders to `levels.py` and an entry to `CORRUPTIONS`. `dataset.py` applies a corruption to a data set.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ...core.types import Error
from .blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from .digital import contrast, elastic, jpeg, pixelate
from .levels import LARGE, SMALL, Ladder
from .noise import gaussian_noise, impulse_noise, shot_noise
from .planes import Pixels
from .textures import frost_source
from .weather import brightness, fog, frost, snow

__all__ = [
    "CORRUPTIONS",
    "SMALL_SIDE",
    "Corruption",
    "Pixels",
    "check_severity",
    "checked",
    "corrupt",
    "corrupt_pair",
    "corruption_names",
    "frost_source",
]

# Images whose shorter side has at most this many pixels use the constants of the 32-pixel benchmark.
SMALL_SIDE = 64
LEAST_SIDE = 8


@dataclass(frozen=True, slots=True)
class Corruption:
    """The function of a corruption, and its constants for small and for large images."""

    apply: Callable[..., Pixels]
    small: Ladder
    large: Ladder
    textured: bool = False


def corrupt(
    image: Pixels, name: str, severity: float, *, seed: int, index: int, textures: str | Path | None = None
) -> Pixels:
    """Return `image` (uint8 [H,W,3]) with the corruption `name`.

    severity:  1 to 5 as in the benchmark, or any number from 0 to 5; constants between two levels are interpolated.
    index:     number of the image in the data set, so that each image has its own noise.
    textures:  folder with the six public frost textures; by default a texture is generated.

    Images whose shorter side has up to 64 pixels use the constants of the 32-pixel benchmark, larger images those of
    the 224-pixel benchmark. Constants that are lengths are numbers of pixels for all sizes. Images need not be square;
    each side must have at least 8 pixels.

    >>> corrupt(np.zeros((32, 32, 3), np.uint8), "snow", 5, seed=0, index=0).shape
    (32, 32, 3)
    """
    _check(image, [(name, severity)], seed, index)
    return _apply(image, name, severity, [seed, index], textures)


def corrupt_pair(
    image: Pixels,
    first: str,
    first_severity: float,
    second: str,
    second_severity: float,
    *,
    seed: int,
    index: int,
    textures: str | Path | None = None,
) -> Pixels:
    """Apply two corruptions in turn, each with its own generator. A corruption of severity 0 is skipped.

    >>> grey = np.full((32, 32, 3), 99, np.uint8)
    >>> int(corrupt_pair(grey, "contrast", 2.5, "snow", 0, seed=0, index=0).max())
    99
    """
    _check(image, [(first, first_severity), (second, second_severity)], seed, index)
    corrupted = image.copy()
    if first_severity > 0:
        corrupted = _apply(corrupted, first, first_severity, [seed, index], textures)
    if second_severity > 0:
        corrupted = _apply(corrupted, second, second_severity, [seed, index], textures, second=True)
    return corrupted


def corruption_names() -> tuple[str, ...]:
    """Return the names of the corruptions in the order of the benchmark."""
    return tuple(CORRUPTIONS)


def checked(name: str, severity: int) -> Corruption:
    """Return the corruption called `name`, after checking that the benchmark has it at this severity."""
    corruption = _named(name)
    check_severity(severity)
    return corruption


def check_severity(severity: int) -> None:
    """Raise an Error unless `severity` is one of the five of the benchmark."""
    if isinstance(severity, bool) or severity not in range(1, 6):
        raise Error(f"Severity {severity!r} does not exist: choose 1, 2, 3, 4 or 5.", code="severity-invalid")


def _named(name: str) -> Corruption:
    if name not in CORRUPTIONS:
        message = f"There is no corruption '{name}': choose one of {', '.join(CORRUPTIONS)}."
        raise Error(message, code="corruption-unknown")
    return CORRUPTIONS[name]


def _check(image: Pixels, corruptions: list[tuple[str, float]], seed: int, index: int) -> None:
    for name, severity in corruptions:
        _named(name)
        number = isinstance(severity, int | float | np.integer | np.floating) and not isinstance(severity, bool)
        if not number or not 0 <= severity <= 5:
            raise Error(f"Severity {severity!r} does not exist: choose a number from 0 to 5.", code="severity-invalid")
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        what = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise Error(f"Corruptions need uint8 arrays [height, width, 3], not {what}.", code="image-unusable")
    if min(image.shape[:2]) < LEAST_SIDE:
        raise Error(
            f"An image of {image.shape[0]} x {image.shape[1]} pixels is too small for a corruption: "
            f"each side must have at least {LEAST_SIDE}.",
            code="image-unusable",
        )
    if seed < 0 or index < 0:
        raise Error(f"Seed {seed} and index {index} cannot be used: both must be 0 or more.", code="seed-invalid")


def _apply(
    image: Pixels, name: str, severity: float, key: list[int], textures: str | Path | None, second: bool = False
) -> Pixels:
    corruption = CORRUPTIONS[name]
    ladder = corruption.small if min(image.shape[:2]) <= SMALL_SIDE else corruption.large
    # An integer severity is part of the key as it is. The bits of any other severity are a number far above 5.
    whole = math.floor(severity) == severity
    level = int(severity) if whole else int(np.float64(severity).view(np.uint64))
    entropy = [*key, zlib.crc32(name.encode()), level] + [1] * second
    options = {"textures": textures} if corruption.textured else {}
    return corruption.apply(image, np.random.default_rng(entropy), *ladder.at(float(severity)), **options)


def _corruption(apply: Callable[..., Pixels], textured: bool = False) -> Corruption:
    return Corruption(apply, SMALL[apply.__name__], LARGE[apply.__name__], textured)


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": _corruption(gaussian_noise),
        "shot_noise": _corruption(shot_noise),
        "impulse_noise": _corruption(impulse_noise),
        "defocus_blur": _corruption(defocus_blur),
        "glass_blur": _corruption(glass_blur),
        "motion_blur": _corruption(motion_blur),
        "zoom_blur": _corruption(zoom_blur),
        "snow": _corruption(snow),
        "frost": _corruption(frost, textured=True),
        "fog": _corruption(fog),
        "brightness": _corruption(brightness),
        "contrast": _corruption(contrast),
        "elastic": _corruption(elastic),
        "pixelate": _corruption(pixelate),
        "jpeg": _corruption(jpeg),
    }
)
