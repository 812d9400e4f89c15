"""Encode the next images of a stream in one batch, and decide them one after the other.

An image tower needs less time per image for a batch than for a single image. If a step needs only the features of an
image under the frozen tower (`Adapter.features_suffice`), the features can be computed before the previous images are
decided. The decisions stay in order, and every score stays within 1e-5 of its value without look-ahead.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from PIL import Image
from torch import nn

from .core.checks import shown
from .core.overlay import answering, encode
from .core.types import Error, ImageError, Prediction
from .data.images import ImageFeatures, ImageSource, read_image
from .data.views import FeaturesOnly, canonical
from .sources import Item as SourceItem
from .sources import Source
from .step import unseen_prediction

if TYPE_CHECKING:
    from .adapter import Adapter

Item = TypeVar("Item")

# Default batch size.
DEFAULT_AHEAD = 16
MAX_AHEAD = 1_024
# Largest distance between the unit features of an image encoded in a batch and alone. It bounds the change of a cosine.
TOLERANCE = 1e-5

# Whether a batch gave the same features as a single image, by image tower.
_batches_agree: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


class UpcomingImage(Generic[Item]):
    """An image that has not been decided yet.

    `picture` is the decoded image if `step` was the first to read it.
    """

    def __init__(self, adapter: Adapter, item: Item, image_of: Callable[[Item], ImageSource]) -> None:
        self.item = item
        self.picture: Image.Image | None = None
        self._adapter, self._image_of = adapter, image_of
        self._problem: Exception | None = None
        # The canonical view [3, H, W], its unit features [D], and the time to compute both.
        self.pixels: torch.Tensor | None = None
        self.features: torch.Tensor | None = None
        self.seconds = 0.0

    def step(self) -> Prediction:
        """Decide and adapt as `Adapter.step` does; an image that cannot be read raises its Error here."""
        if self._problem is not None:
            raise self._problem
        if self.pixels is not None and self.features is not None:
            pipeline = self._adapter.pipeline
            views = pipeline.views(self.pixels[None])
            views.features = self.features
            return pipeline.step(views, self.seconds)
        image = self._read()
        self.picture = None if isinstance(image, ImageFeatures) else image
        return self._adapter.step(image)

    def encoded(self) -> FeaturesOnly | str:
        """Return the features of the image without deciding it; the reason if it cannot be read."""
        pipeline = self._adapter.pipeline
        try:
            if self._problem is not None:
                raise self._problem
            if self.features is not None:
                return FeaturesOnly(self.features)
            with answering():
                return FeaturesOnly(pipeline.encode(pipeline.read(self._read()), None))
        except ImageError as problem:
            return str(problem)

    def answer(self) -> Prediction:
        """Return the prediction of `step` with the name, time and frame of the item.

        An image that cannot be read gives a prediction with the reason.
        """
        try:
            prediction = self.step()
        except ImageError as problem:
            prediction = unseen_prediction(str(problem))
        return replace(prediction, **self.origin)

    @property
    def origin(self) -> dict[str, Any]:
        """Name, time and frame of the item of a source; empty for any other item."""
        item = self.item
        return {"name": item.name, "time": item.time, "frame": item.frame} if isinstance(item, SourceItem) else {}

    def prepare(self) -> None:
        """Read the image and compute its canonical view, unless it is already encoded; `step` raises any Error."""
        try:
            picture = self._read()
            if isinstance(picture, ImageFeatures):
                return
            began = self._adapter.pipeline.clock()
            self.pixels = canonical(picture, self._adapter.backbone.preprocessing)
            self.seconds = self._adapter.pipeline.clock() - began
        except Exception as problem:
            self._problem = problem

    def _read(self) -> Image.Image:
        image = self._image_of(self.item)
        if isinstance(image, ImageFeatures):
            return image
        return read_image(image, self._adapter.resolved.adapter.max_megapixels)


def look_ahead(
    adapter: Adapter, items: Iterable[Item], image_of: Callable[[Item], ImageSource], ahead: int, position: int = 0
) -> Iterator[UpcomingImage[Item]]:
    """Yield the images of `items` in order, encoded in batches of at most `ahead`. The caller calls `step` of each.

    `position` is the number of images that came before. Batches end at multiples of `ahead`, so a resumed stream gives
    bit-equal results to one that was never stopped. If `why_not` returns a reason, nothing is encoded ahead. Exceptions
    of `items` are raised after the images before them.
    """
    if ahead == 1 or why_not(adapter) is not None:
        for item in items:
            yield UpcomingImage(adapter, item, image_of)
        return
    remaining, ending, first = iter(items), None, position % ahead
    while ending is None:
        batch: list[UpcomingImage[Item]] = []
        while first + len(batch) < ahead:
            try:
                image = UpcomingImage(adapter, next(remaining), image_of)
            except Exception as problem:
                ending = problem
                break
            image.prepare()
            batch.append(image)
        _encode(adapter, batch, first)
        yield from batch
        first = 0
    if not isinstance(ending, StopIteration):
        raise ending


def why_not(adapter: Adapter) -> str | None:
    """Return why an adapter cannot encode images ahead, as a clause; None if it can."""
    if not adapter.features_suffice:
        return f"{adapter.method_name} needs more of an image than its features under the frozen image tower"
    if adapter.resolved.adapter.precision != "single" or adapter.backbone.dtype != torch.float32:
        return "a batch in half precision is rounded differently from single images"
    if not _batches_agree.get(adapter.backbone.vision, True):
        return f"the image tower of {adapter.backbone.id} gives an image other features in a batch than alone"
    return None


def image_of(image: ImageSource | SourceItem) -> ImageSource:
    """Return the image of an item of a source; any other object is returned unchanged."""
    return image.require_image() if isinstance(image, SourceItem) else image


def batch_size(images: object, ahead: int | None) -> int:
    """Return the number of images that are encoded together: `ahead`, or the default if it is None.

    Images of a source that may block are not encoded together, so the result is 1. An iterator that is not a source
    may read from a camera, so it is read ahead only on request.

    >>> batch_size(["cat.png", "dog.png"], None), batch_size(iter(["cat.png"]), None), batch_size(iter(["cat.png"]), 4)
    (16, 1, 4)
    """
    if ahead is not None and (isinstance(ahead, bool) or not isinstance(ahead, int) or not 1 <= ahead <= MAX_AHEAD):
        raise Error(f"`ahead` is a whole number from 1 to {MAX_AHEAD:,}, not {shown(ahead)}.", code="option-invalid")
    if isinstance(images, Source):
        return 1 if images.waits else ahead or DEFAULT_AHEAD
    return ahead or (DEFAULT_AHEAD if isinstance(images, Sized) else 1)


def _encode(adapter: Adapter, batch: Sequence[UpcomingImage[Item]], first: int) -> None:
    """Set the features of a batch by one pass of the image tower; set none if the tower cannot process a batch.

    `first` is the position of the first image. The positions before it and those of images that cannot be read are
    filled with zeros, because the last bits of a row of a matrix product depend on its position and on the number of
    rows, but not on the other rows.
    """
    vision = adapter.backbone.vision
    images = [(first + place, image, image.pixels) for place, image in enumerate(batch) if image.pixels is not None]
    if not images or first + len(batch) == 1 or not _batches_agree.get(vision, True):
        return
    began = adapter.pipeline.clock()
    try:
        with answering():
            pixels = torch.zeros((first + len(batch), *images[0][2].shape))
            for place, _, own in images:
                pixels[place] = own
            pixels = pixels.to(adapter.device)
            features = encode(vision, pixels)
            took = (adapter.pipeline.clock() - began) / len(images)
            if vision not in _batches_agree:
                last = images[-1][0]
                _batches_agree[vision] = _agrees(features, encode(vision, pixels[last : last + 1]), last)
    except Exception:  # a custom tower may not support batches, and a device may lack the memory for one
        _batches_agree[vision] = False
    if _batches_agree[vision]:
        for place, image, _ in images:
            image.pixels, image.features, image.seconds = pixels[place], features[place], image.seconds + took


def _agrees(batch: torch.Tensor, alone: torch.Tensor, place: int) -> bool:
    """Return whether the image at a position of the batch has the same features as alone."""
    if batch.ndim != 2 or place >= len(batch) or alone.shape != (1, batch.shape[1]):
        return False
    # Features that are not finite have no distance and give no information about batches.
    return not bool(torch.linalg.vector_norm(batch[place] - alone[0]) > TOLERANCE)
