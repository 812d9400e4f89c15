"""Textures of ice, for those who do not have the public ones: feathers of frost before a cloudy ground.

Five of them, always the same, with about the colours and the contrast of the five public textures that the benchmark draws from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from .planes import Pixels, Plane
from .plasma import plasma

HEIGHT, WIDTH = 400, 600

# Lines are drawn so many times larger and averaged, which makes their edges smooth.
_FINER = 2


@dataclass(frozen=True, slots=True)
class Ice:
    """How one texture looks: its colours where dark and where light, and its feathers."""

    dark: tuple[int, int, int]
    light: tuple[int, int, int]
    feathers: int
    length: float  # of a feather's stem, in pixels
    clouds: float  # share of the ground in the picture, the feathers being the rest
    barbs: float  # length of a side branch, as a share of the stem behind it


ICES = (
    Ice(dark=(0, 104, 130), light=(172, 206, 210), feathers=600, length=60, clouds=0.62, barbs=0.2),
    Ice(dark=(150, 157, 170), light=(248, 250, 252), feathers=1000, length=60, clouds=0.32, barbs=0.25),
    Ice(dark=(146, 152, 168), light=(250, 250, 254), feathers=1400, length=42, clouds=0.28, barbs=0.35),
    Ice(dark=(42, 58, 74), light=(222, 234, 244), feathers=1600, length=26, clouds=0.36, barbs=0.5),
    Ice(dark=(30, 40, 58), light=(226, 236, 246), feathers=800, length=52, clouds=0.42, barbs=0.55),
)


@lru_cache(maxsize=len(ICES))
def ice(which: int) -> Pixels:
    """Texture `which` of five, uint8 [400, 600, 3]."""
    look = ICES[which]
    generator = np.random.default_rng([which, HEIGHT, WIDTH])
    ground = plasma(HEIGHT, WIDTH, 1.5, generator)
    behind = _feathers(look, look.length * 1.6, look.feathers // 4, generator, blur=2.0)
    before = _feathers(look, look.length, look.feathers, generator, blur=0.4)
    light = look.clouds * ground + (1 - look.clouds) * (0.35 * behind + 0.65 * before)
    low, high = np.percentile(light, (2, 98))
    light = np.clip((light - low) / (high - low), 0, 1)[..., None]
    dark, bright = np.array(look.dark, np.float32), np.array(look.light, np.float32)
    made: Pixels = np.rint(dark + light * (bright - dark)).astype(np.uint8)
    made.setflags(write=False)
    return made


def _feathers(look: Ice, length: float, count: int, generator: np.random.Generator, blur: float) -> Plane:
    """`count` feathers, the later over the earlier, on the scale from 0 to 1."""
    canvas = Image.new("L", (WIDTH * _FINER, HEIGHT * _FINER), 70)
    draw = ImageDraw.Draw(canvas)
    # Neighbours grow in related directions, so the angle follows a cloud too.
    lean = 4 * math.pi * plasma(HEIGHT, WIDTH, 1.8, generator)
    for _ in range(count):
        row, column = int(generator.integers(HEIGHT)), int(generator.integers(WIDTH))
        angle = float(lean[row, column] + generator.normal(0, 0.5))
        stem = _FINER * length * float(generator.uniform(0.4, 1.4))
        _feather(draw, column * _FINER, row * _FINER, angle, stem, look.barbs, generator)
    small = canvas.resize((WIDTH, HEIGHT), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(blur))
    return np.asarray(small, np.float32) / np.float32(255)


def _feather(
    draw: ImageDraw.ImageDraw,
    x: float,
    y: float,
    angle: float,
    stem: float,
    barbs: float,
    generator: np.random.Generator,
) -> None:
    """A stem from (x, y) with branches at sixty degrees on both sides, shorter towards the tip."""
    tone = int(generator.integers(60, 256))
    along = np.arange(0.1, 1, max(0.04, 3 * _FINER / stem))
    reach = stem * barbs * (1 - along) * generator.uniform(0.6, 1.2, len(along))
    roots = x + stem * along * math.cos(angle), y + stem * along * math.sin(angle)
    # One side catches the light, the other lies in the shade.
    for side, shade in ((angle - math.pi / 3, tone), (angle + math.pi / 3, int(tone * generator.uniform(0.2, 0.9)))):
        tips = roots[0] + reach * math.cos(side), roots[1] + reach * math.sin(side)
        for branch in np.stack([*roots, *tips], axis=1).tolist():
            draw.line(branch, shade, _FINER)
    draw.line((x, y, x + stem * math.cos(angle), y + stem * math.sin(angle)), min(255, tone + 40), _FINER)
