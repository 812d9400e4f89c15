"""A backbone from a model of `open_clip` that is loaded already, known by what it can do and not by its class.

`open_clip` itself is never imported: any model with `visual`, `encode_image`, `encode_text` and `logit_scale` will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import nn

from ..core.devices import own_precision, run_in
from ..core.types import Error, Preprocessing
from .clip import BATCH, Siglip
from .preprocessing import clip_preprocessing, parse
from .prompts import ensemble, fill, refuse_special_tokens
from .protocol import DEFAULT_TEMPLATES
from .shared import shared_copy
from .towers import initial_weights, weight_hash

# What the tokenizers of this family read as a sign.
SPECIAL_TOKENS = ("<start_of_text>", "<end_of_text>", "<|startoftext|>", "<|endoftext|>")
RESAMPLES = {"bilinear": 2, "bicubic": 3}
# Two features of one image must have this cosine, at least.
ALIKE = 0.999
GREY = 150


class VisualTower(nn.Module):
    """The image tower. Some give tokens beside the features, which come first."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        given = self.visual(pixels)
        features: torch.Tensor = given[0] if isinstance(given, tuple | list) else given
        return features


class SpokenTower(nn.Module):
    """The text tower: all of the model but its image tower."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        model: Any = self.model
        features: torch.Tensor = model.encode_text(tokens)
        return features


class OpenClip:
    """What `from_open_clip` returns."""

    feature_width: int
    id = "open_clip"
    trainable = True
    restorable = False
    remark = ""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Callable[[list[str]], torch.Tensor],
        preprocessing: Preprocessing,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`model` is a copy whose structure may be taken apart."""
        parts: Any = model
        self.logit_scale = float(parts.logit_scale.detach().float().exp())
        # A bias is the mark of a training with sigmoids.
        self.defaults: Mapping[str, Mapping[str, object]] = (
            Siglip.defaults if getattr(parts, "logit_bias", None) is not None else {}
        )
        self.vision: nn.Module = VisualTower(parts.visual)
        self.preprocessing, self._tokenizer = preprocessing, tokenizer
        # Neither the image tower nor the temperature is a part of the text tower.
        parts.visual = nn.Identity()
        for name in ("logit_scale", "logit_bias"):
            if parts._parameters.get(name) is not None:
                setattr(parts, name, parts._parameters.pop(name).detach())
        self.text: nn.Module = SpokenTower(model)
        self.device, self.dtype = device, dtype
        for tower in (self.vision, self.text):
            run_in(tower.eval(), device, dtype)
        self._weights = initial_weights(vision=self.vision, text=self.text)

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return []

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Raw features of the prompts, in the order of `fill`; with graph where the text tower's weights carry one."""
        prompts = fill(classes, templates)
        refuse_special_tokens(prompts, SPECIAL_TOKENS, self.id)
        tokens, longer = self._tokens(prompts), self._tokens([f"{prompt} and more" for prompt in prompts])
        # These tokenizers cut a long text without a word: then more text makes no difference.
        cut = (tokens == longer).all(1).nonzero().flatten().tolist() if tokens.shape == longer.shape else []
        if cut:
            name = classes[cut[0] * len(classes) // len(prompts)]
            raise Error(
                f"The class {name!r} is too long for {self.id}: its prompt does not fit into the {tokens.shape[1]} tokens that the "
                "text tower reads."
            )
        with own_precision(self.text):
            rows = [self.text(batch.to(self.device)) for batch in torch.split(tokens, BATCH)]
        return torch.cat(rows).float()

    def _tokens(self, prompts: list[str]) -> torch.Tensor:
        tokens = self._tokenizer(prompts)
        if not isinstance(tokens, torch.Tensor) or tokens.ndim != 2 or len(tokens) != len(prompts):
            found = list(tokens.shape) if isinstance(tokens, torch.Tensor) else type(tokens).__name__
            raise Error(
                f"The tokenizer gives {found} for {len(prompts)} texts: it must give a tensor [{len(prompts)}, L]."
            )
        return tokens

    @torch.no_grad()
    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        return ensemble(self.embed(classes, templates), len(classes))

    @torch.no_grad()
    def read(self, prompts: Sequence[str]) -> torch.Tensor:
        """Unit text embeddings of whole prompts."""
        return ensemble(self.embed(prompts, ("{}",)), len(prompts))


def from_open_clip(
    model: nn.Module,
    tokenizer: Callable[[list[str]], torch.Tensor],
    transform: Callable[[Image.Image], torch.Tensor],
) -> OpenClip:
    """A backbone over a model of `open_clip`, with its tokenizer and its transform for inference.

    The model stays as it is, with its modes and gradients: its numbers are shared, and nothing is written to them. Do not train it
    while the backbone is in use. State files do not find such a backbone again: give it to `Adapter.restore`, where the weight hash
    decides.

    >>> import open_clip  # doctest: +SKIP
    >>> model, _, transform = open_clip.create_model_and_transforms("RN50", pretrained="openai")  # doctest: +SKIP
    >>> backbone = from_open_clip(model, open_clip.get_tokenizer("RN50"), transform)  # doctest: +SKIP
    """
    for part in ("visual", "encode_image", "encode_text", "logit_scale"):
        if not isinstance(model, nn.Module) or not hasattr(model, part):
            raise Error(f"A {type(model).__name__} is not a model of open_clip: it has no {part}.")
    if not callable(tokenizer):
        raise Error(f"A {type(tokenizer).__name__} is not a tokenizer of open_clip: it cannot be called with texts.")
    preprocessing = preprocessing_of(transform)
    copied, device, precision = shared_copy(model)
    whole, _, _ = shared_copy(model)
    backbone = OpenClip(copied, tokenizer, preprocessing, device, precision)
    backbone.feature_width = _width(backbone, whole)
    return backbone


@torch.no_grad()
def _width(backbone: OpenClip, whole: nn.Module) -> int:
    """The length of a feature; an Error unless both towers are what the model itself makes of images and texts."""
    model: Any = whole
    size = backbone.preprocessing.image_size
    pixels = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(backbone.device)
    try:
        with own_precision(backbone.vision):
            features, expected = backbone.vision(pixels).float(), model.encode_image(pixels).float()
        text = backbone.embed(["thing"])
    except Error:
        raise
    except Exception as problem:  # somebody else's module: anything may come
        reason = " ".join(str(problem).split())[:200].rstrip(".")
        raise Error(f"The model cannot be run on an image of {size} pixels and a text: {reason}.") from problem
    if features.shape != expected.shape or features.shape != text.shape:
        raise Error(
            f"The model gives {list(expected.shape)} for an image, {list(features.shape)} of it in `visual`, and {list(text.shape)} "
            "for a text: all three must be [1, D]."
        )
    if not float(nn.functional.cosine_similarity(features, expected)) > ALIKE:
        raise Error(
            "`encode_image` of the model does more than `visual`, its image tower: such a model is not supported."
        )
    return text.shape[1]


def preprocessing_of(transform: Callable[[Image.Image], torch.Tensor]) -> Preprocessing:
    """What a transform of `open_clip` for inference does, read from its steps and checked on a grey image."""
    steps: dict[str, Any] = {type(step).__name__: step for step in getattr(transform, "transforms", ())}
    if not {"Resize", "Normalize"} <= set(steps) or any(name.startswith(("Random", "CenterCropOr")) for name in steps):
        found = ", ".join(steps) or f"a {type(transform).__name__} without steps"
        raise Error(
            f"The transform cannot be followed: it must be open_clip's for inference, with Resize, CenterCrop and Normalize; it has {found}."
        )
    resize, normalize, crop = steps["Resize"], steps["Normalize"], steps.get("CenterCrop")
    side = resize.size[0] if isinstance(resize.size, tuple | list) and len(resize.size) == 1 else resize.size
    config: dict[str, Any] = {
        "size": {"shortest_edge": side} if isinstance(side, int) else {"height": side[0], "width": side[1]},
        "image_mean": list(normalize.mean),
        "image_std": list(normalize.std),
    }
    if crop is not None:
        config["crop_size"] = (
            crop.size if isinstance(crop.size, int) else {"height": crop.size[0], "width": crop.size[-1]}
        )
    resample = str(getattr(resize.interpolation, "value", resize.interpolation))
    try:
        config["resample"] = RESAMPLES[resample]
        preprocessing = parse(config, clip_preprocessing(224))
        seen = transform(Image.new("RGB", (preprocessing.image_size * 2, preprocessing.image_size), (GREY,) * 3))
    except (ValueError, TypeError, KeyError) as problem:
        raise Error(f"The transform cannot be followed: {problem}.") from problem
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    expected = ((GREY / 255 - mean) / std).expand(3, preprocessing.image_size, preprocessing.image_size)
    if seen.shape != expected.shape or not torch.allclose(seen.float(), expected, atol=1e-3):
        raise Error(
            f"The transform does more than its steps say: of a grey image it makes {list(seen.shape)}, and not "
            f"{list(expected.shape)} with the mean and deviation of its Normalize."
        )
    return preprocessing
