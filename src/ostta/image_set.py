"""`classify`: encode a whole set of images, fit once, and answer all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from . import backbones, sources
from .adapter import Adapter, load
from .core.types import Prediction
from .data.class_names import Classes
from .data.images import ImageSource
from .data.views import FeaturesOnly
from .lookahead import DEFAULT_AHEAD, image_of, look_ahead

ImageSet = Iterable[ImageSource | sources.Item] | str | os.PathLike[str] | torch.Tensor


@dataclass(frozen=True, slots=True)
class Classified:
    """The result of `ostta.classify`.

    predictions:  one per image, in the order of the images. None is undecided.
    adapter:      has learned from all images, and can go on with a stream.

    >>> found = ostta.classify("embedded", ["cat", "dog", "ship"], [image, "lost.jpg"])
    >>> [prediction.label or prediction.reason for prediction in found.predictions], found.adapter.steps
    (['cat', "There is no image file 'lost.jpg'."], 1)
    """

    predictions: list[Prediction]
    adapter: Adapter


def classify(backbone: backbones.BackboneSource, classes: Classes, images: ImageSet, **options: Any) -> Classified:
    """Classify a whole set of images at once. The order of the images does not matter.

    backbone, classes, options:  the arguments of `ostta.load`.
    images:  images as in `Adapter.stream`, one path (such as a folder) as in `ostta.sources.open`, or features [N, D].

    An image that cannot be read gives a prediction with the `reason`. Only features are kept in memory.

    >>> found = ostta.classify("embedded", ["cat", "dog"], [image] * 8)
    >>> found.predictions[0].best, found.predictions[0].undecided
    ('cat', False)
    """
    adapter = load(backbone, classes, **options)
    pipeline = adapter.pipeline
    origins: list[dict[str, Any]] = []
    pipeline.features_only(adapter.classifier[0])  # an Error now if the method needs more than features
    encoded: list[FeaturesOnly | str] = []
    if isinstance(images, torch.Tensor | np.ndarray) and images.ndim == 2:
        encoded, origins = [pipeline.features_only(row) for row in torch.as_tensor(images)], [{}] * len(images)
    else:
        opened = sources.open(images) if isinstance(images, str | os.PathLike) else images
        for image in look_ahead(adapter, opened, image_of, DEFAULT_AHEAD):
            encoded.append(image.encoded())
            origins.append(image.origin)
    answers = zip(pipeline.step_all(encoded), origins, strict=True)
    return Classified([replace(answer, **origin) for answer, origin in answers], adapter)
