"""A backbone from a CLIP or SigLIP of `transformers` that is loaded already."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from ..core.devices import run_in
from ..core.types import Error
from .clip import Tokenizer, TwoTowers
from .folders import family_of, image_side
from .preprocessing import fitting
from .shared import shared_copy


class ImageProcessor(Protocol):
    """What is asked of the image part of a processor."""

    def to_dict(self) -> dict[str, object]:
        """Its configuration, as the hub stores it."""


class Processor(Protocol):
    """What `AutoProcessor.from_pretrained` gives for such a model."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def image_processor(self) -> ImageProcessor: ...


def from_transformers(model: nn.Module, processor: Processor) -> TwoTowers:
    """A backbone over `model`, a CLIPModel or SiglipModel, on its own device and in its own precision, with its own processor.

    The model stays as it is, with its modes and gradients: its numbers are shared, and nothing is written to them. Do not train it
    while the backbone is in use. State files do not find such a backbone again: give it to `Adapter.restore`, where the weight hash
    decides. It is that of the same weights loaded by name, if they are in single precision.

    >>> from transformers import AutoProcessor, CLIPModel  # doctest: +SKIP
    >>> name = "openai/clip-vit-base-patch16"  # doctest: +SKIP
    >>> clip = from_transformers(CLIPModel.from_pretrained(name), AutoProcessor.from_pretrained(name))  # doctest: +SKIP
    """
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, nn.Module) or not isinstance(kind, str):
        raise Error(
            f"A {type(model).__name__} is not a model of transformers: give a CLIPModel or a SiglipModel, and any other image tower "
            "to `ostta.backbones.wrap`."
        )
    id = str(getattr(model, "name_or_path", "")) or type(model).__name__
    family = family_of(kind, id)
    for part in ("vision_model", "text_model", "logit_scale"):
        if not hasattr(model, part):
            raise Error(
                f"A {type(model).__name__} has no {part}: give the whole model with both towers, such as a CLIPModel."
            )
    for part in ("tokenizer", "image_processor"):
        if not hasattr(processor, part):
            raise Error(
                f"A {type(processor).__name__} has no {part}: give the model's whole processor, as `AutoProcessor.from_pretrained` "
                "loads it."
            )
    usual = family.usual_preprocessing(image_side(model))
    preprocessing = fitting(processor.image_processor.to_dict(), usual, "The image processor")
    copied, device, precision = shared_copy(model)
    backbone = family(id, copied, processor.tokenizer, preprocessing)
    backbone.restorable = False
    backbone.device, backbone.dtype = device, precision
    for tower in (backbone.vision, backbone.text):
        run_in(tower, device, precision)
    return backbone
