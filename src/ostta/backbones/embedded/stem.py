"""The convolutional stem of the embedded model, in place of CLIP's single patch convolution.

A tower with raw 4x4 patches needs far more training on small images than a tower with a few convolutions. The stem maps
[B, 3, 32, 32] to [B, width, 4, 4], the output shape of a patch convolution with a patch size of 8, so the remaining
layers are those of the `transformers` CLIP without changes.
"""

from __future__ import annotations

import torch
from torch import nn


class ConvBlock(nn.Sequential):
    """Convolution, optional batch norm and ReLU. `fold` merges the batch norm into the convolution for inference."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, *, norm: bool) -> None:
        layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not norm)]
        if norm:
            layers.append(nn.BatchNorm2d(outputs))
        layers.append(nn.ReLU())
        super().__init__(*layers)

    def fold(self) -> ConvBlock:
        """Return an equivalent block with the batch norm merged into the convolution."""
        convolution, norm = self[0], self[1]
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        merged = nn.utils.fusion.fuse_conv_bn_eval(convolution.eval(), norm.eval())
        plain = ConvBlock(merged.in_channels, merged.out_channels, merged.stride[0], norm=False)
        plain[0].load_state_dict(merged.state_dict())
        return plain


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
    """Three downsampling stages with a residual block each. `widths` are the channels at 16, 8 and 4 pixels."""

    def __init__(self, width: int, widths: tuple[int, int, int] = (64, 128, 256), *, norm: bool = False) -> None:
        super().__init__()
        blocks: list[nn.Module] = [ConvBlock(3, widths[0] // 2, norm=norm)]
        previous = widths[0] // 2
        for channels in widths:
            blocks += [ConvBlock(previous, channels, 2, norm=norm), Residual(channels, norm=norm)]
            previous = channels
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.Conv2d(previous, width, 1)
        self.widths = widths

    @property
    def weight(self) -> torch.Tensor:
        """Weight of the projection. `transformers` reads its dtype before it calls the patch convolution."""
        return self.project.weight

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.project(self.blocks(pixels))
        return features

    def fold(self) -> Stem:
        """Return an equivalent stem without batch norm, for inference."""
        plain = Stem(self.project.out_channels, self.widths, norm=False)
        folded: list[nn.Module] = []
        for block in self.blocks:
            if isinstance(block, Residual):
                copy = Residual(block.first[0].in_channels, norm=False)  # type: ignore[arg-type]
                copy.first, copy.second = block.first.fold(), block.second.fold()
                folded.append(copy)
            else:
                assert isinstance(block, ConvBlock)
                folded.append(block.fold())
        plain.blocks = nn.Sequential(*folded)
        plain.project.load_state_dict(self.project.state_dict())
        return plain.eval()
