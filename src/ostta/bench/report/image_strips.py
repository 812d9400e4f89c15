"""Real images of a stream: what two runs said of them, where they agree, and where the second changed sides."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...core.types import compared
from ...core.words import counted
from ...pages import Shot, Strip
from .run_columns import RunColumns

# Pixels of a side at most; smaller images stay as they are.
LARGEST = 112
# Images of one kind: one line on a wide page, two on a narrow one.
MOST = 6
DONT_KNOW = "I don't know"


class Images(Protocol):
    """The images of a stream by their places, and the names of its classes."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    def image(self, step: int) -> Image.Image: ...


@dataclass(frozen=True)
class Judged:
    """A run by the name that a page has for it, and what it said of each image."""

    name: str
    run: RunColumns

    @property
    def right(self) -> NDArray[np.bool_]:
        """A desired image is right where it is accepted with its class, an undesired one where it is rejected."""
        run = self.run
        return np.where(run.labels >= 0, run.known & (run.index == run.labels), ~run.known)

    def words(self, step: int, classes: Sequence[str]) -> str:
        """The answer with the score, beside the threshold where there was one."""
        run = self.run
        answer = _class(int(run.index[step]), classes) if run.known[step] else DONT_KNOW
        score, threshold = float(run.scores[step]), float(run.thresholds[step])
        return f"{self.name}: {answer}, {compared(score, threshold if math.isfinite(threshold) else None)}"


def changed_sides(before: Judged, after: Judged) -> dict[str, NDArray[np.int64]]:
    """The places of the stream by how the second run changed what the first said, the changes first."""
    first, second = before.right, after.right
    return {
        f"Wrong with {before.name}, right with {after.name}": np.flatnonzero(~first & second),
        f"Right with {before.name}, wrong with {after.name}": np.flatnonzero(first & ~second),
        "Right with both": np.flatnonzero(first & second),
        "Wrong with both": np.flatnonzero(~first & ~second),
    }


def changes(before: Judged, after: Judged, images: Images, kinds: int = 4) -> Iterator[Strip]:
    """One strip for each kind that has an image."""
    total = len(before.run)
    for title, steps in list(changed_sides(before, after).items())[:kinds]:
        if len(steps):
            chosen = _spread(steps, before.run.labels)
            # A stream may show an image several times: once is enough here.
            shots = {one.picture: one for one in (_shot(step, before, after, images) for step in chosen)}
            yield Strip(f"{title}: {counted(len(steps), 'image')} of {total:,}", list(shots.values()))


def stream_shots(run: RunColumns, images: Images, desired: bool, most: int = MOST) -> Iterator[tuple[int, Shot]]:
    """Images of one side, evenly through the stream, with their places."""
    steps = np.flatnonzero((run.labels >= 0) == desired)
    for step in evenly(steps, most):
        truth = truth_of(step, run, images.classes)
        yield step, shot(images.image(step), f"Image {step + 1}, {truth}", [truth])


def shot(image: Image.Image, alt: str, lines: Iterable[str], right: bool | None = None) -> Shot:
    """A small copy: of small images every pixel, as PNG, of large ones a JPEG."""
    small = image.convert("RGB")
    small.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    tiny = max(small.size) <= LARGEST // 2
    buffer = io.BytesIO()
    small.save(buffer, "PNG" if tiny else "JPEG", **({} if tiny else {"quality": 82}))
    return Shot(buffer.getvalue(), alt, tuple(lines), right, "image/png" if tiny else "image/jpeg")


def _shot(step: int, before: Judged, after: Judged, images: Images) -> Shot:
    truth = truth_of(step, before.run, images.classes)
    answers = [judged.words(step, images.classes) for judged in (before, after)]
    alt = f"Image {step + 1} of the stream, {truth}; {'; '.join(answers)}"
    return shot(images.image(step), alt, [truth, *answers], bool(after.right[step]))


def truth_of(step: int, run: RunColumns, classes: Sequence[str]) -> str:
    """What an image shows: its class, or none of them."""
    label = int(run.labels[step])
    return _class(label, classes) if label >= 0 else "none of the classes"


def _class(number: int, classes: Sequence[str]) -> str:
    """Records may have been changed, or be of a class list that was longer."""
    return classes[number] if 0 <= number < len(classes) else f"class {number}"


def _spread(steps: NDArray[np.int64], labels: NDArray[np.int64]) -> list[int]:
    """Some desired and some undesired ones, in the order of the stream."""
    known, unknown = steps[labels[steps] >= 0], steps[labels[steps] < 0]
    wanted = MOST - min(len(unknown), MOST // 2)
    chosen = evenly(known, wanted)
    return sorted(chosen + evenly(unknown, MOST - len(chosen)))


def evenly(steps: NDArray[np.int64], most: int = MOST) -> list[int]:
    """At most so many of them, from the first to the last."""
    if not len(steps) or most < 1:
        return []
    places = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).astype(np.int64))
    return [int(step) for step in steps[places]]
