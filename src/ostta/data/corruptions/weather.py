"""Weather corruptions: snow, frost, fog and brightness."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .blur import streak
from .planes import Pixels, Plane, centre_zoom, cut, to_pixels, unit
from .textures import frost_patch, plasma

_GREY: Plane = np.array([0.299, 0.587, 0.114], np.float32)


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
    """Add streaks of thresholded, blurred noise and their rotation by 180 degrees to a whitened image."""
    flakes = mean + deviation * generator.standard_normal(image.shape[:2], np.float32)
    flakes = centre_zoom(flakes.astype(np.float32), zoom)
    flakes[flakes < threshold] = 0
    flakes = streak(np.clip(flakes, 0, 1), radius, sigma, generator.uniform(-135, -45))[..., None]
    clean = unit(image)
    grey = clean @ _GREY
    whitened = weight * clean + (1 - weight) * np.maximum(clean, 1.5 * grey[..., None] + 0.5)
    return to_pixels(whitened + flakes + flakes[::-1, ::-1])


def frost(
    image: Pixels,
    generator: np.random.Generator,
    weight: float,
    frost_weight: float,
    thinning: float,
    *,
    textures: str | Path | None = None,
) -> Pixels:
    """Add a random crop of an ice texture."""
    ice = frost_patch(image.shape[0], image.shape[1], round(thinning), textures, generator)
    return cut(np.float32(weight) * image + np.float32(frost_weight) * ice)


def fog(image: Pixels, generator: np.random.Generator, weight: float, decay: float) -> Pixels:
    """Add a plasma map to every channel and rescale the result to the original maximum of the image."""
    clean = unit(image)
    brightest = float(clean.max())
    if brightest == 0:
        return image.copy()
    foggy = clean + np.float32(weight) * plasma(image.shape[0], image.shape[1], decay, generator)[..., None]
    return cut(foggy * np.float32(255 * brightest / (brightest + weight)))


def brightness(image: Pixels, generator: np.random.Generator, added: float) -> Pixels:
    """Add `added` to the HSV value, up to 1, with constant hue and saturation. This corruption is deterministic."""
    clean = unit(image)
    value = clean.max(axis=2, keepdims=True)
    after = np.minimum(value + np.float32(added), 1)
    # With constant hue and saturation, all channels are scaled by the same factor. Black becomes grey.
    return cut(255 * np.where(value > 0, clean * (after / np.where(value > 0, value, 1)), after))
