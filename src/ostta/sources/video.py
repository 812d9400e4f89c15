"""Recorded videos. A frame's number does not depend on where reading began, so that a run that was stopped goes on at the next one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from ..core.types import Error
from ..core.words import counted
from ..io import check_regular
from .decoding import LOCAL_ONLY, opened, picture, problems, said
from .item import Item, file_key, frame_item
from .source import Skip, Source

SUFFIXES = frozenset(
    [
        ".mp4",
        ".m4v",
        ".mov",
        ".avi",
        ".mkv",
        ".webm",
        ".mpg",
        ".mpeg",
        ".ts",
        ".mts",
        ".m2ts",
        ".wmv",
        ".flv",
        ".ogv",
        ".3gp",
        ".mjpeg",
        ".mjpg",
        ".h264",
        ".264",
        ".hevc",
        ".265",
    ]
)
# A packet comes at most so many packets after one whose frame is shown later; the standards allow 16.
REORDERED = 64
# Packets whose frames are waited for; where there are more, frames were lost.
WAITING = 4_096


class Video(Source):
    """The frames of a video file, one in `every`; none is dropped. Those that `skip` knows are passed over, by a seek where it is exact."""

    def __init__(self, path: Path, every: int, skip: Skip | None) -> None:
        super().__init__(str(path), skip)
        self._path, self._every = path, every

    def check(self) -> None:
        with self._opened() as (container, stream):
            if next(_frames(container, stream, Numbers(), Damage()), None) is None:
                raise self._no_frame()

    def __iter__(self) -> Iterator[Item]:
        check_regular(self._path, "video")
        file = os.stat(self._path)
        key = file_key(self._path, file.st_size, file.st_mtime_ns)
        place = None
        if not self.wanted(f"{key}#0"):
            with self._opened() as (container, stream):
                place = find_place(container, stream, self._every, lambda number: self.wanted(f"{key}#{number}"))
        # A seek that leads to the wrong place is tried again from an earlier one, and at last everything is decoded.
        for seek in () if place is None else place.seeks:
            found = False
            for item in self._items(key, place, seek):
                found = True
                yield item
            if found:
                return
        if place is None or not place.at_the_end:
            yield from self._items(key, None, None)

    def _items(self, key: str, place: Place | None, seek: int | None) -> Iterator[Item]:
        damage, last = Damage(), None
        with self._opened() as (container, stream):
            start, base, rate = stream.start_time or 0, stream.time_base, stream.average_rate
            promised = stream.frames
            if place is None or seek is None:
                frames = _frames(container, stream, Numbers(), damage)
            else:
                frames = _frames_from(container, stream, place, seek, damage)
            for number, frame in frames:
                last = number
                if number % self._every or not self.wanted(f"{key}#{number}"):
                    continue
                seconds: float | None = None
                if frame.pts is not None and base is not None:
                    seconds = float((frame.pts - start) * base)
                elif rate:
                    seconds = float(number / rate)
                yield frame_item(partial(picture, frame), f"{self.name}#{number}", f"{key}#{number}", seconds, number)
        if last is not None:
            self._tell_of(damage, last + 1, promised)
        elif place is None:
            raise self._no_frame()

    def _tell_of(self, damage: Damage, given: int, promised: int) -> None:
        if damage.parts:
            sentence = (
                f"{counted(damage.parts, 'part')} of the video '{self.name}' could not be decoded ({damage.reason})."
            )
            self.tell("lost", sentence, {"parts": damage.parts})
        if given < promised:
            sentence = f"The video '{self.name}' ends after {given} of the {promised} frames that its header promises."
            self.tell("lost", sentence, {"frames": given, "promised": promised})

    def _opened(self) -> AbstractContextManager[tuple[Any, Any]]:
        check_regular(self._path, "video")
        # Names such as "concat:a" mean something to FFmpeg; whole paths do not.
        return opened(os.path.abspath(self._path), f"The video '{self.name}'", options=LOCAL_ONLY)

    def _no_frame(self) -> Error:
        return Error(f"The video '{self.name}' has no frame that can be decoded.")


@dataclass(slots=True)
class Damage:
    """How many parts of a video could not be decoded, and what was said of the last."""

    parts: int = 0
    reason: str = ""

    def note(self, problem: Exception) -> None:
        self.parts, self.reason = self.parts + 1, said(problem)


class Numbers:
    """The number of a frame is how many packets of the video are shown before it; so a frame that is lost leaves its number free.

    Where reading begins in the middle, `first` is the number of the frame that is shown at `begin`. Frames of videos that do not
    say when they are shown are counted as they come.
    """

    def __init__(self, first: int = 0, begin: int | None = None) -> None:
        self._next, self._begin = first, begin
        self._waiting: list[int] = []

    def packet(self, shown_at: int | None) -> None:
        """Expect the frame of a packet."""
        if shown_at is not None and (self._begin is None or shown_at >= self._begin):
            heappush(self._waiting, shown_at)
        if len(self._waiting) > WAITING:
            heappop(self._waiting)
            self._next += 1

    def frame(self, shown_at: int | None) -> int | None:
        """Its number; None where it is shown before the beginning."""
        if shown_at is not None and self._begin is not None and shown_at < self._begin:
            return None
        if shown_at in self._waiting:
            while heappop(self._waiting) != shown_at:
                self._next += 1
        self._next += 1
        return self._next - 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where the frame `number` is. `seeks` are the times of key frames to begin at: the best first, none where there is no good one."""

    number: int
    shown_at: int | None
    seeks: tuple[int, ...]

    @property
    def at_the_end(self) -> bool:
        return self.shown_at is None


def find_place(container: Any, stream: Any, every: int, wanted: Callable[[int], bool]) -> Place | None:
    """The first frame that is wanted, from packets that are read as far as needed and not decoded. None where they do not say."""
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
            while number < len(times) and not wanted(number):
                number += every
            if len(times) > number + REORDERED:
                break
    except problems():
        pass  # It breaks off here too when it is decoded.
    if len(set(times)) != len(times):
        return None
    times.sort()
    if number >= len(times):
        return Place(number, None, ())
    before = sorted((key for key in keys if key <= times[number]), reverse=True)
    # Not the last key frame but one before it: some encoders refresh a picture bit by bit, and it is whole only one key frame later.
    # And earlier ones, as a seek in a container that has no index may lead behind what was asked for.
    return Place(number, times[number], tuple(before[1:8:3]))


def _frames_from(container: Any, stream: Any, place: Place, seek: int, damage: Damage) -> Iterator[tuple[int, Any]]:
    """Frames from `place` on; nothing where the seek leads behind it."""
    try:
        container.seek(seek, stream=stream)
    except problems():
        return
    yield from _frames(container, stream, Numbers(place.number, place.shown_at), damage, place.shown_at)


def _frames(
    container: Any, stream: Any, numbers: Numbers, damage: Damage, key_until: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Decoded frames with their numbers. With `key_until`, from a key frame that is shown until then; nothing where none comes."""
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
            except problems() as problem:
                damage.note(problem)
                continue
            for frame in decoded:
                number = numbers.frame(frame.pts)
                if number is not None:
                    yield number, frame
    except problems() as problem:
        damage.note(problem)
