"""Digital corruptions: contrast, elastic, pixelate and jpeg."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

from .planes import Pixels, Places, Plane, cut, mirror, mirror_between, smoothing

Coordinates = npt.NDArray[np.float64]


def contrast(image: Pixels, generator: np.random.Generator, factor: float) -> Pixels:
    """Scale each channel around its mean. This corruption is deterministic."""
    means = image.mean(axis=(0, 1))
    return cut((image - means) * factor + means)


def elastic(image: Pixels, generator: np.random.Generator, scale: float, sigma: float, jitter: float) -> Pixels:
    """Apply a random affine map, then a smooth random displacement of every pixel."""
    height, width = image.shape[:2]
    grid = np.mgrid[:height, :width].astype(float)
    warped = sample(image.astype(np.float32), _affine(grid, jitter, generator), mirror_between)
    down, across = (smoothing(side, sigma, 3, mirrored=True) for side in (height, width))
    displacement = scale * (down @ generator.uniform(-1, 1, (2, height, width)) @ across.T)
    return cut(sample(warped, grid + displacement, mirror))


def _affine(grid: Coordinates, jitter: float, generator: np.random.Generator) -> Coordinates:
    """Return the source of each point of `grid` under an affine map that moves three corners by up to `jitter`."""
    sides = np.array(grid.shape[1:])
    corners = sides // 2 + min(sides) // 3 * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = corners + generator.uniform(-jitter, jitter, corners.shape)
    back = np.linalg.solve(np.column_stack([moved, np.ones(3)]), corners)
    source: Coordinates = np.tensordot(back[:2], grid, (0, 0)) + back[2][:, None, None]
    return source


def sample(image: Plane, places: Coordinates, inside: Callable[[Places, int], Places]) -> Plane:
    """Interpolate `image` [H,W,C] at fractional `places` (rows, columns). `inside` maps places into the image."""
    top, left = whole = np.floor(places).astype(np.intp)
    down, right = (places - whole).astype(np.float32)[..., None]
    height, width = image.shape[:2]
    above, below = inside(top, height) * width, inside(top + 1, height) * width
    before, after = inside(left, width), inside(left + 1, width)
    values = image.reshape(height * width, -1)  # A flat index is faster than two indices.
    upper = values.take(above + before, 0) * (1 - right) + values.take(above + after, 0) * right
    lower = values.take(below + before, 0) * (1 - right) + values.take(below + after, 0) * right
    result: Plane = upper * (1 - down) + lower * down
    return result


def pixelate(image: Pixels, generator: np.random.Generator, share: float) -> Pixels:
    """Shrink and enlarge the image by box averages. This corruption is deterministic."""
    height, width = image.shape[:2]
    small = (max(1, int(width * share)), max(1, int(height * share)))
    shrunk = Image.fromarray(image).resize(small, Image.Resampling.BOX)
    return np.array(shrunk.resize((width, height), Image.Resampling.BOX))


def jpeg(image: Pixels, generator: np.random.Generator, quality: float) -> Pixels:
    """Encode and decode the image as JPEG. This corruption is deterministic."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=round(quality))
    with Image.open(buffer) as decoded:
        return np.array(decoded)
