"""What is trained: groups of parameters of both towers as one overlay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self

import torch
from torch import nn

from ..backbones.lora import with_lora
from ..backbones.prompts import prompted
from ..backbones.protocol import Backbone, HasTextTower
from ..config.declare import Options, option
from ..core.groups import block_names, layernorm_names, norm_kinds, norm_names
from ..core.overlay import Overlay
from ..core.scores import cosines, unit
from ..core.types import Error, Look

# The ranks that the group "lora" accepts.
RANKS = (1, 1024)
Group = Literal["layernorm", "prompts", "full", "first_block", "last_block", "prompts+layernorm", "lora", "norm"]
# The lines of `ostta ls groups`.
GROUPS: dict[Group, str] = {
    "layernorm": "weights and biases of the LayerNorms of the image tower",
    "prompts": "the prompts: of the text tower, and with MaPLe of both",
    "full": "the whole network: both towers where there is a text tower",
    "first_block": "the first residual block of the image tower",
    "last_block": "the last residual block of the image tower",
    "prompts+layernorm": "the prompts and the LayerNorms",
    "lora": "low-rank additions to queries, keys and values of the image tower; `rank` is theirs",
    "norm": "weights and biases of whatever normalises in the image tower: LayerNorm, BatchNorm, GroupNorm, InstanceNorm, "
    "RMSNorm; running statistics stay as they are",
}


def group_option(number: str | None = None) -> Group:
    """Declare the option that selects the group."""
    return option("layernorm", number=number, about="the parameters that are trained")


def rank_option() -> int:
    """Declare the option that sets the rank of the group `lora`."""
    return option(16, bounds=RANKS, about="rank of the group `lora`")


class GroupOptions(Options):
    """Base of options with the fields `group` and `rank`, which each method declares last."""

    group: Group
    rank: int

    def stored_lengths(self) -> dict[str, int]:
        """Return the first dimension of stored tensors that depends on the options, by a pattern of their names."""
        return {"overlay/*.lora_A.*": self.rank} if self.group == "lora" else {}


class TrainedOverlay(Overlay):
    """Trained values of both towers: of the image tower, and of what the classifier is computed from.

    `classifier` is the classifier under these values, without graph; it is computed on first use.
    """

    def __init__(
        self, backbone: Backbone, classifier: torch.Tensor, classes: Sequence[str], group: Group, rank: int = 16
    ) -> None:
        if not backbone.trainable:
            raise Error(
                f"Nothing can be trained on the backbone {backbone.id}, as its image tower gives features without gradients or is "
                "not there at all: use a method that trains nothing in it, such as zero_shot, tda or dpe."
            )
        self._frozen, self._classes, self._backbone = classifier, classes, backbone
        self._text = prompted(backbone, classes) if "prompts" in group else None
        vision = with_lora(backbone.vision, rank) if group == "lora" else backbone.vision
        names, towers = _names(vision, group), vision
        # The whole network has a text tower too, where there is one.
        text_tower = backbone.text if group == "full" and isinstance(backbone, HasTextTower) else None
        if text_tower is not None:
            towers = nn.ModuleDict({"vision": vision, "text": text_tower})
            names = [name for name, _ in towers.named_parameters()]
        free: Mapping[str, torch.Tensor] = {}
        if self._text is not None:
            names = [*names, *(name for name in self._text.vision_names if name not in names)]
            free = self._text.free
        super().__init__(towers, names, free, guard=backbone.vision)
        self.vision = vision
        self.trains_text = self._text is not None or text_tower is not None
        self.trains_vision = bool(names)
        if self.trains_text:
            self._require_one_template()
        self._classifier: torch.Tensor | None = classifier

    @property
    def classifier(self) -> torch.Tensor:
        if self._classifier is None:
            # In full precision also where it is first asked for inside autocast: later looks use it outside.
            with torch.no_grad(), torch.autocast(self._frozen.device.type, enabled=False):
                self._classifier = self.differentiable_classifier()
        return self._classifier

    def differentiable_classifier(self) -> torch.Tensor:
        """The present classifier, with graph where it is trained."""
        if self._text is not None:
            with self.applied():
                return unit(self._text.classify(self.tensors))
        if self.trains_text and isinstance(self._backbone, HasTextTower):
            with self.applied():
                return unit(self._backbone.embed(self._classes))
        return self._frozen

    def differentiable(self, look: Look[object]) -> tuple[torch.Tensor, torch.Tensor]:
        """The classifier and the cosines of a look, both with graph wherever something is trained."""
        if not self.trains_text:
            return self._frozen, look.cosines
        classifier = self.differentiable_classifier()
        return classifier, cosines(look.features, classifier)

    def moved(self, values: Iterable[torch.Tensor]) -> Self:
        other = super().moved(values)
        other._classifier = None if self.trains_text else self._frozen
        return other

    def _require_one_template(self) -> None:
        with torch.no_grad():
            initial = self.differentiable_classifier()
        # The two are worked out in different ways, which half precision rounds differently.
        alike = 1e-4 if self._backbone.dtype == torch.float32 else 5e-2
        if not torch.allclose(initial, self._frozen, atol=alike):
            raise Error(
                "What trains the text side starts from class names in the one template 'a photo of a {}.', and this classifier was "
                "made from something else: leave `templates` as it is, and give no descriptions of classes."
            )


def _names(vision: nn.Module, group: Group) -> list[str]:
    """The parameters of the image tower in `group`; those of prompts are the backbone's own affair."""
    match group:
        case "layernorm" | "prompts+layernorm":
            return _norms(layernorm_names(vision), vision, group)
        case "norm":
            return _norms(norm_names(vision), vision, group)
        case "first_block" | "last_block":
            return block_names(vision, 0 if group == "first_block" else -1)
        case "full":
            return [name for name, _ in vision.named_parameters()]
        case "lora":
            return [name for name, _ in vision.named_parameters() if ".lora_" in name]
        case "prompts":
            return []


def _norms(names: list[str], vision: nn.Module, group: Group) -> list[str]:
    """The names, or an Error that says what the image tower has in their place."""
    if names:
        return names
    kinds = norm_kinds(vision)
    if kinds:
        raise Error(f'The image tower has no LayerNorm, but {" and ".join(kinds)}: train these with the group "norm".')
    raise Error(
        f'The image tower has no normalisation with parameters, which the group "{group}" is about: choose another one, such as '
        '"full" or "last_block".'
    )


def reaches_vision(backbone: Backbone, classes: Sequence[str], group: Group) -> bool:
    """Whether the group holds anything that image features depend on: prompts do so only where the image tower has them."""
    return group != "prompts" or bool(prompted(backbone, classes).vision_names)
