"""A feature file as a backbone: stored embeddings of classes and words, for methods that need features only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..core.types import Error, Preprocessing
from ..feature_files import PREFIX, FeatureFile, read_features
from .onnx import check_stored_classes, check_stored_templates
from .preprocessing import CLIP_MEAN, CLIP_STD
from .protocol import DEFAULT_TEMPLATES
from .wrapped import NO_TOWERS_SIZE, NoTower


class FeaturesBackbone:
    """Backbone returned by `load("features:FILE")`; `file` is the content of the file, `words` the embeddings by word.

    The weight hash covers the whole file, so a state or a result belongs to exactly this content.
    """

    restorable = True
    trainable = False
    dtype = torch.float32

    def __init__(self, file: FeatureFile, device: torch.device) -> None:
        if not file.classes:
            raise Error(
                f"The feature file '{file.path}' has no classes and cannot serve as a backbone: name a file that was "
                "extracted "
                "with --desired.",
                code="classes-missing",
            )
        metadata = file.metadata
        self.id = f"{PREFIX}{file.path}"
        self.file, self.device, self.weight_hash = file, device, file.hash
        self.vision: nn.Module = NoTower()
        self.preprocessing = Preprocessing(NO_TOWERS_SIZE, CLIP_MEAN, CLIP_STD)
        self.logit_scale = file.logit_scale
        self.remark = metadata.remark
        # The embeddings exist for these templates only.
        own = {"adapter": {**metadata.defaults.get("adapter", {}), "templates": list(metadata.templates)}}
        self.defaults: Mapping[str, Mapping[str, object]] = {
            **metadata.defaults,
            **(own if metadata.templates else {}),
        }
        self.words = _by_name(file.words, file.word_embeddings, device)
        self._rows = {**self.words, **_by_name(file.classes, file.class_embeddings, device)}

    def __repr__(self) -> str:
        return f"FeaturesBackbone({self.id}, no image tower, features of {self.feature_width})"

    @property
    def encoder(self) -> tuple[str, str]:
        """Id and weight hash of the backbone that computed the features; the hash is empty if it is not known."""
        return self.file.metadata.backbone, self.file.metadata.weight_hash

    @property
    def feature_width(self) -> int:
        return self.file.width

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Return the stored embeddings of `classes`, which must be classes or words of the file, in any order."""
        check_stored_templates(self.id, self.file.metadata.templates, templates, "extract")
        check_stored_classes(self.id, self._rows, classes, "extract")
        return torch.stack([self._rows[name] for name in classes])

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return [name for name in classes if name in self.file.metadata.unfamiliar]


def load_features(path: Path, device: torch.device) -> FeaturesBackbone:
    """Load the feature file at `path` as a backbone."""
    return FeaturesBackbone(read_features(path), device)


def _by_name(names: Sequence[str], rows: NDArray[np.float32], device: torch.device) -> dict[str, torch.Tensor]:
    # Rows that were stored in half precision have length one to three digits only.
    return dict(zip(names, nn.functional.normalize(torch.from_numpy(rows).to(device), dim=1), strict=True))
