"""Noise: what a sensor adds."""

from __future__ import annotations

import numpy as np

from .planes import Pixels, cut, to_pixels, unit


def gaussian_noise(image: Pixels, generator: np.random.Generator, deviation: float) -> Pixels:
    """Independent noise on every value of every pixel."""
    noise = generator.standard_normal(image.shape, np.float32)
    return to_pixels(unit(image) + np.float32(deviation) * noise)


def shot_noise(image: Pixels, generator: np.random.Generator, photons: float) -> Pixels:
    """Counting photons, of which a white pixel sends so many on average."""
    if photons > 1e9:  # noise below anything that eight bits could show; `poisson` refuses to count so far
        return image.copy()
    return cut(generator.poisson(unit(image) * photons) * (255 / photons))


def impulse_noise(image: Pixels, generator: np.random.Generator, amount: float) -> Pixels:
    """A share `amount` of all values is lost, half of them to white and half to black."""
    chance = generator.random(image.shape, np.float32)
    spoilt = image.copy()
    spoilt[chance < amount] = 255
    spoilt[chance < amount / 2] = 0
    return spoilt
