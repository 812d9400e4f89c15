"""The convolutional stem of the embedded model, in place of CLIP's single patch convolution.

A tower with raw 4x4 patches needs far more training on small images than a tower with a few convolutions. The stem maps
[B, 3, 32, 32] to [B, width, 4, 4], the output shape of a patch convolution with a patch size of 8, so the remaining
layers are those of the `transformers` CLIP without changes.
"""

from __future__ import annotations

import torch
from torch import nn

# Channels at 16, 8 and 4 pixels.
WIDTHS = (64, 128, 256)


class ConvBlock(nn.Sequential):
    """Convolution, optional batch norm and ReLU.

    The batch norm is for training: `tools/train_embedded.py` merges it into the convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1, *, norm: bool) -> None:
        layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not norm)]
        if norm:
            layers.append(nn.BatchNorm2d(outputs))
        layers.append(nn.ReLU())
        super().__init__(*layers)


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, width: int, *, norm: bool) -> None:
        super().__init__()
        self.first = ConvBlock(width, width, norm=norm)
        self.second = ConvBlock(width, width, norm=norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual: torch.Tensor = self.second(self.first(x))
        return x + residual


class Stem(nn.Module):
    """Three downsampling stages with a residual block each."""

    def __init__(self, width: int, *, norm: bool = False) -> None:
        super().__init__()
        previous = WIDTHS[0] // 2
        blocks: list[nn.Module] = [ConvBlock(3, previous, norm=norm)]
        for channels in WIDTHS:
            blocks += [ConvBlock(previous, channels, 2, norm=norm), Residual(channels, norm=norm)]
            previous = channels
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.Conv2d(previous, width, 1)

    @property
    def weight(self) -> torch.Tensor:
        """Weight of the projection. `transformers` reads its dtype before it calls the patch convolution."""
        return self.project.weight

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.project(self.blocks(pixels))
        return features
