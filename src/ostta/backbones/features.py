"""Feature files as backbones: stored embeddings of classes and words, for methods that need only features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..core.types import Error, Preprocessing
from ..feature_files import PREFIX, FeatureFile, read_features
from .onnx import StoredClasses
from .preprocessing import CLIP_MEAN, CLIP_STD
from .wrapped import NO_TOWERS_SIZE, NoTower


class FeaturesBackbone(StoredClasses):
    """Backbone returned by `load("features:FILE")`.

    `file` is the content of the file, and `words` maps each word to its embedding. The weight hash covers the whole
    file, so a state or a result is valid for exactly this content.
    """

    command = "extract"

    def __init__(self, file: FeatureFile, device: torch.device) -> None:
        if not file.classes:
            raise Error(
                f"The feature file '{file.path}' has no classes and cannot serve as a backbone: name a file that was "
                "extracted with --desired.",
                code="classes-missing",
            )
        metadata = file.metadata
        self.id = f"{PREFIX}{file.path}"
        self.file, self.device, self.weight_hash = file, device, file.hash
        self.vision: nn.Module = NoTower()
        self.preprocessing = Preprocessing(NO_TOWERS_SIZE, CLIP_MEAN, CLIP_STD)
        self.logit_scale = file.logit_scale
        self.remark = metadata.remark
        self.centre = None if file.centre is None else torch.tensor(file.centre, device=device)
        self.words = _by_name(file.words, file.word_embeddings, device)
        super().__init__(metadata, {**self.words, **_by_name(file.classes, file.class_embeddings, device)})

    def __repr__(self) -> str:
        return f"FeaturesBackbone({self.id}, no image tower, features of {self.feature_width})"

    @property
    def encoder(self) -> tuple[str, str]:
        """Id and weight hash of the backbone that computed the features. The hash is empty if it is not known."""
        return self.file.metadata.backbone, self.file.metadata.weight_hash

    @property
    def feature_width(self) -> int:
        return self.file.width


def load_features(path: Path, device: torch.device) -> FeaturesBackbone:
    """Load the feature file at `path` as a backbone."""
    return FeaturesBackbone(read_features(path), device)


def _by_name(names: Sequence[str], rows: NDArray[np.float32], device: torch.device) -> dict[str, torch.Tensor]:
    # Rows stored in half precision have unit length only to three digits, so they are normalised again.
    return dict(zip(names, nn.functional.normalize(torch.from_numpy(rows).to(device), dim=1), strict=True))
