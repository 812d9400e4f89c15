"""Images of a stream, and strips of images with the answers of one or two runs."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..bench.records import RunRecords, read_records
from ..bench.result import Result
from ..bench.spec import files_of, sets_of
from ..bench.stream import compose
from ..core.text import counted
from ..core.types import Error, compared
from ..data.by_name import open_dataset
from ..data.dataset import Dataset
from ..data.names import OWN, parse_name
from ..streams import Sample, Stream
from .parts import Strip, Thumbnail

# Largest side of an image in pixels.
LARGEST = 112


# Images in a strip: one line on a wide page, two on a narrow one.
MOST = 6


UNKNOWN = "unknown"


# Reads the images of a run's stream again; an Error says why that is not possible.
OpenImages = Callable[[Result], "Images"]


class Images(Protocol):
    """The images of a stream by position, and the names of its classes."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    def image(self, step: int) -> Image.Image: ...


@dataclass(frozen=True)
class NamedRun:
    """The records of a run, and its name on a page."""

    name: str
    run: RunRecords

    def answer_text(self, step: int, classes: Sequence[str]) -> str:
        """Return the answer with its score, and the threshold if there was one."""
        run = self.run
        answer = _class(int(run.index[step]), classes) if run.known[step] else UNKNOWN
        score, threshold = float(run.scores[step]), float(run.thresholds[step])
        return f"{self.name}: {answer}, {compared(score, threshold if math.isfinite(threshold) else None)}"


def drawn_records(path: Path) -> RunRecords:
    """Read the records of a run for charts and images; an Error if no score is finite."""
    records = read_records(path)
    if not records.has_scores:
        raise Error(f"None of the scores in the records {path} is finite.", code="records-unreadable")
    return records


def changes(before: NamedRun, after: NamedRun, images: Images, kinds: int = 4) -> Iterator[Strip]:
    """Yield one strip for each kind of change that has an image: the first two kinds are changed answers."""
    first, second = before.run.right, after.run.right
    selections = [
        (f"Wrong with {before.name}, right with {after.name}", ~first & second),
        (f"Right with {before.name}, wrong with {after.name}", first & ~second),
        ("Right with both", first & second),
        ("Wrong with both", ~first & ~second),
    ]
    for title, selected in selections[:kinds]:
        steps = np.flatnonzero(selected)
        if len(steps):
            yield pair_strip(title, steps, _spread(steps, before.run.labels), before, after, images)


def pair_strip(
    title: str, steps: NDArray[np.int64], chosen: Sequence[int], before: NamedRun, after: NamedRun, images: Images
) -> Strip:
    """Return a strip of the `chosen` images of `steps`, with the answers of two runs. Equal images are shown once."""
    thumbnails = {one.picture: one for one in (answered_thumbnail(step, (before, after), images) for step in chosen)}
    return Strip(f"{title}: {counted(len(steps), 'image')} of {len(before.run):,}", list(thumbnails.values()))


def stream_thumbnails(run: RunRecords, images: Images, desired: bool) -> Iterator[tuple[int, Thumbnail]]:
    """Yield images of one side, evenly spaced over the stream, with their steps."""
    for step in evenly_spaced(np.flatnonzero((run.labels >= 0) == desired)):
        truth = truth_of(step, run, images.classes)
        yield step, thumbnail(images.image(step), f"Image {step + 1}, {truth}", [truth])


def thumbnail(image: Image.Image, alt: str, lines: Iterable[str], right: bool | None = None) -> Thumbnail:
    """Return a small copy of an image: PNG for tiny images, so that every pixel stays, JPEG for others."""
    small = image.convert("RGB")
    small.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    tiny = max(small.size) <= LARGEST // 2
    buffer = io.BytesIO()
    small.save(buffer, "PNG" if tiny else "JPEG", **({} if tiny else {"quality": 82}))
    return Thumbnail(buffer.getvalue(), alt, tuple(lines), right, "image/png" if tiny else "image/jpeg")


