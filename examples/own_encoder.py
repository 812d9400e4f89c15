"""Use your own image tower and text embeddings as a backbone.

    python examples/own_encoder.py

The tower here is a small network with random weights, so its answers are arbitrary. Replace it by yours.
"""

import torch

import ostta.testing
from ostta.data import open_dataset


class Tower(torch.nn.Module):
    """Any module from normalised images [N, 3, H, W] to features [N, D]. By default, methods train its LayerNorms."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 64, 8, stride=8)
        self.norm = torch.nn.LayerNorm(64)
        self.out = torch.nn.Linear(64, 32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.patches(images).flatten(2).mean(2)))


torch.manual_seed(0)
# One embedding per class. A tensor works too, or a function from class names to a tensor.
texts = {name: torch.randn(32) for name in ("cat", "dog", "ship")}
backbone = ostta.backbones.wrap(Tower(), texts, image_size=32, logit_scale=100.0)
ostta.testing.check_backbone(backbone, ["cat", "dog", "ship"])  # raises an Error if a requirement is not met

adapter = ostta.load(backbone, ["cat", "dog", "ship"], method="rosita", lr=1e-2)
photos = open_dataset("sample:cifar10")
answers = list(adapter.stream(photos.image(number) for number in range(50)))
print(answers[-1])
print(adapter)
