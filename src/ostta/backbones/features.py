"""A feature file as a backbone: no towers, but the embeddings of its classes and words, for methods that need features alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..core.checks import shown
from ..core.types import Error, Preprocessing
from ..feature_files import PREFIX, FeatureFile, read_features
from .preprocessing import CLIP_MEAN, CLIP_STD
from .prompts import check_templates
from .protocol import DEFAULT_TEMPLATES
from .wrapped import NO_TOWERS_SIZE, NoTower


class FeaturesBackbone:
    """What `load("features:FILE")` returns. `file` is the content of the file, `words` the embeddings of its words by name.

    The weight hash is of the whole file, so a state or a result belongs to exactly this content.
    """

    restorable = True
    trainable = False
    dtype = torch.float32

    def __init__(self, file: FeatureFile, device: torch.device) -> None:
        if not file.classes:
            raise Error(
                f"The feature file '{file.path}' has no classes, so it is no backbone: name a file that was extracted with --desired."
            )
        metadata = file.metadata
        self.id = f"{PREFIX}{file.path}"
        self.file, self.device, self.weight_hash = file, device, file.hash
        self.vision: nn.Module = NoTower()
        self.preprocessing = Preprocessing(NO_TOWERS_SIZE, CLIP_MEAN, CLIP_STD)
        self.logit_scale = file.logit_scale
        self.remark = metadata.remark
        # The embeddings were made with these templates, and there is no text tower to make others.
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
        """The id and the weight hash of the backbone that computed the features; the hash is empty where it is not known."""
        return self.file.metadata.backbone, self.file.metadata.weight_hash

    @property
    def feature_width(self) -> int:
        return self.file.width

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """The stored embeddings of `classes`, which must be classes or words of the file, in any order."""
        stored = self.file.metadata.templates
        if stored and check_templates(templates) != stored:
            raise Error(
                f"{self.id} has embeddings of the templates {shown(list(stored))}, and there is no text tower to make others of "
                f"{shown(list(templates))}: extract it with those."
            )
        missing = [name for name in classes if name not in self._rows]
        if missing:
            raise Error(
                f"{self.id} has no embedding of the class {shown(missing[0])}, only of {shown(list(self.file.classes), 200)}: "
                "extract it with all classes that you need."
            )
        return torch.stack([self._rows[name] for name in classes])

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return [name for name in classes if name in self.file.metadata.unfamiliar]


def load_features(path: Path, device: torch.device) -> FeaturesBackbone:
    """The backbone of the feature file at `path`."""
    return FeaturesBackbone(read_features(path), device)


def _by_name(names: Sequence[str], rows: NDArray[np.float32], device: torch.device) -> dict[str, torch.Tensor]:
    # In half precision, unit rows have unit length to three digits only.
    return dict(zip(names, nn.functional.normalize(torch.from_numpy(rows).to(device), dim=1), strict=True))
