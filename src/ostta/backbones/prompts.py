"""From class names to prompts, and from prompt embeddings to a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional

from ..core.types import Error
from ..io import is_unicode
from .protocol import Backbone, EncodesWords, ReadsPrompts, RelatesNames, TunablePrompts, TunesPrompts


def fill(classes: Sequence[str], templates: Sequence[str]) -> list[str]:
    """The prompts of the first class in every template, then those of the second, and so on."""
    if not classes:
        raise Error("There are no classes: give at least one name.")
    given = checked_templates(templates)
    # `replace` and not `format`: other braces in a template or a name are just characters.
    return [template.replace("{}", name.replace("_", " ")) for name in classes for template in given]


def checked_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """The templates, of which a text alone is one; an Error where there is none, or one that cannot be filled."""
    if isinstance(templates, str):
        templates = (templates,)
    if not isinstance(templates, Sequence):
        raise Error(f'Templates are a list of texts such as "a photo of a {{}}.", not {templates!r}.')
    if not templates:
        raise Error('There is no template: give at least one, such as "a photo of a {}.".')
    for template in templates:
        if not isinstance(template, str) or template.count("{}") != 1:
            raise Error(f'The template {_shown(template)} must contain {{}} exactly once, as in "a photo of a {{}}.".')
        if not is_unicode(template):
            raise Error(f"The template {_shown(template)} is not valid Unicode text: write it anew.")
    return tuple(templates)


def refuse_special_tokens(prompts: Sequence[str], tokens: Sequence[str], id: str) -> None:
    """A token such as <|endoftext|> inside a prompt would end it there: the tower would not read the rest of the name."""
    for prompt in prompts:
        for token in tokens:
            # Some tokenizers fill up with a plain character, such as "!", which is as good as any other in a name.
            if len(token) > 1 and token.lower() in prompt.lower():
                raise Error(
                    f"The prompt {_shown(prompt)} has {token!r} in it, which {id} reads as a sign and not as a word: "
                    "take it out of the class name or the template."
                )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def ensemble(features: torch.Tensor, classes: int) -> torch.Tensor:
    """Unit rows, one a class: the renormalised mean of the unit embeddings of its prompts, which `fill` put in order."""
    rows = functional.normalize(features, dim=-1)
    if len(rows) == classes:
        return rows
    return functional.normalize(rows.view(classes, -1, rows.shape[-1]).mean(1), dim=-1)


def classifier_of(
    backbone: Backbone, classes: Sequence[str], templates: Sequence[str], prompts: Mapping[str, Sequence[str]]
) -> torch.Tensor:
    """Unit rows, one a class: the renormalised mean of its `prompts`, and of its name in the templates where it has none."""
    if not prompts:
        return backbone.classifier(classes, templates)
    if not isinstance(backbone, ReadsPrompts):
        raise Error(
            f"The backbone {backbone.id} cannot read the descriptions of classes, as it has no text tower: give the names of the "
            "classes alone."
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
    """Unit text features of those `names` that the backbone can encode; empty where it has no text tower.

    A backbone that knows which names cover others leaves out the names of the classes and of their parts.
    """
    if isinstance(backbone, RelatesNames):
        names = backbone.other_words(names, classes)
    if not names:
        return {}
    if isinstance(backbone, EncodesWords):
        return backbone.encode_words(names)
    if not isinstance(backbone, ReadsPrompts):
        return {}
    return dict(zip(names, backbone.classifier(names, templates), strict=True))


def prompted(backbone: Backbone, classes: Sequence[str]) -> TunablePrompts:
    """The text tower of `backbone` from prompt vectors; an Error where it cannot be run from them."""
    if not isinstance(backbone, TunesPrompts):
        raise Error(
            f"The backbone {backbone.id} cannot tune prompts: that needs a text tower of the CLIP family, "
            'such as "openai/clip-vit-base-patch16" or "embedded".'
        )
    return backbone.prompted(classes)
