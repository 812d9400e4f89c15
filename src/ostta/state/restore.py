"""Open a state file together with the backbone that it was saved on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import backbones
from ..backbones.protocol import Backbone
from ..core.checks import shown
from ..core.errors import error_context
from ..core.types import Error
from .description import ComponentClasses, Description
from .file import read_state
from .stored_shapes import require_consistent

if TYPE_CHECKING:
    from .schema import BackboneModel


def open_state(
    path: Path,
    backbone: backbones.BackboneSource | None,
    device: str | torch.device | None,
    dtype: str | torch.dtype | None,
    given: ComponentClasses,
) -> tuple[dict[str, torch.Tensor], Description, Backbone]:
    """Return the tensors, the description and the backbone of a state file.

    The backbone is the given one, or one that ships with ostta.
    """
    tensors, stored = read_state(path, given)
    model = backbones.as_backbone(_source(path, stored.backbone, backbone), device, dtype)
    if model.weight_hash != stored.backbone.weight_hash:
        raise Error(
            f"{path} belongs to a model with other weights ({shown(stored.backbone.id)}); this one is {model.id}.",
            code="state-mismatch",
        )
    with error_context(f"{path} cannot be restored"):
        require_consistent(tensors, stored, model.feature_width)
    return tensors, stored, model


def _source(path: Path, saved: BackboneModel, given: backbones.BackboneSource | None) -> backbones.BackboneSource:
    if given is not None:
        return given
    if saved.id in backbones.SHIPPED and saved.restorable:
        return saved.id
    if not saved.restorable:
        raise Error(
            f"{path} was saved on a backbone that was passed as an object: pass it again as `backbone=`.",
            code="backbone-missing",
        )
    raise Error(
        f"{path} was saved on the backbone {shown(saved.id, 300)}, which does not ship with ostta: "
        "pass it as `backbone=`, or its name or folder.",
        code="backbone-missing",
    )
