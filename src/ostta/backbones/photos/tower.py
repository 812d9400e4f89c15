"""EfficientNet-lite0 (Tan and Le, 2019; the `lite` variant of 2020).

It has inverted residual blocks with ReLU6, and no squeeze-and-excitation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

FEATURES = 1280
STEM = 32
# Value of the published model; the PyTorch default is 1e-5.
NORM_EPSILON = 1e-3
# Maximum batch size. The activations of larger batches exceed 32 MB, and glibc returns blocks of that size to the
# operating system after each layer, which increases the time per image by a factor of 1.5.
MAX_BATCH = 4


class Stage(NamedTuple):
    """Consecutive blocks of one width. Only the first block uses the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class Convolution(nn.Module):
    """Convolution and batch normalisation, with TensorFlow's `SAME` padding.

    The weights were trained in TensorFlow, which pads one pixel less at the top and left for strided convolutions of
    inputs with an even size.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        after = kernel // 2
        before = after - (stride - 1)
        self.pad = nn.ZeroPad2d((before, after, before, after)) if before != after else nn.Identity()
        padding = after if before == after else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=NORM_EPSILON)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        convolved: torch.Tensor = self.norm(self.conv(self.pad(images)))
        return convolved


class InvertedResidual(nn.Module):
    """Inverted residual block: expansion, depthwise convolution, projection, and a shortcut if the shapes match."""

    def __init__(self, inputs: int, stage: Stage, stride: int) -> None:
        super().__init__()
        hidden = inputs * stage.expansion
        self.expand = Convolution(inputs, hidden) if stage.expansion > 1 else None
        self.depthwise = Convolution(hidden, hidden, stage.kernel, stride, groups=hidden)
        self.project = Convolution(hidden, stage.width)
        self.shortcut = stride == 1 and inputs == stage.width

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = images if self.expand is None else nn.functional.relu6(self.expand(images))
        projected: torch.Tensor = self.project(nn.functional.relu6(self.depthwise(hidden)))
        return projected + images if self.shortcut else projected


class Tower(nn.Module):
    """Image tower from normalised images [B, 3, 224, 224] to the features [B, 1280] before the classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, STEM, kernel=3, stride=2)
        blocks, width = [], STEM
        for stage in STAGES:
            for number in range(stage.blocks):
                blocks.append(InvertedResidual(width, stage, stage.stride if number == 0 else 1))
                width = stage.width
        self.blocks = nn.Sequential(*blocks)
        self.head = Convolution(width, FEATURES)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        # An exported graph must not depend on the batch size.
        if torch.compiler.is_exporting() or len(pixels) <= MAX_BATCH:
            return self._features(pixels)
        starts = range(0, len(pixels), MAX_BATCH)
        return torch.cat([self._features(pixels[start : start + MAX_BATCH]) for start in starts])

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(nn.functional.relu6(self.stem(pixels)))
        return nn.functional.relu6(self.head(hidden)).mean((2, 3))
