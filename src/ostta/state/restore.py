"""Open a state file together with the backbone that it was saved on."""

from __future__ import annotations

from pathlib import Path

import torch

from .. import backbones
from ..backbones.protocol import Backbone
from ..core.checks import shown
from ..core.types import Error
from .description import ComponentClasses, Description, SavedBackbone
from .file import read_state
from .stored_shapes import require_stored_shapes


def open_state(
    path: Path,
    backbone: backbones.BackboneSource | None,
    device: str | torch.device | None,
    dtype: str | torch.dtype | None,
    given: ComponentClasses,
) -> tuple[dict[str, torch.Tensor], Description, Backbone]:
    """Return the tensors and the description of a state file, and its backbone: the one given, or one that ships with ostta."""
    tensors, stored = read_state(path, given)
    model = backbones.as_backbone(_source(path, stored.backbone, backbone), device, dtype)
    if model.weight_hash != stored.backbone.weight_hash:
        raise Error(
            f"{path} belongs to a model with other weights ({shown(stored.backbone.id)}); this one is {model.id}.",
            code="state-mismatch",
        )
    try:
        require_stored_shapes(tensors, stored, model.feature_width)
    except Error as problem:
        raise not_restorable(path, problem) from None
    return tensors, stored, model


def not_restorable(path: Path, problem: Error) -> Error:
    """Return the error of a file whose content cannot be restored."""
    return Error(f"{path} cannot be restored: {problem}", code=problem.code)


def _source(path: Path, saved: SavedBackbone, given: backbones.BackboneSource | None) -> backbones.BackboneSource:
    if given is not None:
        return given
    if saved.id in backbones.SHIPPED and saved.restorable:
        return saved.id
    if not saved.restorable:
        raise Error(
            f"{path} was saved on a backbone that was handed over as an object; pass it as `backbone=`.",
            code="backbone-missing",
        )
    raise Error(
        f"{path} was saved on the backbone {shown(saved.id, 300)}, which does not ship with ostta: "
        "pass it as `backbone=`, or its name or folder.",
        code="backbone-missing",
    )
