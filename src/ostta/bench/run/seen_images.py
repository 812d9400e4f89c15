"""The images of a run's stream once more, for pages that show some of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ...core.types import Error
from ...data.by_name import open_dataset
from ...data.dataset import Dataset
from ...data.names import parse_name
from ...streams import Sample, Stream
from ..own_code import sets_of
from ..result import Result
from ..scenario import FoolingScenario
from .compose import compose


@dataclass(frozen=True)
class SeenImages:
    """What stood at each place of a stream. `uncorrupted` is the set that corrupted images were made from, where it is known."""

    stream: Stream
    classes: tuple[str, ...]
    uncorrupted: Dataset | None = None

    def image(self, step: int) -> Image.Image:
        """The image as it was shown, from 0 on."""
        return self._sample(step).image

    def before_corruption(self, step: int) -> Image.Image | None:
        """The same without its corruption; None for undesired images, and where there is none."""
        sample = self._sample(step)
        known = self.uncorrupted is not None and sample.label >= 0
        return self.uncorrupted.image(sample.index) if known and self.uncorrupted is not None else None

    def _sample(self, step: int) -> Sample:
        return next(iter(self.stream.starting_at(step)))


def uncorrupted(desired: str, root: Path | None) -> Dataset | None:
    """The clean set of a corrupted one, where it can be opened."""
    name = parse_name(desired)
    try:
        return open_dataset(name.clean, root) if name.corrupted else None
    except Error:
        return None


def seen_images(result: Result, root: Path | None) -> SeenImages:
    """Of a finished run whose sets are named by the person who asks; an Error where the data are not what they were, or would have
    to be fetched. Where a result file alone names them, `compare.stream_images` asks first.
    """
    spec = result.spec
    away = next((name for name in sets_of(spec) if parse_name(name).kind == "hub"), None)
    if away is not None:
        raise Error(f"The images of '{away}' are on the hub, and a page fetches nothing.")
    if any(parse_name(name).kind == "features" for name in sets_of(spec)):
        raise Error("This stream has features alone, so there are no images to show.")
    if isinstance(spec.scenario, FoolingScenario):
        raise Error("Which images the stream of the scenario fooling has, only its model knows.")
    composed = compose(spec, root)
    stream = composed.stream
    if stream.hash != result.stream.hash or result.stream.identity not in (None, stream.identity):
        raise Error(f"The data of {spec.desired} and {spec.undesired} are no longer what this run saw.")
    return SeenImages(stream, composed.known_classes(spec))
