"""Where frost comes from: the benchmark's public textures in a folder, else the ice that is made here."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from ...core.types import Error
from .ice import ice
from .planes import Pixels

PUBLIC_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")

# The benchmark's makers drew from the first five of the six.
DRAWN = 5


def frost_source(textures: str | Path | None) -> str:
    """What frost is made of, for result files: "public textures" or "procedural texture".

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
    """A random piece [height, width, 3] of a random texture, of which every `thinning`-th pixel is kept.

    A texture that is too small for the image is enlarged until it covers it.
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
            f"it must have the six public files, {PUBLIC_FILES[0]} to {PUBLIC_FILES[-1]}."
        )
    return paths


@lru_cache(maxsize=2 * DRAWN)
def _read(path: Path, modified: int, thinning: int) -> Pixels:
    """One texture; `modified` is the time of the file's last change, so that a new file is read anew."""
    try:
        with Image.open(path) as opened:
            texture = np.array(opened.convert("RGB"))[thinning // 2 :: thinning, thinning // 2 :: thinning]
    except (OSError, ValueError) as problem:
        raise Error(f"The frost texture '{path}' cannot be read: {problem}.") from problem
    texture = np.ascontiguousarray(texture)
    texture.setflags(write=False)
    return texture
