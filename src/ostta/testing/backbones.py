"""Requirements of a backbone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import backbones
from ..adapter import load
from ..backbones.protocol import Backbone
from ..core.types import Error, Preprocessing
from .subject import CLASSES, STEPS, differing, images, require, trace

CLOSE = 1e-4


def check_backbone(backbone: Backbone | Callable[[], Backbone], classes: Sequence[str] = CLASSES) -> None:
    """Check all requirements of a backbone; raise a `Violation` for the first that is not met.

    `backbone` is a backbone or a function that returns one. `classes` are names that its classifier can encode.

    >>> from ostta.testing.subject import small_backbone
    >>> check_backbone(small_backbone)
    """
    one = backbones.as_backbone(backbone, None, None)
    for check in (_declared, _tower, _classifier, _stays):
        check(one, classes)


def _declared(one: Backbone, classes: Sequence[str]) -> None:
    given: Any = one
    for name, kind in (("id", str), ("remark", str), ("trainable", bool), ("restorable", bool), ("defaults", dict)):
        value = getattr(given, name)
        require(isinstance(value, kind), f"`{name}` of a backbone is of type {kind.__name__}, not {value!r}.")
    require(isinstance(given.preprocessing, Preprocessing), f"`preprocessing` of {one.id} must be a Preprocessing.")
    require(
        isinstance(given.device, torch.device), f"`device` of {one.id} must be a torch.device, not {given.device!r}."
    )
    require(isinstance(given.dtype, torch.dtype), f"`dtype` of {one.id} must be a torch.dtype, not {given.dtype!r}.")
    scale = given.logit_scale
    require(
        isinstance(scale, float) and math.isfinite(scale) and scale > 0,
        f"`logit_scale` of {one.id} must be a positive number, not {scale!r}.",
    )
    require(
        re.fullmatch("[0-9a-f]{64}", str(given.weight_hash)) is not None,
        f"`weight_hash` of {one.id} must be 64 hexadecimal digits, not {given.weight_hash!r}.",
    )
    strange = given.unfamiliar(tuple(classes))
    require(isinstance(strange, list), f"`unfamiliar` of {one.id} must give a list of class names, not {strange!r}.")


def _tower(one: Backbone, classes: Sequence[str]) -> None:
    """Check that the tower is frozen, in eval mode, and that features are valid, repeatable and batch-independent."""
    require(not one.vision.training, f"The image tower of {one.id} must be in eval mode.")
    learns = [name for name, value in one.vision.named_parameters() if value.requires_grad]
    require(not learns, f"The parameters of {one.id} must be frozen (requires_grad False), and {learns[:1]} is not.")
    size = one.preprocessing.image_size
    pixels = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0)).to(one.device, one.dtype)
    with torch.no_grad():
        features, again, alone = one.vision(pixels), one.vision(pixels), one.vision(pixels[:1])
    require(
        isinstance(features, torch.Tensor) and features.shape == (3, one.feature_width),
        f"The image tower of {one.id} must map images [B, 3, {size}, {size}] to features [B, {one.feature_width}].",
    )
    require(bool(torch.isfinite(features).all()), f"The features of {one.id} are not finite.")
    require(features.equal(again), f"The image tower of {one.id} gives other features for the same images.")
    off = float((features[:1] - alone).float().abs().max() / features.float().abs().max())
    require(
        off <= (CLOSE if one.dtype == torch.float32 else 1e-1),
        f"The features of {one.id} for an image depend on the others in its batch.",
    )


def _classifier(one: Backbone, classes: Sequence[str]) -> None:
    """Check that the classifier has one unit row per class, in order, and is repeatable."""
    rows = one.classifier(list(classes))
    require(
        rows.shape == (len(classes), one.feature_width),
        f"`classifier` of {one.id} must return [{len(classes)}, {one.feature_width}] rows, not {list(rows.shape)}.",
    )
    lengths = rows.float().norm(dim=1)
    require(bool((lengths - 1).abs().max() < 1e-3), f"The rows of the classifier of {one.id} must have length 1.")
    require(
        rows.equal(one.classifier(list(classes))), f"`classifier` of {one.id} gives another answer the second time."
    )
    rows.zero_()
    require(
        bool(one.classifier(list(classes)).any()), f"`classifier` of {one.id} must give a copy that callers may change."
    )


def _stays(one: Backbone, classes: Sequence[str]) -> None:
    """Check that adapters on the backbone adapt, are repeatable and leave the backbone unchanged."""
    before = {name: value.clone() for name, value in one.vision.state_dict().items()}
    hashed, runs = one.weight_hash, []
    methods = ("zero_shot", "rosita") if one.trainable else ("zero_shot",)
    for method in methods:
        for _ in ("once", "again"):
            try:
                adapter = load(one, classes, method=method, options={"group": "full"} if method == "rosita" else {})
            except Error as problem:
                raise Error(f"{method} cannot be used on {one.id}: {problem}", code="backbone-unsuitable") from None
            runs.append(trace(adapter.stream(images(STEPS), ahead=1)))
        require(runs[-1] == runs[-2], f"Two runs of {method} on {one.id} differ.")
    odd = differing(before, one.vision.state_dict())
    require(not odd, f"Adapters changed {', '.join(odd[:3])} of {one.id}.")
    require(one.weight_hash == hashed, f"The weight hash of {one.id} changed while adapters ran.")
