"""The plasma map: cloudy at every scale."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .planes import Plane

Points = npt.NDArray[np.float64]


def plasma(height: int, width: int, decay: float, generator: np.random.Generator) -> Plane:
    """[height, width] values by the diamond-square method, the top left part of a square map that runs from 0 to 1.

    The square's side is the next power of two. At every halving of the distance the new points are the mean of their four
    neighbours, round the ends, plus noise; the noise shrinks by the square of `decay` each time.
    """
    side = 1 << (max(height, width) - 1).bit_length()
    points = np.zeros((side, side))
    noise = 1.0

    def middle(a: Points, b: Points, c: Points, d: Points) -> Points:
        return (a + b + c + d) / 4 + noise * generator.uniform(-1, 1, a.shape)

    step = side
    while step >= 2:
        half = step // 2
        corners = points[::step, ::step]
        below, right = np.roll(corners, -1, 0), np.roll(corners, -1, 1)
        centres = middle(corners, below, right, np.roll(below, -1, 1))
        points[half::step, half::step] = centres
        points[::step, half::step] = middle(corners, right, centres, np.roll(centres, 1, 0))
        points[half::step, ::step] = middle(corners, below, centres, np.roll(centres, 1, 1))
        step = half
        noise /= decay**2
    points -= points.min()
    made: Plane = (points / points.max())[:height, :width].astype(np.float32)
    return made
