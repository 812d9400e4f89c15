"""Backbones from loaded `open_clip` models.

`open_clip` is not imported: any model with `visual`, `encode_image`, `encode_text` and `logit_scale` is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import nn

from ..core.errors import translate_errors
from ..core.overlay import own_precision, run_in
from ..core.types import Error, Preprocessing
from .clip import BATCH, EncodesCompletePrompts
from .preprocessing import clip_preprocessing, parse_preprocessing
from .prompts import fill, prompt_too_long, refuse_special_tokens
from .protocol import DEFAULT_TEMPLATES
from .siglip import SIGMOID_DEFAULTS
from .towers import initial_weights, shared_copy

# Special tokens of the `open_clip` tokenizers.
SPECIAL_TOKENS = ("<start_of_text>", "<end_of_text>", "<|startoftext|>", "<|endoftext|>")
RESAMPLES = {"bilinear": 2, "bicubic": 3}
# Minimum cosine similarity between the features of `visual` and `encode_image`.
MIN_SIMILARITY = 0.999
GREY = 150


class VisualTower(nn.Module):
    """Image tower that returns only the features. Some models return a tuple of features and tokens."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        output = self.visual(pixels)
        features: torch.Tensor = output[0] if isinstance(output, tuple | list) else output
        return features


class EncodeTextTower(nn.Module):
    """Text tower: the model without its image tower."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        model: Any = self.model
        features: torch.Tensor = model.encode_text(tokens)
        return features


class OpenClip(EncodesCompletePrompts):
    """Backbone returned by `from_open_clip`."""

    feature_width: int
    id = "open_clip"
    restorable = False

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Callable[[list[str]], torch.Tensor],
        preprocessing: Preprocessing,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Take ownership of `model`, a copy whose submodules may be replaced."""
        parts: Any = model
        self.logit_scale = float(parts.logit_scale.detach().float().exp())
        # Models trained with a sigmoid loss have a logit bias.
        self.defaults: Mapping[str, Mapping[str, object]] = (
            SIGMOID_DEFAULTS if getattr(parts, "logit_bias", None) is not None else {}
        )
        self.vision: nn.Module = VisualTower(parts.visual)
        self.preprocessing, self._tokenizer = preprocessing, tokenizer
        # Remove the image tower and the temperature, so that they are not part of the text tower.
        parts.visual = nn.Identity()
        for name in ("logit_scale", "logit_bias"):
            if parts._parameters.get(name) is not None:
                setattr(parts, name, parts._parameters.pop(name).detach())
        self.text: nn.Module = EncodeTextTower(model)
        self.device, self.dtype = device, dtype
        for tower in (self.vision, self.text):
            run_in(tower.eval(), device, dtype)
        self._weights = initial_weights(vision=self.vision, text=self.text)

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        prompts = fill(classes, templates)
        refuse_special_tokens(prompts, SPECIAL_TOKENS, self.id)
        tokens, longer = self._tokens(prompts), self._tokens([f"{prompt} and more" for prompt in prompts])
        # These tokenizers truncate silently, so a prompt is too long if appended text does not change its tokens.
        cut = (tokens == longer).all(1).nonzero().flatten().tolist() if tokens.shape == longer.shape else []
        if cut:
            raise prompt_too_long(self.id, classes, len(prompts), cut[0], tokens.shape[1])
        with own_precision(self.text):
            rows = [self.text(batch.to(self.device)) for batch in torch.split(tokens, BATCH)]
        return torch.cat(rows).float()

    def _tokens(self, prompts: list[str]) -> torch.Tensor:
        tokens = self._tokenizer(prompts)
        if not isinstance(tokens, torch.Tensor) or tokens.ndim != 2 or len(tokens) != len(prompts):
            shape = list(tokens.shape) if isinstance(tokens, torch.Tensor) else type(tokens).__name__
            raise Error(
                f"The tokenizer returns {shape} for {len(prompts)} texts: it must return a tensor [{len(prompts)}, L].",
                code="tokenizer-mismatch",
            )
        return tokens


