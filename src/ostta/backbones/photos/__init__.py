"""The `photos` backbone: EfficientNet-lite0 with ImageNet weights, which ships with the package.

It is an image classifier, not a vision-language model. The centred rows of its ImageNet classifier replace the text
embeddings. A name that covers several classes, such as "dog", is represented by the mean of their rows. The backbone
has no text tower, so prompts, templates and descriptions have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from ...core.errors import translate_errors
from ...core.overlay import set_precision
from ...core.types import Error, Preprocessing
from ..protocol import DEFAULT_TEMPLATES
from ..towers import frozen, weight_hash
from .names import CLASSES, NameLookup, load_names
from .tower import FEATURES, Tower

FILE = Path(__file__).parent / "model" / "model.safetensors"
# The preprocessing used in training: (pixels - 127) / 128, short side 256, centre crop 224.
PREPROCESSING = Preprocessing(224, (127 / 255,) * 3, (128 / 255,) * 3, fit="crop", resize=256)
LOGIT_SCALE = 30.0
# Stands for the names of all ImageNet classes in a list of words.
ALL_CLASSES = "imagenet"


class Photos:
    """EfficientNet-lite0 for 224-pixel photographs. Class names are ImageNet classes or WordNet nouns above them.

    >>> photos = ostta.backbones.load("photos")
    >>> photos
    Photos(photos, 224 x 224 images, features of 1280)
    >>> photos.classifier(["dog", "elephant", "guitar"]).shape
    torch.Size([3, 1280])
    """

    id = "photos"
    trainable = True
    restorable = True
    logit_scale = LOGIT_SCALE
    preprocessing = PREPROCESSING
    feature_width = FEATURES
    remark = (
        "The backbone photos is an ImageNet classifier, not a vision-language model: class embeddings are rows of its "
        "classifier."
    )
    # ROSITA uses its published learning rate, because tools/choose_photos_rate.py found no better one.
    defaults: Mapping[str, Mapping[str, object]] = {
        **{method: {"group": "norm"} for method in ("rosita", "prototypes", "unient", "entropy", "cliptta")},
        "field": {"words": [ALL_CLASSES]},
    }

    def __init__(self, tower: Tower, rows: torch.Tensor, names: NameLookup) -> None:
        """Create the backbone from the tower, the rows [1000, 1280] of the ImageNet classifier, and the names."""
        self.vision: nn.Module = frozen(tower)
        self.names = names
        self.device, self.dtype = rows.device, torch.float32
        self._rows = rows - rows.mean(0)
        self._weights = {**tower.state_dict(), "classes": rows}

    def __repr__(self) -> str:
        return f"Photos({self.id}, {self.preprocessing.images}, features of {self.feature_width})"

    def place(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the tower to a device and a precision. Call this once, before the backbone is used."""
        _ = self.weight_hash  # hash the stored weights before they are rounded
        set_precision(self.vision, device, dtype)
        self._rows = self._rows.to(device)
        self.device, self.dtype = device, dtype

    @cached_property
    def weight_hash(self) -> str:
        return weight_hash(self._weights)

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        """Return one unit row per class: the mean of the centred rows of the ImageNet classes that its name covers.

        `templates` has no effect.
        """
        if not classes:
            raise Error("There are no classes: give at least one name.", code="classes-missing")
        rows = [self._rows[list(self.names.classes(name))].mean(0) for name in classes]
        return functional.normalize(torch.stack(rows), dim=1)

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        """Return the names that have no embedding.

        >>> ostta.backbones.load("photos").unfamiliar(["dog", "deer"])
        ['deer']
        """
        return [name for name in classes if self.names.find(name) is None]

    def other_words(self, words: Sequence[str], classes: Sequence[str]) -> list[str]:
        """Return the known words that name none of the classes. "imagenet" stands for all ImageNet classes.

        >>> words = ostta.backbones.load("photos").other_words(["imagenet"], ["dog"])
        >>> len(words), "tabby cat" in words, "beagle" in words
        (882, True, False)
        """
        covered = {number for name in classes for number in self.names.classes(name)}
        expanded = [name for word in words for name in (self.names.class_titles if word == ALL_CLASSES else (word,))]
        known = [name for name in dict.fromkeys(expanded) if self.names.find(name) is not None]
        return [name for name in known if covered.isdisjoint(self.names.classes(name))]

    def encode_words(self, names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Return the unit embeddings of the known names.

        >>> list(ostta.backbones.load("photos").encode_words(["teapot", "deer"]))
        ['teapot']
        """
        known = self.other_words(names, ())
        return dict(zip(known, self.classifier(known), strict=True)) if known else {}


def load_photos(file: Path = FILE) -> Photos:
    """Load the model from `file`, which `tools/make_photos_weights.py` writes."""
    if not file.is_file():
        raise Error(
            f"The backbone photos is not in this installation: {file} is missing. Install the package again.",
            code="weights-missing",
        )
    from safetensors.torch import load_file

    weights = {name: tensor.float() for name, tensor in load_file(file).items()}
    rows = weights.pop("classes", torch.empty(0))
    # The meta device avoids initialising weights that are then loaded from the file.
    with torch.device("meta"):
        tower = Tower()
    own = {name.removeprefix("tower."): tensor for name, tensor in weights.items()}
    counters = {name: torch.tensor(0) for name in tower.state_dict() if name.endswith("num_batches_tracked")}
    message = f"The weights in {file} are not those of the backbone photos: install the package again."
    with translate_errors("weights-wrong", message, RuntimeError):
        if rows.shape != (CLASSES, FEATURES):
            raise RuntimeError("the rows of the classes are missing")
        tower.load_state_dict({**own, **counters}, strict=True, assign=True)
    # On a CPU, convolutions take two thirds of the time in the channels-last format.
    tower.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Photos(tower, rows, load_names())
