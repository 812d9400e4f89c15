"""Open and decode videos, cameras and live addresses with PyAV, the bindings of FFmpeg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import import_extra
from ..data.images import MAX_MEGAPIXELS
from .source import unreadable

# FFmpeg names of the accepted formats. Other formats, such as `concat`, refer to further files or are not recorded
# videos.
FORMATS = "mov,matroska,avi,mpeg,mpegts,mpegvideo,m4v,h264,hevc,mjpeg,mpjpeg,asf,flv,ogg"
# Restrict FFmpeg to local files in formats that do not refer to other files.
LOCAL_ONLY = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
# Timeout in seconds for opening and for each read over a network.
TIMEOUT_SECONDS = 10.0


def require_av() -> Any:
    """Return the module `av`, an optional dependency."""
    return import_extra("av", "Reading videos, cameras and live addresses", "video")


def video_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that PyAV raises for a damaged video."""
    return (require_av().error.FFmpegError, OSError, ValueError, EOFError)


@contextmanager
def open_video(
    where: str, what: str, *, form: str | None = None, remote: bool = False, options: Mapping[str, str] | None = None
) -> Iterator[tuple[Any, Any]]:
    """Open the container at `where` and yield it with its video stream. `what` is the name used in messages."""
    av = require_av()
    timeout = TIMEOUT_SECONDS if remote else None
    try:
        container = av.open(where, format=form, options=dict(options or {}), timeout=timeout)
    except video_errors() as problem:
        reason = video_reason(problem)
        if isinstance(problem, av.error.ArgumentError) and "format_whitelist" in (options or {}):
            reason = f"it is not in an accepted video format ({FORMATS})"
        # Suppress the cause, which may contain the password of an address.
        raise unreadable(f"{what} cannot be opened: {reason}.") from None
    try:
        stream = container.streams.best("video")
        if stream is None:
            raise unreadable(f"{what} contains no video.")
        context = stream.codec_context
        if context is None:
            raise unreadable(f"{what} is in a form that cannot be decoded.")
        if context.width * context.height > MAX_MEGAPIXELS * 1e6:
            size = f"{context.width} x {context.height}"
            raise unreadable(f"{what} has frames of {size} pixels: at most {MAX_MEGAPIXELS:g} megapixels are read.")
        # A frame may be larger than the size in the header.
        context.options = {"max_pixels": str(int(MAX_MEGAPIXELS * 1e6))}
        yield container, stream
    finally:
        container.close()


def video_reason(problem: Exception) -> str:
    """Return the reason of an FFmpeg error without the address, which may contain a password."""
    text = str(getattr(problem, "strerror", None) or type(problem).__name__)
    return text.rstrip(".").lower() if text[:1].isupper() else text


def frame_pixels(frame: Any) -> npt.NDArray[Any]:
    """Return a decoded frame as an upright array [height, width, 3]."""
    try:
        pixels: npt.NDArray[Any] = frame.to_ndarray(format="rgb24")
    except video_errors() as problem:
        size = f"{frame.width} x {frame.height}"
        raise unreadable(f"A frame of {size} pixels cannot be converted: {video_reason(problem)}.") from None
    turns = round(frame.rotation / 90) % 4
    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels
