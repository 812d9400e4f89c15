"""From class names to prompts, and from prompt embeddings to a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from ..core.types import Error
from .protocol import Backbone

if TYPE_CHECKING:
    from .context import PromptedText


def fill(classes: Sequence[str], templates: Sequence[str]) -> list[str]:
    """The prompts of the first class in every template, then those of the second, and so on."""
    if isinstance(templates, str):
        templates = (templates,)
    if not classes:
        raise Error("There are no classes: give at least one name.")
    if not templates:
        raise Error('There is no template: give at least one, such as "a photo of a {}.".')
    for template in templates:
        if template.count("{}") != 1:
            raise Error(f'The template {template!r} must contain {{}} exactly once, as in "a photo of a {{}}.".')
    # `replace` and not `format`: other braces in a template or a name are just characters.
    return [template.replace("{}", name.replace("_", " ")) for name in classes for template in templates]


def ensemble(features: torch.Tensor, classes: int) -> torch.Tensor:
    """Unit rows, one a class: the renormalised mean of the unit embeddings of its prompts, which `fill` put in order."""
    rows = functional.normalize(features, dim=-1)
    if len(rows) == classes:
        return rows
    return functional.normalize(rows.view(classes, -1, rows.shape[-1]).mean(1), dim=-1)


def prompted(backbone: Backbone, classes: Sequence[str]) -> PromptedText:
    """The text tower of `backbone` from prompt vectors; an Error where it cannot be run from them."""
    require_prompt_tuning(backbone)
    made: PromptedText = backbone.prompted(classes)  # type: ignore[attr-defined]
    return made


def require_prompt_tuning(backbone: Backbone) -> None:
    """Refuse a backbone whose text tower cannot be run from prompt vectors."""
    if not getattr(backbone, "prompt_tuning", False):
        raise Error(
            f"The backbone {backbone.id} cannot tune prompts: that needs a text tower of the CLIP family, "
            'such as "openai/clip-vit-base-patch16" or "embedded".'
        )
