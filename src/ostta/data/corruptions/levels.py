"""Constants of the fifteen corruptions, with one row for each severity from 0 to 5.

Rows 1 to 5 are those of CIFAR-10-C and CIFAR-100-C (`SMALL`) and of ImageNet-C (`LARGE`). Row 0 is used to interpolate
below severity 1. In `LARGE` it is the row of CCC (continuously changing corruptions), in `SMALL` an analogous row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rows of one corruption. With `reciprocal`, the reciprocal of the constant is interpolated."""

    rows: tuple[Row, Row, Row, Row, Row, Row]
    reciprocal: bool = False

    def at(self, severity: float) -> Row:
        """Return the constants at a severity from 0 to 5, interpolated between two rows.

        >>> Ladder(((0,), (0.08,), (0.12,), (0.18,), (0.26,), (0.38,))).at(0.5)
        (0.04,)
        """
        below = math.floor(severity)
        share = severity - below
        if share == 0:
            return self.rows[below]
        pairs = zip(self.rows[below], self.rows[below + 1], strict=True)
        if self.reciprocal:
            inverses = ((1 - share) / low + share / high for low, high in pairs)
            return tuple(1 / inverse if inverse > 0 else math.inf for inverse in inverses)
        return tuple((1 - share) * low + share * high for low, high in pairs)


def _scaled(factor: float, *rows: Row) -> tuple[Row, ...]:
    return tuple(tuple(factor * value for value in row) for row in rows)


# The elastic constants are fractions of the side. The published files of ImageNet-C use a side of 244, not 224.
_SMALL_ELASTIC = _scaled(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
_LARGE_ELASTIC = _scaled(244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))

SMALL: Mapping[str, Ladder] = MappingProxyType(
    {
        # standard deviation of the noise
        "gaussian_noise": Ladder(((0,), (0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
        # mean photon count of a white pixel
        "shot_noise": Ladder(((math.inf,), (500,), (250,), (100,), (75,), (50,)), reciprocal=True),
        # share of values replaced by black or white
        "impulse_noise": Ladder(((0,), (0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
        # radius of the disk, sigma of its soft edge
        "defocus_blur": Ladder(((0, 0), (0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
        # sigma of the blur, maximum shift, rounds
        "glass_blur": Ladder(((0, 0, 0), (0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
        # radius, sigma
        "motion_blur": Ladder(((0, 0), (6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
        # exclusive upper bound and step of the zoom factors, which start at 1
        "zoom_blur": Ladder(((1, 0.01), (1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))),
        # mean and standard deviation of the noise, zoom, threshold, radius and sigma of the blur, weight of the image
        "snow": Ladder(
            (
                (0.1, 0.2, 1, 1.0, 8, 3, 1.0),
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            )
        ),
        # weight of the image, weight of the texture, stride with which the texture is subsampled
        "frost": Ladder(((1, 0, 5), (1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5))),
        # weight of the fog, decay of its roughness
        "fog": Ladder(((0, 3), (0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
        # increment of the HSV value
        "brightness": Ladder(((0,), (0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
        # scale factor around the mean
        "contrast": Ladder(((1,), (0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
        # scale and sigma of the displacement, jitter of the affine map, in pixels
        "elastic": Ladder(((0, 0, 0), *_SMALL_ELASTIC)),  # type: ignore[arg-type]  # five rows, which mypy cannot count
        # side of the reduced image as a fraction of the original side
        "pixelate": Ladder(((1,), (0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
        # JPEG quality
        "jpeg": Ladder(((85,), (80,), (65,), (58,), (50,), (40,))),
    }
)

LARGE: Mapping[str, Ladder] = MappingProxyType(
    {
        "gaussian_noise": Ladder(((0,), (0.08,), (0.12,), (0.18,), (0.26,), (0.38,))),
        "shot_noise": Ladder(((math.inf,), (60,), (25,), (12,), (5,), (3,)), reciprocal=True),
        "impulse_noise": Ladder(((0,), (0.03,), (0.06,), (0.09,), (0.17,), (0.27,))),
        "defocus_blur": Ladder(((0, 0), (3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))),
        "glass_blur": Ladder(((0, 0, 0), (0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2))),
        "motion_blur": Ladder(((0, 0), (10, 3), (15, 5), (15, 8), (15, 12), (20, 15))),
        "zoom_blur": Ladder(((1, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))),
        "snow": Ladder(
            (
                (0.1, 0.3, 3, 1.0, 10, 4, 1.0),
                (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
                (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
            )
        ),
        "frost": Ladder(((1, 0, 1), (1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1))),
        "fog": Ladder(((0, 2), (1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))),
        "brightness": Ladder(((0,), (0.1,), (0.2,), (0.3,), (0.4,), (0.5,))),
        "contrast": Ladder(((1,), (0.4,), (0.3,), (0.2,), (0.1,), (0.05,))),
        "elastic": Ladder(((0, 999, 0), *_LARGE_ELASTIC)),  # type: ignore[arg-type]
        "pixelate": Ladder(((1,), (0.6,), (0.5,), (0.4,), (0.3,), (0.25,))),
        "jpeg": Ladder(((85,), (25,), (18,), (15,), (10,), (7,))),
    }
)
