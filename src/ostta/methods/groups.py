"""Groups of parameters that a method can train, chosen by the structure of the towers and not by names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ..backbones.lora import with_lora
from ..backbones.prompts import prompted
from ..backbones.protocol import Backbone, HasTextTower
from ..config.declare import Options, option
from ..core.overlay import TrainedOverlay
from ..core.types import Error

# Ranks that the group `lora` accepts.
RANKS = (1, 1024)
Group = Literal["layernorm", "prompts", "full", "first_block", "last_block", "prompts+layernorm", "lora", "norm"]
# Descriptions for `ostta ls groups`.
GROUPS: dict[Group, str] = {
    "layernorm": "weights and biases of the LayerNorms of the image tower",
    "prompts": "the prompts: of the text tower, and with MaPLe of both",
    "full": "the whole network: both towers where there is a text tower",
    "first_block": "the first residual block of the image tower",
    "last_block": "the last residual block of the image tower",
    "prompts+layernorm": "the prompts and the LayerNorms",
    "lora": "low-rank additions to queries, keys and values of the image tower; `rank` is theirs",
    "norm": "weights and biases of all normalisations of the image tower: LayerNorm, BatchNorm, GroupNorm, "
    "InstanceNorm, RMSNorm; running statistics stay as they are",
}
# Layers of the group `norm`. All batch and instance normalisations inherit from the last one.
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase)


class GroupOptions(Options):
    """Base of options with the fields `group` and `rank`, which each method declares last."""

    group: Group
    rank: int

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[Any, ...]]:
        """Return the shapes of stored tensors that depend on the options, by a pattern of their names."""
        return {"overlay/*.lora_A.*": (self.rank, ...)} if self.group == "lora" else {}


def group_option(number: str | None = None) -> Group:
    """Declare the option that selects the group."""
    return option("layernorm", number=number, about="group of parameters that are trained")


def rank_option() -> int:
    """Declare the option that sets the rank of the group `lora`."""
    return option(16, bounds=RANKS, about="rank of the LoRA matrices, for the group `lora`")


def build_overlay(
    backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], group: Group, rank: int = 16
) -> TrainedOverlay:
    """Return the overlay of a group at its initial values; raise an Error if the backbone does not have the group."""
    if not backbone.trainable:
        raise Error(
            f"Nothing can be trained on the backbone {backbone.id}: it has no image tower, or one without gradients. "
            "Use a method that trains nothing in it, such as zero_shot, tda or dpe.",
            code="backbone-unsupported",
        )
    vision = with_lora(backbone.vision, rank) if group == "lora" else backbone.vision
    module, names, free, embed_classes = vision, _names(vision, group), None, None
    if "prompts" in group:
        prompts = prompted(backbone, classes)
        names += [name for name in prompts.vision_names if name not in names]
        free, embed_classes = prompts.free, prompts.classify
    elif group == "full" and isinstance(backbone, HasTextTower):
        module = nn.ModuleDict({"vision": vision, "text": backbone.text})
        names, text = [name for name, _ in module.named_parameters()], backbone

        def embed_classes(tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
            return text.embed(classes)

    overlay = TrainedOverlay(module, names, classifier, embed_classes, free, vision, shared=backbone.vision)
    if overlay.trains_text:
        _require_default_template(overlay, classifier, backbone)
    return overlay


def _require_default_template(overlay: TrainedOverlay, classifier: torch.Tensor, backbone: Backbone) -> None:
    with torch.no_grad():
        initial = overlay.differentiable_classifier()
    # The two are computed in different ways and are rounded differently in half precision.
    tolerance = 1e-4 if backbone.dtype == torch.float32 else 5e-2
    if not torch.allclose(initial, classifier, atol=tolerance):
        raise Error(
            "Training the text side starts from the class names in the template 'a photo of a {}.', but this "
            "classifier has another origin: leave out `templates` and the descriptions of classes.",
            code="option-conflict",
        )


def reaches_vision(backbone: Backbone, classes: Sequence[str], group: Group) -> bool:
    """Return whether image features depend on the group; prompts count only if the image tower has some."""
    return group != "prompts" or bool(prompted(backbone, classes).vision_names)


def _names(vision: nn.Module, group: Group) -> list[str]:
    """Return the parameters of the image tower in `group`, without prompts."""
    match group:
        case "layernorm" | "prompts+layernorm":
            return _require_norms(layernorm_names(vision), vision, group)
        case "norm":
            return _require_norms(norm_names(vision), vision, group)
        case "first_block" | "last_block":
            return block_names(vision, 0 if group == "first_block" else -1)
        case "full":
            return [name for name, _ in vision.named_parameters()]
        case "lora":
            return [name for name, _ in vision.named_parameters() if ".lora_" in name]
        case "prompts":
            return []


def _require_norms(names: list[str], vision: nn.Module, group: Group) -> list[str]:
    if names:
        return names
    kinds = norm_kinds(vision)
    if kinds:
        raise Error(
            f'The image tower has no LayerNorm, but {" and ".join(kinds)}: train these with the group "norm".',
            code="group-unsupported",
        )
    raise Error(
        f'The image tower has no normalisation with parameters for the group "{group}": choose another group, such as '
        '"full" or "last_block".',
        code="group-unsupported",
    )


def layernorm_names(module: nn.Module) -> list[str]:
    """Return the names of the weights and biases of all LayerNorms in `module`."""
    return _parameter_names(module, (nn.LayerNorm,))


def norm_names(module: nn.Module) -> list[str]:
    """Return the names of the weights and biases of all normalisations in `module`, without running statistics."""
    return _parameter_names(module, NORMS)


def norm_kinds(module: nn.Module) -> list[str]:
    """Return the kinds of normalisation with weights or biases in `module`, such as BatchNorm2d."""
    norms = (part for part in module.modules() if isinstance(part, NORMS))
    return sorted({type(part).__name__ for part in norms if any(True for _ in part.parameters(recurse=False))})


def _parameter_names(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[str]:
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, kinds)
        for name, _ in part.named_parameters(recurse=False)
    ]


def block_names(module: nn.Module, place: int) -> list[str]:
    """Return the names of all parameters of one block.

    `place` selects the first (0) or last (-1) block of the longest list of modules of one type.
    """
    lists = [
        (prefix, part)
        for prefix, part in module.named_modules()
        if isinstance(part, nn.ModuleList | nn.Sequential)
        and len(part) > 1
        and len({type(block) for block in part}) == 1
        and all(any(True for _ in block.parameters()) for block in part)
    ]
    if not lists:
        raise Error(
            "The image tower has no list of alike blocks, so there is no first or last one to adapt.",
            code="group-unsupported",
        )
    prefix, blocks = max(lists, key=lambda entry: len(entry[1]))
    number = range(len(blocks))[place]
    return [f"{prefix}.{number}.{name}" for name, _ in blocks[number].named_parameters()]
