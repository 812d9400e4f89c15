"""Noise corruptions: Gaussian, shot and impulse."""

from __future__ import annotations

import numpy as np

from .planes import Pixels, cut, to_pixels, unit


def gaussian_noise(image: Pixels, generator: np.random.Generator, deviation: float) -> Pixels:
    """Add independent Gaussian noise to every channel of every pixel."""
    noise = generator.standard_normal(image.shape, np.float32)
    return to_pixels(unit(image) + np.float32(deviation) * noise)


def shot_noise(image: Pixels, generator: np.random.Generator, photons: float) -> Pixels:
    """Draw Poisson photon counts, with a mean of `photons` for a white pixel."""
    if photons > 1e9:  # The noise is invisible in 8 bits, and `poisson` does not accept such a mean.
        return image.copy()
    return cut(generator.poisson(unit(image) * photons) * (255 / photons))


def impulse_noise(image: Pixels, generator: np.random.Generator, amount: float) -> Pixels:
    """Replace a share `amount` of all values, half by white and half by black."""
    chance = generator.random(image.shape, np.float32)
    noisy = image.copy()
    noisy[chance < amount] = 255
    noisy[chance < amount / 2] = 0
    return noisy
