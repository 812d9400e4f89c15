"""The fifteen common corruptions of CIFAR-10-C, CIFAR-100-C and ImageNet-C.

The algorithms and constants are those of the published files. The authors used an unseeded generator, so the published
pixels cannot be reproduced. The pixels computed here are a function of (image, seed, index, name, severity).

`levels.py` contains the constants. To add a corruption, write a function from (pixels, generator, constants...) to
pixels, and add its two ladders to `levels.py` and an entry to `CORRUPTIONS`. `dataset.py` corrupts data sets.
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

# Maximum short side in pixels of images that use the constants of the 32-pixel benchmark.
SMALL_SIDE = 64
LEAST_SIDE = 8


@dataclass(frozen=True, slots=True)
class Corruption:
    """Function of a corruption and its constants for small and large images."""

    apply: Callable[..., Pixels]
    small: Ladder
    large: Ladder
    textured: bool = False


def corrupt(
    image: Pixels, name: str, severity: float, *, seed: int, index: int, textures: str | Path | None = None
) -> Pixels:
    """Apply the corruption `name` to `image`, uint8 [H,W,3].

    severity:  1 to 5 as in the benchmark, or any number from 0 to 5. Constants between two levels are interpolated.
    index:     number of the image in the data set, so that each image has different noise.
    textures:  folder with the six public frost textures; by default a texture is generated.

    Images with a short side of up to 64 pixels use the constants of the 32-pixel benchmark, and larger images those of
    the 224-pixel benchmark. Lengths are in pixels and do not scale with the image. Images need not be square, but each
    side must have at least 8 pixels.

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
    """Apply two corruptions in sequence, each with a separate generator. A corruption of severity 0 is skipped.

    >>> grey = np.full((32, 32, 3), 99, np.uint8)
    >>> int(corrupt_pair(grey, "contrast", 2.5, "snow", 0, seed=0, index=0).max())
    99
    """
    _check(image, [(first, first_severity), (second, second_severity)], seed, index)
    corrupted = image.copy()
    for name, severity, is_second in ((first, first_severity, False), (second, second_severity, True)):
        if severity > 0:
            corrupted = _apply(corrupted, name, severity, [seed, index], textures, is_second)
    return corrupted


def corruption_names() -> tuple[str, ...]:
    """Return the names of the corruptions in the order of the benchmark."""
    return tuple(CORRUPTIONS)


def checked(name: str, severity: int) -> Corruption:
    """Return the corruption `name`. Raise an Error if the name or the severity is not part of the benchmark."""
    corruption = _named(name)
    check_severity(severity)
    return corruption


def check_severity(severity: int) -> None:
    """Raise an Error unless `severity` is one of the five benchmark severities."""
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
        is_number = isinstance(severity, int | float | np.integer | np.floating) and not isinstance(severity, bool)
        if not is_number or not 0 <= severity <= 5:
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
    # Other severities are keyed by their bits, a number far above 5 that cannot collide with an integer severity.
    is_whole = math.floor(severity) == severity
    level = int(severity) if is_whole else int(np.float64(severity).view(np.uint64))
    entropy = [*key, zlib.crc32(name.encode()), level] + [1] * second
    options = {"textures": textures} if corruption.textured else {}
    return corruption.apply(image, np.random.default_rng(entropy), *ladder.at(float(severity)), **options)


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        apply.__name__: Corruption(apply, SMALL[apply.__name__], LARGE[apply.__name__], textured=apply is frost)
        for apply in (
            *(gaussian_noise, shot_noise, impulse_noise),
            *(defocus_blur, glass_blur, motion_blur, zoom_blur),
            *(snow, frost, fog, brightness),
            *(contrast, elastic, pixelate, jpeg),
        )
    }
)