def answered_thumbnail(step: int, runs: Sequence[NamedRun], images: Images) -> Thumbnail:
    """Return an image with the answers of some runs; its border shows whether that of the last run is right."""
    truth = truth_of(step, runs[0].run, images.classes)
    answers = [run.answer_text(step, images.classes) for run in runs]
    alt = f"Image {step + 1} of the stream, {truth}; {'; '.join(answers)}"
    return thumbnail(images.image(step), alt, [truth, *answers], bool(runs[-1].run.right[step]))


def truth_of(step: int, run: RunRecords, classes: Sequence[str]) -> str:
    """Return the class of an image in words; unknown images show none of the classes."""
    label = int(run.labels[step])
    return _class(label, classes) if label >= 0 else "none of the classes"


def _class(number: int, classes: Sequence[str]) -> str:
    """Return the name of a class, or its number if the class list does not have it."""
    return classes[number] if 0 <= number < len(classes) else f"class {number}"


def _spread(steps: NDArray[np.int64], labels: NDArray[np.int64]) -> list[int]:
    """Select desired and undesired images, in the order of the stream."""
    known, unknown = steps[labels[steps] >= 0], steps[labels[steps] < 0]
    chosen = evenly_spaced(known, MOST - min(len(unknown), MOST // 2))
    return sorted(chosen + evenly_spaced(unknown, MOST - len(chosen)))


def evenly_spaced(steps: NDArray[np.int64], most: int = MOST) -> list[int]:
    """Return at most `most` steps, evenly spaced from the first to the last."""
    if not len(steps) or most < 1:
        return []
    places = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).astype(np.int64))
    return [int(step) for step in steps[places]]


# --- images of a finished run ---
@dataclass(frozen=True)
class SeenImages:
    """The images of a stream by step.

    `uncorrupted`: the data set from which corrupted images were made, if it is known.
    """

    stream: Stream
    classes: tuple[str, ...]
    uncorrupted: Dataset | None = None

    def image(self, step: int) -> Image.Image:
        """Return the image of a step, from 0 on."""
        return self._sample(step).image

    def before_corruption(self, step: int) -> Image.Image | None:
        """Return the image without its corruption; None for undesired images and images without corruption."""
        sample = self._sample(step)
        if self.uncorrupted is None or sample.label < 0 or sample.source == self.uncorrupted.name:
            return None
        return self.uncorrupted.image(sample.index)

    def _sample(self, step: int) -> Sample:
        return next(iter(self.stream.starting_at(step)))


def uncorrupted(desired: str, root: Path | None) -> Dataset | None:
    """Open the clean version of a corrupted data set; None if it cannot be opened."""
    name = parse_name(desired)
    try:
        return open_dataset(name.clean, root) if name.corrupted else None
    except Error:
        return None


def seen_images(result: Result, root: Path | None) -> SeenImages:
    """Return the images of a finished run whose data sets the user named.

    An Error if the data have changed or would have to be downloaded. `stream_images` is for data sets that only a
    result file names.
    """
    spec = result.spec
    for name in sets_of(spec):
        if parse_name(name).kind == "hub":
            raise Error(f"The images of '{name}' are on the hub, and pages download nothing.", code="images-missing")
        if parse_name(name).kind == "features":
            raise Error("This stream has features alone, so there are no images to show.", code="images-missing")
    if spec.scenario.kind == "fooling":
        raise Error(
            "The images of the scenario fooling depend on its model, which pages do not load.", code="images-missing"
        )
    composed = compose(spec, root)
    stream = composed.stream
    if stream.hash != result.stream.hash or result.stream.identity not in (None, stream.identity):
        raise Error(
            f"The data of {spec.desired} and {spec.undesired} are no longer what this run saw.", code="stream-changed"
        )
    return SeenImages(stream, composed.classes)


def stream_images(result: Result, root: Path | None, opened: Collection[str] = ()) -> SeenImages:
    """Return the images of a finished run. Paths and code that only the file names must be in `opened`."""
    spec = result.spec
    for name in (*files_of(spec), *(name for name in sets_of(spec) if parse_name(name).kind in OWN)):
        if name not in opened:
            raise Error(
                f"Only the result file names {name!r}: `--open {name}` allows it to be read, if you trust it.",
                code="consent-missing",
            )
    return seen_images(result, root)
