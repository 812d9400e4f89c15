"""Small replacements for the models, tokenizers and transforms of `open_clip`."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

SIDE, WIDTH, CONTEXT, WORDS = 32, 16, 24, 64
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class LayerNorm(nn.LayerNorm):
    """A LayerNorm that keeps the data type of its input, as in open_clip."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(WIDTH), LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, 8, 8, bias=False)
        self.resblocks = nn.ModuleList([Block(), Block()])
        self.ln_post = LayerNorm(WIDTH)
        self.proj = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv1(x).flatten(2).transpose(1, 2)
        for block in self.resblocks:
            x = block(x)
        return self.ln_post(x.mean(1)) @ self.proj


class ModifiedResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, WIDTH, 4, 4, bias=False), nn.BatchNorm2d(WIDTH)
        self.conv2, self.bn2 = nn.Conv2d(WIDTH, WIDTH, 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.conv1(x)).relu()
        return (x + self.bn2(self.conv2(x))).mean((2, 3))


class OpenModel(nn.Module):
    """A model that contains the parts of the text tower directly, like the plain CLIP of open_clip."""

    def __init__(self, visual: nn.Module, *, sigmoid: bool = False) -> None:
        super().__init__()
        self.visual = visual
        self.token_embedding = nn.Embedding(WORDS, WIDTH)
        self.transformer = Block()
        self.ln_final = LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4)
        self.logit_scale = nn.Parameter(torch.tensor(3.0))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0)) if sigmoid else None
        self.dropout = nn.Dropout(0.5)

    def encode_image(self, image: torch.Tensor, normalize: bool = False) -> torch.Tensor:
        features = self.visual(image)
        features = features[0] if isinstance(features, tuple) else features
        return functional.normalize(features, dim=-1) if normalize else features

    def encode_text(self, text: torch.Tensor, normalize: bool = False) -> torch.Tensor:
        x = self.dropout(self.token_embedding(text))
        x = self.ln_final(self.transformer(x))
        x = x[torch.arange(len(x)), text.argmax(dim=-1)] @ self.text_projection
        return functional.normalize(x, dim=-1) if normalize else x


def open_model(visual: type[nn.Module] = VisionTransformer, **options: Any) -> OpenModel:
    torch.manual_seed(0)
    return OpenModel(visual(), **options)


def tokenizer(texts: list[str]) -> torch.Tensor:
    """Encode one token per letter, with the highest token at the end and zero padding. Long texts are truncated."""
    rows = []
    for text in texts:
        letters = [1 + ord(letter) % (WORDS - 2) for letter in text.lower() if letter != " "][: CONTEXT - 1]
        rows.append([*letters, WORDS - 1] + [0] * (CONTEXT - 1 - len(letters)))
    return torch.tensor(rows)


class InterpolationMode(Enum):
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Resize:
    def __init__(self, size: Any, interpolation: InterpolationMode = InterpolationMode.BICUBIC) -> None:
        self.size, self.interpolation = size, interpolation

    def __call__(self, image: Image.Image) -> Image.Image:
        size = self.size
        if isinstance(size, int):
            short = min(image.size)
            size = tuple(side * self.size // short for side in image.size)[::-1]
        return image.resize(size[::-1], Image.Resampling[self.interpolation.name])


class CenterCrop:
    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size

    def __call__(self, image: Image.Image) -> Image.Image:
        left, top = ((whole - part) // 2 for whole, part in zip(image.size, self.size[::-1], strict=True))
        return image.crop((left, top, left + self.size[1], top + self.size[0]))


class RandomResizedCrop(Resize):
    pass


class ToTensor:
    def __call__(self, image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1)


class Normalize:
    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = mean, std

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels - torch.tensor(self.mean)[:, None, None]) / torch.tensor(self.std)[:, None, None]


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


def transform(resize: Any = SIDE, mode: InterpolationMode = InterpolationMode.BICUBIC) -> Compose:
    crop = [CenterCrop((SIDE, SIDE))] if isinstance(resize, int) else []
    return Compose(Resize(resize, mode), *crop, ToTensor(), Normalize(MEAN, STD))
