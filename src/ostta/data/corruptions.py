"""The common-corruption benchmark's ways to spoil an image, at 32 pixels, severities 1 to 5.

The constants are those of CIFAR-10-C and CIFAR-100-C. Their makers drew from an unseeded generator, so the published files
cannot be made again pixel by pixel; ours are a function of (seed, index, name, severity).

To add one of the fifteen: a function from (pixels, generator, constants...) to pixels, and its row in `CORRUPTIONS`.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..core.types import Error

SIDE = 32

Pixels = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]

_GREY: Plane = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, slots=True)
class Corruption:
    """One way to spoil an image: what it does, and its constants at severities 1 to 5."""

    apply: Callable[..., Pixels]
    levels: tuple[tuple[float, ...], ...]


def corrupt(image: Pixels, name: str, severity: int, *, seed: int, index: int) -> Pixels:
    """`image` (uint8 [32,32,3]) with corruption `name`; `index` is its place in the data set, so that each has its own noise.

    >>> corrupt(np.zeros((32, 32, 3), np.uint8), "snow", 5, seed=0, index=0).shape
    (32, 32, 3)
    """
    corruption = checked(name, severity)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape != (SIDE, SIDE, 3):
        what = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise Error(f"Corruptions are made for uint8 arrays [{SIDE}, {SIDE}, 3], not for {what}.")
    if seed < 0 or index < 0:
        raise Error(f"Seed {seed} and index {index} cannot be used: both must be 0 or more.")
    generator = np.random.default_rng([seed, index, zlib.crc32(name.encode()), severity])
    return corruption.apply(image, generator, *corruption.levels[severity - 1])


def corruption_names() -> tuple[str, ...]:
    """The corruptions that can be made here."""
    return tuple(CORRUPTIONS)


def checked(name: str, severity: int) -> Corruption:
    """The corruption called `name`, once both it and the severity are known to exist."""
    if name not in CORRUPTIONS:
        raise Error(f"There is no corruption '{name}': choose one of {', '.join(CORRUPTIONS)}.")
    check_severity(severity)
    return CORRUPTIONS[name]


def check_severity(severity: int) -> None:
    """Raise an Error unless `severity` is one of the five."""
    if isinstance(severity, bool) or severity not in range(1, 6):
        raise Error(f"Severity {severity!r} does not exist: choose 1, 2, 3, 4 or 5.")


def gaussian_noise(image: Pixels, generator: np.random.Generator, deviation: float) -> Pixels:
    """Independent noise on every value of every pixel."""
    noise = generator.standard_normal(image.shape, np.float32)
    return _pixels(_unit(image) + np.float32(deviation) * noise)


def motion_blur(image: Pixels, generator: np.random.Generator, radius: float, sigma: float) -> Pixels:
    """The smear of a camera that moves roughly sideways."""
    blurred = streak(image.astype(np.float32), radius, sigma, generator.uniform(-45, 45))
    # ImageMagick, which made the benchmark's files, rounds here; the other corruptions cut the fraction off.
    return np.rint(blurred).astype(np.uint8)


def snow(
    image: Pixels,
    generator: np.random.Generator,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    weight: float,
) -> Pixels:
    """Streaks of blurred, thresholded noise over a whitened image; the second half of the flakes is the first, turned round."""
    flakes = mean + deviation * generator.standard_normal(image.shape[:2], np.float32)
    flakes = centre_zoom(flakes.astype(np.float32), zoom)
    flakes[flakes < threshold] = 0
    flakes = streak(np.clip(flakes, 0, 1), radius, sigma, generator.uniform(-135, -45))[..., None]
    clean = _unit(image)
    grey = clean @ _GREY
    whitened = weight * clean + (1 - weight) * np.maximum(clean, 1.5 * grey[..., None] + 0.5)
    return _pixels(whitened + flakes + flakes[::-1, ::-1])


def jpeg(image: Pixels, generator: np.random.Generator, quality: float) -> Pixels:
    """There and back through JPEG; nothing about it is random."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=int(quality))
    with Image.open(buffer) as decoded:
        return np.array(decoded)


def streak(image: Plane, radius: float, sigma: float, angle: float) -> Plane:
    """ImageMagick's motion blur: each pixel becomes a half-Gaussian average of those that follow it at `angle` degrees.

    Takes [H,W] or [H,W,3]. Past the border the edge pixels repeat.
    """
    # `radius` fixes the length of the trail, 2r + 1 pixels from the point itself onwards; `sigma` how soon it fades.
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).astype(np.float32)
    # Whole pixels along the angle, halves rounded down.
    rows = np.ceil(steps * math.sin(math.radians(angle)) - 0.5).astype(int)
    columns = np.ceil(steps * math.cos(math.radians(angle)) - 0.5).astype(int)
    above, left = -int(rows.min()), -int(columns.min())
    borders = [(above, int(rows.max())), (left, int(columns.max()))] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image, borders, mode="edge")
    height, width = image.shape[:2]
    total = np.zeros_like(image)
    for weight, row, column in zip(weights, rows + above, columns + left, strict=True):
        total += weight * padded[row : row + height, column : column + width]
    return total


def centre_zoom(plane: Plane, zoom: float) -> Plane:
    """The middle of a square plane, enlarged `zoom` times by linear interpolation and trimmed to the size it had."""
    side = plane.shape[0]
    crop = math.ceil(side / zoom)
    start = (side - crop) // 2
    weights = _interpolation(crop, round(crop * zoom))
    large = np.asarray(weights @ plane[start : start + crop, start : start + crop] @ weights.T, np.float32)
    trim = (len(large) - side) // 2
    return large[trim : trim + side, trim : trim + side]


@lru_cache(maxsize=16)
def _interpolation(source: int, target: int) -> Plane:
    """[target, source] weights of linear interpolation; the end points stay end points."""
    places = np.linspace(0, source - 1, target)
    weights: Plane = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(source))).astype(np.float32)
    return weights


def _unit(image: Pixels) -> Plane:
    return image.astype(np.float32) / np.float32(255)


def _pixels(image: Plane) -> Pixels:
    pixels: Pixels = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    return pixels


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        "gaussian_noise": Corruption(gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
        "motion_blur": Corruption(motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
        "snow": Corruption(
            snow,
            (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ),
        ),
        "jpeg": Corruption(jpeg, ((80,), (65,), (58,), (50,), (40,))),
    }
)