def from_open_clip(
    model: nn.Module,
    tokenizer: Callable[[list[str]], torch.Tensor],
    transform: Callable[[Image.Image], torch.Tensor],
) -> OpenClip:
    """Build a backbone from an `open_clip` model, its tokenizer and its inference transform.

    The backbone shares the weights of the model. The model is not modified. Do not train the model while the backbone
    is in use. The backbone cannot be loaded from a state file: pass it to `Adapter.restore`, which compares the weight
    hash.

    >>> import open_clip  # doctest: +SKIP
    >>> model, _, transform = open_clip.create_model_and_transforms("RN50", pretrained="openai")  # doctest: +SKIP
    >>> backbone = from_open_clip(model, open_clip.get_tokenizer("RN50"), transform)  # doctest: +SKIP
    """
    for part in ("visual", "encode_image", "encode_text", "logit_scale"):
        if not isinstance(model, nn.Module) or not hasattr(model, part):
            raise Error(
                f"A {type(model).__name__} is not a model of open_clip: it has no {part}.", code="model-unsupported"
            )
    if not callable(tokenizer):
        raise Error(
            f"A {type(tokenizer).__name__} is not a tokenizer of open_clip: it is not callable.",
            code="model-unsupported",
        )
    preprocessing = preprocessing_of(transform)
    copied, device, precision = shared_copy(model)
    whole, _, _ = shared_copy(model)
    backbone = OpenClip(copied, tokenizer, preprocessing, device, precision)
    backbone.feature_width = _width(backbone, whole)
    return backbone


@torch.no_grad()
def _width(backbone: OpenClip, whole: nn.Module) -> int:
    """Return the feature width. Raise an Error if the towers and the model compute different features."""
    model: Any = whole
    size = backbone.preprocessing.image_size
    pixels = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(backbone.device)
    message = f"The model fails on an image of {size} pixels and a text: {{reason}}."
    with translate_errors("model-unsupported", message):
        with own_precision(backbone.vision):
            features, expected = backbone.vision(pixels).float(), model.encode_image(pixels).float()
        text = backbone.embed(["thing"])
    if features.shape != expected.shape or features.shape != text.shape:
        raise Error(
            f"The model returns {list(expected.shape)} for an image, `visual` {list(features.shape)}, and the text "
            f"tower {list(text.shape)}: all three must be [1, D].",
            code="model-unsupported",
        )
    if not float(nn.functional.cosine_similarity(features, expected)) > MIN_SIMILARITY:
        raise Error(
            "`encode_image` of the model returns other features than its image tower `visual`, which is not supported.",
            code="model-unsupported",
        )
    return text.shape[1]


def preprocessing_of(transform: Callable[[Image.Image], torch.Tensor]) -> Preprocessing:
    """Read the preprocessing from the steps of an `open_clip` transform and verify it on a grey image."""
    steps: dict[str, Any] = {type(step).__name__: step for step in getattr(transform, "transforms", ())}
    if not {"Resize", "Normalize"} <= set(steps) or any(name.startswith(("Random", "CenterCropOr")) for name in steps):
        actual = ", ".join(steps) or f"a {type(transform).__name__} without steps"
        raise Error(
            f"The transform has the steps {actual}: give the transform of open_clip for inference, with Resize, "
            "CenterCrop and Normalize.",
            code="preprocessing-invalid",
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
    message = "The transform is not supported: {reason}."
    with translate_errors("preprocessing-invalid", message, ValueError, TypeError, KeyError):
        config["resample"] = RESAMPLES[resample]
        preprocessing = parse_preprocessing(config, clip_preprocessing(224))
        seen = transform(Image.new("RGB", (preprocessing.image_size * 2, preprocessing.image_size), (GREY,) * 3))
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    expected = ((GREY / 255 - mean) / std).expand(3, preprocessing.image_size, preprocessing.image_size)
    if seen.shape != expected.shape or not torch.allclose(seen.float(), expected, atol=1e-3):
        raise Error(
            f"The transform returns {list(seen.shape)} for a grey image, which differs from its steps, expected to "
            f"return {list(expected.shape)} with the mean and the standard deviation of Normalize.",
            code="preprocessing-invalid",
        )
    return preprocessing
