"""Shared operations of the corruptions: value scaling, and linear maps along rows and columns.

A separable blur or zoom is a multiplication by one matrix on each side of the image. The matrices depend only on the
size and the constants, so they are cached.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]
Places = npt.NDArray[np.intp]


def unit(image: Pixels) -> Plane:
    """Scale pixels to the range 0 to 1."""
    return image.astype(np.float32) / np.float32(255)


def to_pixels(image: Plane) -> Pixels:
    """Scale values from the range 0 to 1 to pixels. Fractions are truncated, as in the published files."""
    pixels: Pixels = (np.clip(image, 0, 1) * 255).astype(np.uint8)
    return pixels


def cut(image: npt.NDArray[np.floating]) -> Pixels:
    """Truncate values from 0 to 255 to pixels. A small margin compensates for rounding errors below an integer."""
    pixels: Pixels = np.clip(image + 1e-3, 0, 255).astype(np.uint8)
    return pixels


def along_both(rows: Plane, image: Plane, columns: Plane) -> Plane:
    """Apply `rows` along the columns and `columns` along the rows of an image [H,W,C]."""
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    result: Plane = np.ascontiguousarray((rows @ planes @ columns.T).transpose(1, 2, 0))
    return result


def centre_zoom(plane: Plane, zoom: float) -> Plane:
    """Enlarge the centre of a plane `zoom` times by linear interpolation and crop it to the original size."""
    crops = tuple(_middle(math.ceil(side / zoom), side) for side in plane.shape)
    rows, columns = (interpolation(len(crop), round(len(crop) * zoom)) for crop in crops)
    large = np.asarray(rows @ plane[_slice(crops[0]), _slice(crops[1])] @ columns.T, np.float32)
    top, left = ((after - before) // 2 for after, before in zip(large.shape, plane.shape, strict=True))
    return large[top : top + plane.shape[0], left : left + plane.shape[1]]


@lru_cache(maxsize=256)
def zooming(side: int, zoom: float) -> Plane:
    """Return the matrix [side, side] of `centre_zoom` along one axis."""
    crop = _middle(math.ceil(side / zoom), side)
    large = interpolation(len(crop), round(len(crop) * zoom))
    trim = (len(large) - side) // 2
    matrix = np.zeros((side, side), np.float32)
    matrix[:, _slice(crop)] = large[trim : trim + side]
    return _kept(matrix)


@lru_cache(maxsize=256)
def interpolation(source: int, target: int) -> Plane:
    """Return the weights [target, source] of linear interpolation, which maps end points to end points."""
    places = np.linspace(0, source - 1, target)
    weights: Plane = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(source))).astype(np.float32)
    return _kept(weights)


@lru_cache(maxsize=64)
def smoothing(side: int, sigma: float, reach: float, *, mirrored: bool) -> Plane:
    """Return the matrix [side, side] of a Gaussian average over `reach` sigmas in both directions.

    Beyond the border, the image is reflected if `mirrored`; otherwise the edge pixel is repeated.
    """
    radius = int(reach * sigma + 0.5)
    if radius == 0:
        return _kept(np.eye(side, dtype=np.float32))
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    places = np.arange(side)[:, None] + offsets
    places = mirror(places, side) if mirrored else np.clip(places, 0, side - 1)
    matrix = np.zeros((side, side))
    np.add.at(matrix, (np.arange(side)[:, None], places), weights / weights.sum())
    return _kept(matrix.astype(np.float32))


def mirror(places: Places, side: int) -> Places:
    """Map places into the image by reflection that repeats the edge pixels: ..1 0 0 1 2.."""
    places = places % (2 * side)
    return np.minimum(places, 2 * side - 1 - places)


def mirror_between(places: Places, side: int) -> Places:
    """Map places into the image by reflection that does not repeat the edge pixels: ..2 1 0 1 2.."""
    places = places % (2 * side - 2)
    return np.minimum(places, 2 * side - 2 - places)


def _middle(length: int, side: int) -> range:
    start = (side - length) // 2
    return range(start, start + length)


def _slice(places: range) -> slice:
    return slice(places.start, places.stop)


def _kept(matrix: Plane) -> Plane:
    """Make a cached matrix read-only."""
    matrix.setflags(write=False)
    return matrix
