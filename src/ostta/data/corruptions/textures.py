"""Weather textures: plasma maps for fog, and public or generated ice textures for frost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from ...core.errors import translate_errors
from ...core.types import Error
from .planes import Pixels, Plane

Points = npt.NDArray[np.float64]

PUBLIC_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
# The benchmark draws from the first five of the six files.
DRAWN = 5
# Size of a generated texture in pixels.
HEIGHT, WIDTH = 400, 600
# Lines are drawn at this scale and then averaged for anti-aliasing.
_OVERSAMPLING = 2


# --- frost ------------------------------------------------------------------------------------------------------------
def frost_source(textures: str | Path | None) -> str:
    """Return the origin of the frost texture for result files: "public textures" or "procedural texture".

    >>> frost_source(None)
    'procedural texture'
    """
    if textures is None:
        return "procedural texture"
    _public(textures)
    return "public textures"


def frost_patch(
    height: int, width: int, thinning: int, textures: str | Path | None, generator: np.random.Generator
) -> Pixels:
    """Return a random crop [height, width, 3] of a random texture, subsampled with the stride `thinning`.

    A texture that is smaller than the image is enlarged.
    """
    which = int(generator.integers(DRAWN))
    if textures is None:
        texture = ice(which)[thinning // 2 :: thinning, thinning // 2 :: thinning]
    else:
        path = _public(textures)[which]
        texture = _read(path, path.stat().st_mtime_ns, thinning)
    enlarge = max(height / texture.shape[0], width / texture.shape[1])
    if enlarge > 1:
        size = math.ceil(texture.shape[1] * enlarge), math.ceil(texture.shape[0] * enlarge)
        texture = np.asarray(Image.fromarray(texture).resize(size, Image.Resampling.BICUBIC))
    top = int(generator.integers(max(1, texture.shape[0] - height)))
    left = int(generator.integers(max(1, texture.shape[1] - width)))
    return texture[top : top + height, left : left + width]


def _public(textures: str | Path) -> list[Path]:
    paths = [Path(textures) / name for name in PUBLIC_FILES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise Error(
            f"The folder of frost textures '{textures}' misses {', '.join(missing)}: "
            f"it must have the six public files, {PUBLIC_FILES[0]} to {PUBLIC_FILES[-1]}.",
            code="textures-missing",
        )
    return paths


@lru_cache(maxsize=2 * DRAWN)
def _read(path: Path, modified: int, thinning: int) -> Pixels:
    """Read one texture. `modified`, the modification time, is part of the cache key."""
    message = f"The frost texture '{path}' cannot be read: {{reason}}."
    with translate_errors("image-unreadable", message, OSError, ValueError), Image.open(path) as opened:
        texture = np.array(opened.convert("RGB"))[thinning // 2 :: thinning, thinning // 2 :: thinning]
    texture = np.ascontiguousarray(texture)
    texture.setflags(write=False)
    return texture


# --- generated ice ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Ice:
    """Parameters of a generated texture: dark and light colours, and the shape of the frost feathers."""

    dark: tuple[int, int, int]
    light: tuple[int, int, int]
    feathers: int
    length: float  # length of the stem of a feather in pixels
    clouds: float  # weight of the cloudy background; the feathers have the remaining weight
    barbs: float  # length of a side branch as a fraction of the remaining stem


# Five textures that approximate the colours and contrast of the five public textures used by the benchmark.
ICES = (
    Ice(dark=(0, 104, 130), light=(172, 206, 210), feathers=600, length=60, clouds=0.62, barbs=0.2),
    Ice(dark=(150, 157, 170), light=(248, 250, 252), feathers=1000, length=60, clouds=0.32, barbs=0.25),
    Ice(dark=(146, 152, 168), light=(250, 250, 254), feathers=1400, length=42, clouds=0.28, barbs=0.35),
    Ice(dark=(42, 58, 74), light=(222, 234, 244), feathers=1600, length=26, clouds=0.36, barbs=0.5),
    Ice(dark=(30, 40, 58), light=(226, 236, 246), feathers=800, length=52, clouds=0.42, barbs=0.55),
)


@lru_cache(maxsize=len(ICES))
def ice(which: int) -> Pixels:
    """Return the generated texture number `which` (0 to 4), uint8 [400, 600, 3]."""
    style = ICES[which]
    generator = np.random.default_rng([which, HEIGHT, WIDTH])
    ground = plasma(HEIGHT, WIDTH, 1.5, generator)
    background = _feathers(style, style.length * 1.6, style.feathers // 4, generator, blur=2.0)
    foreground = _feathers(style, style.length, style.feathers, generator, blur=0.4)
    light = style.clouds * ground + (1 - style.clouds) * (0.35 * background + 0.65 * foreground)
    low, high = np.percentile(light, (2, 98))
    light = np.clip((light - low) / (high - low), 0, 1)[..., None]
    dark, bright = np.array(style.dark, np.float32), np.array(style.light, np.float32)
    texture: Pixels = np.rint(dark + light * (bright - dark)).astype(np.uint8)
    texture.setflags(write=False)
    return texture


def _feathers(style: Ice, length: float, count: int, generator: np.random.Generator, blur: float) -> Plane:
    """Draw `count` overlapping feathers with values from 0 to 1."""
    canvas = Image.new("L", (WIDTH * _OVERSAMPLING, HEIGHT * _OVERSAMPLING), 70)
    draw = ImageDraw.Draw(canvas)
    # Neighbouring feathers have similar directions, so the angle follows a plasma map.
    direction = 4 * math.pi * plasma(HEIGHT, WIDTH, 1.8, generator)
    for _ in range(count):
        row, column = int(generator.integers(HEIGHT)), int(generator.integers(WIDTH))
        angle = float(direction[row, column] + generator.normal(0, 0.5))
        stem = _OVERSAMPLING * length * float(generator.uniform(0.4, 1.4))
        _feather(draw, column * _OVERSAMPLING, row * _OVERSAMPLING, angle, stem, style.barbs, generator)
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
    """Draw a stem from (x, y) with branches at 60 degrees on both sides, shorter towards the tip."""
    tone = int(generator.integers(60, 256))
    along = np.arange(0.1, 1, max(0.04, 3 * _OVERSAMPLING / stem))
    reach = stem * barbs * (1 - along) * generator.uniform(0.6, 1.2, len(along))
    roots = x + stem * along * math.cos(angle), y + stem * along * math.sin(angle)
    # The branches on the second side are darker.
    for side, shade in ((angle - math.pi / 3, tone), (angle + math.pi / 3, int(tone * generator.uniform(0.2, 0.9)))):
        tips = roots[0] + reach * math.cos(side), roots[1] + reach * math.sin(side)
        for branch in np.stack([*roots, *tips], axis=1).tolist():
            draw.line(branch, shade, _OVERSAMPLING)
    draw.line((x, y, x + stem * math.cos(angle), y + stem * math.sin(angle)), min(255, tone + 40), _OVERSAMPLING)


# --- plasma -----------------------------------------------------------------------------------------------------------
def plasma(height: int, width: int, decay: float, generator: np.random.Generator) -> Plane:
    """Return a plasma map [height, width], the top left part of a square map with values from 0 to 1.

    The map is computed by the diamond-square algorithm. The side of the square is the next power of two. Each time the
    distance is halved, the new points are the mean of their four neighbours, with wrap-around, plus noise, whose
    amplitude is divided by the square of `decay`.
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
    result: Plane = (points / points.max())[:height, :width].astype(np.float32)
    return result
