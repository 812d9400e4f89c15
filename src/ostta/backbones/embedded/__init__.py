"""The small model that ships with the package: a CLIP for 32 x 32 images, trained on CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ...core.errors import translate_errors
from ...core.types import Error
from ..clip import Clip
from ..huggingface import load_tokenizer, without_logs
from ..maple import OWN_PROMPTS, Maple, load_maple
from ..preprocessing import read_preprocessing
from .stem import Stem

FOLDER = Path(__file__).parent / "model"
Content = TypeVar("Content", list[str], dict[str, dict[str, object]])


class Embedded(Clip):
    """A `Clip` that stores the class names it was trained on."""

    known: frozenset[str] = frozenset()
    remark = (
        "The embedded model saw the CIFAR classes in training: its accuracies show how adaptation behaves, "
        "not how well a model transfers to new classes."
    )

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return [name for name in classes if name.lower().replace("_", " ") not in self.known]


def load_embedded(folder: Path = FOLDER) -> Embedded:
    """Load the model that `tools/train_embedded.py export` wrote to `folder`."""
    if not (folder / "model.safetensors").is_file():
        raise Error(
            f"The embedded model is not in this installation: {folder / 'model.safetensors'} is missing. Install the "
            "package again.",
            code="weights-missing",
        )
    with without_logs():
        model, tokenizer = _model(folder), load_tokenizer(folder)
    size: int = model.config.vision_config.image_size  # type: ignore[assignment, union-attr]
    backbone = Embedded("embedded", model, tokenizer, read_preprocessing(folder, Embedded.usual_preprocessing(size)))
    backbone.known = embedded_names(folder)
    # Options selected on held-out images.
    backbone.defaults = _json(folder / "defaults.json", {})
    return backbone


def embedded_names(folder: Path = FOLDER) -> frozenset[str]:
    """Return the class names that the model was trained on, in lower case."""
    return frozenset(_json(folder / "classes.json", []))


def load_embedded_maple() -> Maple:
    """Load the model with the MaPLe prompts and token statistics written by `tools/train_maple.py`."""
    prompts = FOLDER / OWN_PROMPTS
    if not prompts.is_file():
        raise Error(
            f"The MaPLe prompts are not in this installation: {prompts} is missing. Install the package again.",
            code="weights-missing",
        )
    return load_maple(load_embedded(), prompts, "embedded+maple")


def _model(folder: Path) -> nn.Module:
    from safetensors.torch import load_file
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig.from_pretrained(folder, local_files_only=True, attn_implementation="sdpa")
    # The meta device avoids initialising weights that are then loaded from the file.
    with torch.device("meta"):
        model: Any = CLIPModel(config)
        model.vision_model.embeddings.patch_embedding = Stem(config.vision_config.hidden_size)
    weights = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
    message = f"The weights in {folder} are not those of the embedded model: install the package again."
    with translate_errors("weights-wrong", message, RuntimeError):
        model.load_state_dict(weights, strict=True, assign=True)
    # Position ids are not stored in the file, so they are still on the meta device.
    for part in (model.text_model.embeddings, model.vision_model.embeddings):
        part.position_ids = torch.arange(part.position_embedding.num_embeddings).expand(1, -1)
    if any(buffer.is_meta for buffer in model.buffers()):
        raise Error(
            "The embedded model cannot be built with this version of transformers: install version 5.22.",
            code="library-version-unsupported",
        )
    built: nn.Module = model
    return built


def _json(file: Path, default: Content) -> Content:
    content: Content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else default
    return content
