"""Prompts from class names, classifiers from prompt embeddings, and prompts as tunable vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from ..core.checks import shown
from ..core.overlay import in_single, own_precision
from ..core.types import Error
from ..io import is_unicode
from .protocol import (
    DEFAULT_TEMPLATES,
    Backbone,
    EncodesWords,
    HasTextTower,
    ReadsPrompts,
    RelatesNames,
    TunablePrompts,
    TunesPrompts,
)
from .towers import KeysValues, causal_block, keys_values, last_block

if TYPE_CHECKING:
    from .clip import ClipFamily

# Name of the tensor that prompt tuning changes.
CONTEXT = "context"
# Maximum number of characters of a prompt or template in a message.
SHOWN = 200


# --- prompts ----------------------------------------------------------------------------------------------------------
def fill(classes: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Return the prompts of all classes: every template with the first class, then with the second class, and so on."""
    if not classes:
        raise Error("There are no classes: give at least one name.", code="classes-invalid")
    checked = check_templates(templates)
    # `format` would interpret other braces in a template or a name.
    return [template.replace("{}", name.replace("_", " ")) for name in classes for template in checked]


def check_class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the class names as a tuple. Raise an Error if there are none, or if a name is empty or repeated."""
    if isinstance(classes, str) or not isinstance(classes, Sequence) or not classes:
        raise Error(
            f'The classes must be a list of names such as ["cat", "dog"], not {shown(classes)}.', code="classes-invalid"
        )
    for name in classes:
        if not isinstance(name, str) or not is_unicode(name) or not name.strip():
            raise Error(f"{shown(name)} is not a class name: give a text that is not empty.", code="classes-invalid")
    if len(set(classes)) < len(classes):
        twice = next(name for place, name in enumerate(classes) if name in classes[:place])
        raise Error(f"The class {shown(twice)} occurs twice: give every class its own name.", code="classes-invalid")
    return tuple(classes)


def check_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """Return the templates as a tuple. A string is one template. Each template must have one placeholder {}."""
    if isinstance(templates, str):
        templates = (templates,)
    if not isinstance(templates, Sequence) or not templates:
        raise Error(
            f'The templates must be a list of texts such as "a photo of a {{}}.", not {shown(templates)}.',
            code="template-invalid",
        )
    for template in templates:
        if not isinstance(template, str) or template.count("{}") != 1 or not is_unicode(template):
            raise Error(
                f'The template {shown(template, SHOWN)} must be valid text with {{}} exactly once, as in "a photo of a '
                f'{{}}.".',
                code="template-invalid",
            )
    return tuple(templates)


def refuse_special_tokens(prompts: Sequence[str], tokens: Sequence[str], id: str) -> None:
    """Raise an Error if a prompt contains a special token such as <|endoftext|>, which would end the prompt."""
    for prompt in prompts:
        for token in tokens:
            # Some tokenizers pad with an ordinary character such as "!", which may occur in a name.
            if len(token) > 1 and token.lower() in prompt.lower():
                raise Error(
                    f"The prompt {shown(prompt, SHOWN)} has the special token {token!r} of {id}: remove it from the "
                    "class name or the template.",
                    code="prompt-invalid",
                )


def prompt_too_long(id: str, classes: Sequence[str], prompts: int, place: int, limit: int) -> Error:
    """Return the Error for prompt number `place` of `prompts`, which exceeds the token limit of the text tower."""
    name = classes[place * len(classes) // prompts]
    return Error(
        f"The class {name!r} is too long for {id}: the text tower reads {limit} tokens, and its prompt has more.",
        code="prompt-too-long",
    )


# --- classifiers ------------------------------------------------------------------------------------------------------
def ensemble(features: torch.Tensor, classes: int) -> torch.Tensor:
    """Return one unit row per class: the renormalised mean of its unit embeddings, given in the order of `fill`."""
    rows = functional.normalize(features, dim=-1)
    if len(rows) == classes:
        return rows
    return functional.normalize(rows.view(classes, -1, rows.shape[-1]).mean(1), dim=-1)


def classifier_of(
    backbone: Backbone, classes: Sequence[str], templates: Sequence[str], prompts: Mapping[str, Sequence[str]]
) -> torch.Tensor:
    """Return one unit row per class, from its descriptions in `prompts` or from its name in the templates."""
    if not prompts:
        return backbone.classifier(classes, templates)
    if not isinstance(backbone, ReadsPrompts):
        raise Error(
            f"The backbone {backbone.id} cannot encode descriptions of classes: give the names of the classes "
            "without descriptions.",
            code="backbone-unsupported",
        )
    by_name = [name for name in classes if name not in prompts]
    rows = dict(zip(by_name, backbone.classifier(by_name, templates), strict=True)) if by_name else {}
    features = iter(backbone.read([prompt for name in classes for prompt in prompts.get(name, ())]))
    for name in classes:
        if name in prompts:
            rows[name] = ensemble(torch.stack([next(features) for _ in prompts[name]]), 1)[0]
    return torch.stack([rows[name] for name in classes])


def words_of(
    backbone: Backbone, names: Sequence[str], templates: Sequence[str], classes: Sequence[str]
) -> Mapping[str, torch.Tensor]:
    """Return unit text features of the `names` that the backbone can encode; none if it has no text tower.

    A backbone that implements `RelatesNames` omits names of the classes and of concepts that a class covers.
    """
    if isinstance(backbone, RelatesNames):
        names = backbone.other_words(names, classes)
    if not names:
        return {}
    if isinstance(backbone, EncodesWords):
        return backbone.encode_words(names)
    if not isinstance(backbone, HasTextTower):
        return {}
    return dict(zip(names, backbone.classifier(names, templates), strict=True))


# --- prompts as vectors -----------------------------------------------------------------------------------------------
def prompted(backbone: Backbone, classes: Sequence[str]) -> TunablePrompts:
    """Return the prompts of `classes` as tunable vectors. Raise an Error if the backbone does not support this."""
    if not isinstance(backbone, TunesPrompts):
        raise Error(
            f"The backbone {backbone.id} cannot tune prompts, which requires a text tower of the CLIP family: use a "
            'backbone such as "openai/clip-vit-base-patch16" or "embedded".',
            code="backbone-unsupported",
        )
    return backbone.prompted(classes)


@dataclass(frozen=True, slots=True)
class _Group:
    """Classes whose names have the same number of tokens, with their token ids [classes, length]."""

    classes: list[int]
    tokens: torch.Tensor


class PromptedText:
    """Prompts of `classes`, with the words of `template` before {} as tunable vectors.

    A prompt consists of the start token, the context, and the tokens of the class up to the end of text. The text
    attention of CLIP is causal, so the start token and the context are computed once for all classes. The forward pass
    of `transformers` does not accept vectors; `tests/backbones/test_context.py` checks that the results are the same.

    free:          tunable tensors that belong to no module: the context.
    vision_names:  parameters of the image tower that belong to the prompts: none here.
    """

    vision_names: tuple[str, ...] = ()

    def __init__(self, clip: ClipFamily, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> None:
        tower: Any = clip.text
        device, self._text = clip.device, clip.text
        self._embeddings = tower.text_model.embeddings
        self._layers = tower.text_model.encoder.layers
        self._norm, self._projection = tower.text_model.final_layer_norm, tower.text_projection
        prompts = clip.tokens(classes, (template,))
        shared = _shared_tokens(clip, template)
        parts = [prompt[len(shared) :] for prompt in prompts if prompt[: len(shared)] == shared]
        if len(parts) < len(prompts):
            raise Error(
                f"The template {template!r} cannot be tuned on {clip.id}, because its words are joined to the class "
                "name: put a space before {}.",
                code="template-invalid",
            )
        self._shared = torch.tensor(shared, device=device)
        self._groups = []
        for length in sorted({len(part) for part in parts}):
            members = [index for index, part in enumerate(parts) if len(part) == length]
            self._groups.append(_Group(members, torch.tensor([parts[index] for index in members], device=device)))
        by_group = torch.tensor([index for group in self._groups for index in group.classes], device=device)
        self._order = by_group.argsort()
        self.initial_context = self._embed(self._shared[1:]).detach()
        self.free: dict[str, torch.Tensor] = {CONTEXT: self.initial_context}

    def classify(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return raw features, one row per class, with `tensors` in place of the values of the prompts."""
        return self.encode(tensors[CONTEXT])

    def encode(self, context: torch.Tensor, deeper: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """Return raw features, one row per class, with `context` [n, width] in place of the first n prompt tokens.

        The tensors of `deeper`, each [n, width], replace the same positions at the input of the second layer, the third
        layer, and so on. The features are computed in the precision of the text tower and returned in single precision.
        """
        with own_precision(self._text):
            return in_single(self._encode(context, deeper), self._text)

    def _encode(self, context: torch.Tensor, deeper: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        start, rest = self._embed(self._shared[:1]), self._embed(self._shared[1 + len(context) :])
        places = self._embeddings.position_embedding.weight
        shared = (torch.cat([start, context, rest]) + places[: len(self._shared)])[None]
        memory: list[KeysValues] = []
        for number, layer in enumerate(self._layers):
            if 0 < number <= len(deeper):
                prompt = deeper[number - 1][None]
                shared = torch.cat([shared[:, :1], prompt, shared[:, 1 + prompt.shape[1] :]], dim=1)
            if number == len(self._layers) - 1:
                memory.append(keys_values(layer, shared))
            else:
                shared, own = causal_block(layer, shared)
                memory.append(own)
        ends = []
        for group in self._groups:
            length = group.tokens.shape[1]
            hidden = self._embed(group.tokens) + places[len(self._shared) : len(self._shared) + length]
            for layer, before in zip(self._layers[:-1], memory[:-1], strict=True):
                hidden, _ = causal_block(layer, hidden, before)
            ends.append(last_block(self._layers[-1], hidden, -1, memory[-1]))
        features: torch.Tensor = self._projection(self._norm(torch.cat(ends)[self._order]))
        return features

    def _embed(self, tokens: torch.Tensor) -> torch.Tensor:
        # Not cached, because an overlay may replace the embeddings.
        words: torch.Tensor = self._embeddings.token_embedding(tokens)
        return words


def _shared_tokens(clip: ClipFamily, template: str) -> list[int]:
    """Return the start token and the tokens of the words before {}."""
    words = template.partition("{}")[0].strip()
    if not words:
        raise Error(
            f'The template {template!r} has no words before {{}} to tune: use one such as "a photo of a {{}}.".',
            code="template-invalid",
        )
    tokens: list[int] = clip.tokens([words], ("{}",))[0][:-1]
    return tokens
