"""The evaluation loop, which all methods share: stream -> adapter -> records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PIL import Image

from ..adapter import Adapter
from ..core.types import Prediction
from ..lookahead import look_ahead
from ..streams import Sample
from . import metrics
from .records import Records

__all__ = ["Records", "Running", "evaluate"]


class Running:
    """Accuracies so far, updated image by image for the progress line."""

    def __init__(self) -> None:
        self._right = self._desired = self._rejected = self._undesired = 0

    def add(self, label: int, prediction: Prediction) -> None:
        if label >= 0:
            self._desired += 1
            self._right += prediction.known and prediction.index == label
        else:
            self._undesired += 1
            self._rejected += not prediction.known

    @property
    def hm(self) -> float | None:
        if not self._desired or not self._undesired:
            return None
        return metrics.harmonic_mean(100 * self._right / self._desired, 100 * self._rejected / self._undesired)


def _image_of(sample: Sample) -> Image.Image:
    return sample.image


def evaluate(
    adapter: Adapter,
    stream: Iterable[Sample],
    watch: Callable[[int, float | None], None] | None = None,
    records: Records | None = None,
    step: Callable[[Sample], Prediction] | None = None,
    ahead: int = 1,
) -> Records:
    """Step `adapter` through `stream` and return the records. `watch(images, HM)` is called after every image.

    `records` are the records of earlier images of a resumed stream, to which the new ones are appended. `step` replaces
    the step on the image of a sample. `ahead` images are encoded in one batch, as in `Adapter.stream`.

    >>> evaluate(adapter, [Sample(image, 0, "my photos", number) for number in range(2)])
    Records(2 images: 2 desired, 0 undesired; 2 accepted, 0 updates)
    """
    records = Records() if records is None else records
    running = Running()
    for label, prediction in zip(records.label, records.predictions, strict=True):
        running.add(label, prediction)
    for upcoming in look_ahead(adapter, stream, _image_of, ahead, position=len(records)):
        sample = upcoming.item
        prediction = upcoming.step() if step is None else step(sample)
        records.add(sample, prediction)
        running.add(sample.label, prediction)
        if watch is not None:
            watch(len(records), running.hm)
    return records
