"""Videos, cameras and live addresses opened and decoded by PyAV, which is FFmpeg; its problems as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.types import Error
from ..data.images import MAX_MEGAPIXELS

# FFmpeg's names of the formats that are read. Others refer to further files, such as `concat`, or are not recorded videos.
FORMATS = "mov,matroska,avi,mpeg,mpegts,mpegvideo,m4v,h264,hevc,mjpeg,mpjpeg,asf,flv,ogg"
# What may be opened for a file of this machine: that file, and nothing that it names.
LOCAL_ONLY = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
# Seconds that opening, and each read, may take where something is far away.
PATIENCE = 10.0


def require_av() -> Any:
    """The module `av`, which only some people need."""
    try:
        import av
    except ImportError:
        raise Error(
            'Videos, cameras and live addresses need PyAV: install it with `pip install "ostta[video]"`.'
        ) from None
    return av


def problems() -> tuple[type[Exception], ...]:
    """What PyAV raises where a video, and not our call, is wrong; many kinds of exceptions, as FFmpeg's are made like Python's."""
    return (require_av().error.FFmpegError, OSError, ValueError, EOFError)


@contextmanager
def opened(
    where: str, what: str, *, form: str | None = None, far: bool = False, options: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, Any]]:
    """The container at `where` and its video stream; `what` is how sentences call it, `far` whether it may have to be waited for."""
    av = require_av()
    try:
        container = av.open(where, format=form, options=dict(options or {}), timeout=PATIENCE if far else None)
    except problems() as problem:
        if isinstance(problem, av.error.ArgumentError) and "format_whitelist" in (options or {}):
            raise Error(f"{what} cannot be opened: it is not in a video format that is read ({FORMATS}).") from None
        raise Error(f"{what} cannot be opened: {said(problem)}.") from None
    try:
        stream = container.streams.best("video")
        if stream is None:
            raise Error(f"{what} holds no video.")
        context = stream.codec_context
        if context is None:
            raise Error(f"{what} is in a form that cannot be decoded.")
        if context.width * context.height > MAX_MEGAPIXELS * 1e6:
            raise Error(
                f"{what} has frames of {context.width} x {context.height} pixels: at most {MAX_MEGAPIXELS:g} megapixels are read."
            )
        # A frame may be larger than the header says.
        context.options = {"max_pixels": str(int(MAX_MEGAPIXELS * 1e6))}
        yield container, stream
    finally:
        container.close()


def said(problem: Exception) -> str:
    """What FFmpeg says, without the address: that may hold a password."""
    text = getattr(problem, "strerror", None) or type(problem).__name__
    return str(text).rstrip(".").lower() if str(text)[:1].isupper() else str(text)


def picture(frame: Any) -> npt.NDArray[Any]:
    """A decoded frame as height x width x 3, turned upright as the video says."""
    try:
        pixels: npt.NDArray[Any] = frame.to_ndarray(format="rgb24")
    except problems() as problem:
        raise Error(f"A frame of {frame.width} x {frame.height} pixels cannot be shown: {said(problem)}.") from None
    turns = round(frame.rotation / 90) % 4
    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels
