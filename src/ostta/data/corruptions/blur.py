"""Blur corruptions: defocus, glass, motion and zoom."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .planes import Pixels, Places, Plane, along_both, cut, smoothing, zooming


def defocus_blur(image: Pixels, generator: np.random.Generator, radius: float, sigma: float) -> Pixels:
    """Convolve with a disk that has a slightly soft edge. This corruption is deterministic."""
    kernel = disk(radius, sigma)
    height, width = image.shape[:2]
    reach = len(kernel) // 2
    padded = np.pad(image.astype(np.float32), ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    size = padded.shape[:2]
    spectrum = np.fft.rfft2(padded, axes=(0, 1)) * np.fft.rfft2(kernel, size)[..., None]
    # Drop the first 2 * reach rows and columns, which are affected by the wrap-around of the transform.
    return cut(np.fft.irfft2(spectrum, size, axes=(0, 1))[2 * reach :, 2 * reach :][:height, :width])


@lru_cache(maxsize=64)
def disk(radius: float, sigma: float) -> Plane:
    """Return a disk that sums to one, smoothed by a Gaussian of 3x3 pixels (5x5 for a radius above 8)."""
    reach = math.ceil(radius)
    soft = 1 if radius <= 8 else 2
    places = np.arange(-reach - soft, reach + soft + 1)
    full = (places[:, None] ** 2 + places**2 <= radius**2).astype(float)
    offsets = np.arange(-soft, soft + 1)
    edge = np.exp(-(offsets**2) / max(2 * sigma**2, 1e-9))
    kernel = np.apply_along_axis(np.convolve, 0, full, edge, mode="same")
    kernel = np.apply_along_axis(np.convolve, 1, kernel, edge, mode="same")
    normalised: Plane = (kernel / kernel.sum()).astype(np.float32)
    normalised.setflags(write=False)
    return normalised


def glass_blur(image: Pixels, generator: np.random.Generator, sigma: float, shift: float, rounds: float) -> Pixels:
    """Displace pixels locally between two light blurs. `shift` and `rounds` are rounded to integers."""
    height, width = image.shape[:2]
    reach = max(1, round(shift))
    inside = (height - 2 * reach, width - 2 * reach, 2)
    soft = (smoothing(height, sigma, 4, mirrored=False), smoothing(width, sigma, 4, mirrored=False))
    mixed = cut(along_both(soft[0], image.astype(np.float32), soft[1])).reshape(-1, 3)
    for _ in range(round(rounds)):
        mixed = mixed[taken_from(height, width, generator.integers(-reach, reach, inside))]
    return cut(along_both(soft[0], mixed.reshape(image.shape).astype(np.float32), soft[1]))


def taken_from(height: int, width: int, moves: npt.NDArray[np.int64]) -> Places:
    """Return the flat index of the source pixel of each pixel of [H,W].

    The benchmark loops from the last pixel to the first, inside a margin, and copies to each pixel the current value of
    the pixel at its offset (row, column). (The authors intended a swap, but both sides refer to the same memory.) A
    visited pixel already has a new value, so the sources form chains. This function follows all chains at once by
    pointer doubling, with exactly the result of the loop.
    """
    own = np.arange(height * width).reshape(height, width)
    reach = (height - len(moves)) // 2
    there = np.zeros((height, width), bool)
    region = (slice(reach + 1, reach + 1 + len(moves)), slice(reach + 1, reach + 1 + moves.shape[1]))
    there[region] = True
    chosen = own.copy()
    chosen[region] += moves[..., 0] * width + moves[..., 1]
    source = chosen.ravel()
    follow = there.ravel()[source] & (source > own.ravel())
    while follow.any():
        follow, source = follow & follow[source], np.where(follow, source[source], source)
    return source


def motion_blur(image: Pixels, generator: np.random.Generator, radius: float, sigma: float) -> Pixels:
    """Blur along a random, roughly horizontal direction."""
    blurred = streak(image.astype(np.float32), radius, sigma, generator.uniform(-45, 45))
    # ImageMagick, which generated the published files, rounds; the other corruptions truncate.
    return np.rint(blurred).astype(np.uint8)


def streak(image: Plane, radius: float, sigma: float, angle: float) -> Plane:
    """Apply ImageMagick's motion blur: a half-Gaussian average of the pixels that follow each pixel at `angle` degrees.

    The image is [H,W] or [H,W,3]. Edge pixels repeat beyond the border.
    """
    # The trail has 2 * radius + 1 pixels, including the pixel itself; `sigma` is the width of the Gaussian.
    steps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(steps**2) / max(2 * sigma**2, 1e-9))
    weights = (weights / weights.sum()).astype(np.float32)
    # Offsets in whole pixels along the angle, with halves rounded down.
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


def zoom_blur(image: Pixels, generator: np.random.Generator, top: float, step: float) -> Pixels:
    """Average the image and its centre zooms, starting at zoom 1. This corruption is deterministic."""
    height, width = image.shape[:2]
    zooms = [float(zoom) for zoom in np.arange(1, top, step)]
    planes = np.ascontiguousarray(image.transpose(2, 0, 1), np.float32)
    total = planes.copy()
    for zoom in zooms:
        total += zooming(height, zoom) @ planes @ zooming(width, zoom).T
    return cut(total.transpose(1, 2, 0) / (len(zooms) + 1))
