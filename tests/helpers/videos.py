"""Small videos."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ostta.sources import Item

av = pytest.importorskip("av", reason='needs `pip install "ostta[video]"`')


FRAMES, SIDE = 60, 64


def pixels(number: int, side: int = SIDE) -> np.ndarray:
    """Return the pixels of a frame. All frames differ in more than their brightness."""
    rows, columns = np.mgrid[:side, :side]
    wave = 127 + 90 * np.sin((rows * (1 + number % 7) + columns * (1 + number % 5)) / 9 + number)
    return np.stack([wave, np.roll(wave, number, 0), np.full_like(wave, 4 * number % 256)], axis=2).astype(np.uint8)


def video(path: Path, codec: str = "libx264", frames: int = FRAMES, **options: str) -> Path:
    """Write a video of `frames` frames at 25 per second, in which decoding order and display order differ."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.time_base = Fraction(1, 25)
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(pixels(number), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def told(item: Item) -> tuple[str, str, int | None, float | None, bytes]:
    return item.name, item.key, item.frame, item.time, item.image.tobytes()
