"""Recorded videos. Frame numbers do not depend on the start position, so a stopped run can resume."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from ..core.text import counted
from ..core.types import Error
from ..io import check_regular
from .decoding import LOCAL_ONLY, frame_pixels, open_video, video_errors, video_reason
from .source import Item, Skip, Source, file_key, frame_item, unreadable

SUFFIXES = frozenset(
    [
        *(".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts"),
        *(".wmv", ".flv", ".ogv", ".3gp", ".mjpeg", ".mjpg", ".h264", ".264", ".hevc", ".265"),
    ]
)
# Maximum reordering of frames in packets; the standards allow 16.
REORDERED = 64
# Maximum number of packets whose frames are pending; if there are more, frames were lost.
MOST_PENDING = 4_096


class Video(Source):
    """The frames of a video file, one in `every`, without drops.

    Skipped frames are passed over by seeking if the seek is exact.
    """

    def __init__(self, path: Path, every: int, skip: Skip | None) -> None:
        super().__init__(str(path), skip)
        self._path, self._every = path, every

    def check(self) -> None:
        with self._open() as (container, stream):
            if next(_frames(container, stream, Numbers(), Damage()), None) is None:
                raise self._no_frame()

    def __iter__(self) -> Iterator[Item]:
        check_regular(self._path, "video")
        status = os.stat(self._path)
        key = file_key(self._path, status.st_size, status.st_mtime_ns)
        place = None
        if self.skips(f"{key}#0"):
            with self._open() as (container, stream):
                place = find_place(container, stream, self._every, lambda number: self.skips(f"{key}#{number}"))
        # If a seek reaches the wrong position, try an earlier key frame, and finally decode from the start.
        for seek in () if place is None else place.seeks:
            any_item = False
            for item in self._items(key, place, seek):
                any_item = True
                yield item
            if any_item:
                return
        if place is None or not place.at_the_end:
            yield from self._items(key, None, None)

    def _items(self, key: str, place: FramePosition | None, seek: int | None) -> Iterator[Item]:
        damage, last = Damage(), None
        with self._open() as (container, stream):
            start, base, rate = stream.start_time or 0, stream.time_base, stream.average_rate
            promised = stream.frames
            if place is None or seek is None:
                frames = _frames(container, stream, Numbers(), damage)
            else:
                frames = _frames_from(container, stream, place, seek, damage)
            for number, frame in frames:
                last = number
                if number % self._every or self.skips(f"{key}#{number}"):
                    continue
                seconds: float | None = None
                if frame.pts is not None and base is not None:
                    seconds = float((frame.pts - start) * base)
                elif rate:
                    seconds = float(number / rate)
                yield frame_item(
                    partial(frame_pixels, frame), f"{self.name}#{number}", f"{key}#{number}", seconds, number
                )
        if last is not None:
            self._report(damage, last + 1, promised)
        elif place is None:
            raise self._no_frame()

    def _report(self, damage: Damage, count: int, promised: int) -> None:
        if damage.parts:
            sentence = (
                f"{counted(damage.parts, 'part')} of the video '{self.name}' could not be decoded ({damage.reason})."
            )
            self.add_event("lost", sentence, {"parts": damage.parts})
        if count < promised:
            sentence = f"The video '{self.name}' ends after {count} of the {promised} frames that its header promises."
            self.add_event("lost", sentence, {"frames": count, "promised": promised})

    def _open(self) -> AbstractContextManager[tuple[Any, Any]]:
        check_regular(self._path, "video")
        # FFmpeg interprets names such as "concat:a", but not absolute paths.
        return open_video(os.path.abspath(self._path), f"The video '{self.name}'", options=LOCAL_ONLY)

    def _no_frame(self) -> Error:
        return unreadable(f"The video '{self.name}' has no frame that can be decoded.")


@dataclass(slots=True)
class Damage:
    """Number of undecodable parts of a video, and the reason for the last one."""

    parts: int = 0
    reason: str = ""

    def add(self, problem: Exception) -> None:
        self.parts, self.reason = self.parts + 1, video_reason(problem)


class Numbers:
    """Assign numbers to frames.

    The number of a frame is the number of packets with an earlier presentation time, so lost frames leave gaps. If
    reading starts in the middle, `first` is the number of the frame at the presentation time `begin`. Frames without a
    presentation time are numbered in order.
    """

    def __init__(self, first: int = 0, begin: int | None = None) -> None:
        self._next, self._begin = first, begin
        self._pending: list[int] = []

    def packet(self, shown_at: int | None) -> None:
        """Expect the frame of a packet."""
        if shown_at is not None and (self._begin is None or shown_at >= self._begin):
            heappush(self._pending, shown_at)
        if len(self._pending) > MOST_PENDING:
            heappop(self._pending)
            self._next += 1

    def frame(self, shown_at: int | None) -> int | None:
        """Return the number of a frame, or None if it is before the start."""
        if shown_at is not None and self._begin is not None and shown_at < self._begin:
            return None
        if shown_at in self._pending:
            while heappop(self._pending) != shown_at:
                self._next += 1
        self._next += 1
        return self._next - 1


@dataclass(frozen=True, slots=True)
class FramePosition:
    """Position of frame `number`.

    `seeks` contains the times of key frames to start from, the best first. It may be empty.
    """

    number: int
    shown_at: int | None
    seeks: tuple[int, ...]

    @property
    def at_the_end(self) -> bool:
        return self.shown_at is None


def find_place(container: Any, stream: Any, every: int, skips: Callable[[int], bool]) -> FramePosition | None:
    """Find the first frame that is not skipped, without decoding. Return None if the packets have no times."""
    number, times, keys = 0, [], []
    try:
        for packet in container.demux(stream):
            if not packet.size or packet.is_discard:
                continue
            if packet.pts is None:
                return None
            times.append(packet.pts)
            if packet.is_keyframe:
                keys.append(packet.pts)
            while number < len(times) and skips(number):
                number += every
            if len(times) > number + REORDERED:
                break
    except video_errors():
        pass  # Decoding ends at the same position.
    if len(set(times)) != len(times):
        return None
    times.sort()
    if number >= len(times):
        return FramePosition(number, None, ())
    before = sorted((key for key in keys if key <= times[number]), reverse=True)
    # Start one key frame earlier than necessary, because some encoders refresh an image gradually up to the next key
    # frame. Earlier key frames are fallbacks, since a seek in a container without an index may overshoot.
    return FramePosition(number, times[number], tuple(before[1:8:3]))


def _frames_from(
    container: Any, stream: Any, place: FramePosition, seek: int, damage: Damage
) -> Iterator[tuple[int, Any]]:
    """Yield the frames from `place`, or none if the seek overshoots it."""
    try:
        container.seek(seek, stream=stream)
    except video_errors():
        return
    yield from _frames(container, stream, Numbers(place.number, place.shown_at), damage, place.shown_at)


def _frames(
    container: Any, stream: Any, numbers: Numbers, damage: Damage, key_until: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield decoded frames with their numbers.

    With `key_until`, start at a key frame that is shown no later than this time, if there is one.
    """
    try:
        for packet in container.demux(stream):
            if key_until is not None:
                if not packet.is_keyframe:
                    continue
                if packet.pts is None or packet.pts > key_until:
                    return
                key_until = None
            if packet.size and not packet.is_discard:
                numbers.packet(packet.pts)
            try:
                decoded = packet.decode()
            except video_errors() as problem:
                damage.add(problem)
                continue
            for frame in decoded:
                number = numbers.frame(frame.pts)
                if number is not None:
                    yield number, frame
    except video_errors() as problem:
        damage.add(problem)
