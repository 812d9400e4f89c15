"""Build the parts of an adapter: classifier, method, score, identifier, memory, guard and pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .backbones.prompts import classifier_of, words_of
from .backbones.protocol import Backbone
from .backbones.wrapped import Texts
from .centre import centre_of
from .config.registry import Components, find_components
from .config.resolve import Resolved, resolve
from .core.levels import Levels
from .core.overlay import encode, learning, lock_of
from .core.types import Error
from .guard import Guard
from .identifiers import Identifier
from .identifiers.lda import LDAOptions
from .memory import Memory
from .methods.base import Method, Restarts
from .scores import Score, Setting
from .step import Pipeline


def build_pipeline(
    backbone: Backbone,
    classes: Sequence[str],
    prompts: Mapping[str, Sequence[str]],
    choice: Components,
    resolved: Resolved,
    words: Texts | None,
    seed: int,
) -> Pipeline:
    """Return the pipeline of an adapter; raise an Error if its parts cannot work together."""
    options = resolved.adapter
    if backbone.dtype != torch.float32 and options.precision == "mixed":
        raise Error(
            f"`precision=mixed` cannot be combined with the backbone {backbone.id} in {backbone.dtype}: load it in "
            "float32, or leave out `precision`.",
            code="option-conflict",
        )
    # Under the lock, because another thread may have replaced the values of the towers by its overlay.
    with learning(), lock_of(backbone.vision):
        classifier = classifier_of(backbone, classes, options.templates, prompts)
        method: Method = choice.method.of(backbone, classifier, classes, resolved.method)
        setting = score_setting(backbone, classifier, classes, method, options.templates, words)
        score: Score = choice.score.of(resolved.score, setting)
        identifier: Identifier = choice.identifier.of(resolved.identifier, scale=score.scale)
        levels = Levels(len(classes)) if options.answer == "levelled" else None
        memory = Memory(method, score, identifier, levels, options.reset_every)
    if options.accept and identifier.peek(0.0).probability is None:
        raise Error(
            f"`accept` needs probabilities, and the identifier {choice.identifier.name!r} has none: use 'field'.",
            code="option-conflict",
        )
    if options.reset_every and not isinstance(memory.state, Restarts):
        raise Error(
            f"{choice.method.name} keeps no trained values, so `reset_every` has no effect: leave it out.",
            code="option-conflict",
        )
    guard = None
    if resolved.guard is not None:
        guard = Guard(resolved.guard, classifier, _lda_options(backbone, resolved), memory.trained)
    return Pipeline(backbone, classes, classifier, memory, guard, options, seed)


def _lda_options(backbone: Backbone, resolved: Resolved) -> LDAOptions:
    """Return the options of the adapter's LDA; with another identifier, those that the backbone recommends for LDA."""
    if isinstance(resolved.identifier, LDAOptions):
        return resolved.identifier
    of_lda = resolve(find_components("zero_shot", "max", "lda"), "reference", {}, backbone.defaults).identifier
    assert isinstance(of_lda, LDAOptions)
    return of_lda


def score_setting(
    backbone: Backbone,
    classifier: torch.Tensor,
    classes: Sequence[str],
    method: Method,
    templates: Sequence[str],
    words: Texts | None,
) -> Setting:
    """Return the inputs that are available to a score; `words` are embeddings that the caller passed."""

    def encode_frozen(images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return encode(backbone.vision, images.to(classifier.device), None)

    def encode_words(names: Sequence[str]) -> Mapping[str, torch.Tensor]:
        if words is None:
            return words_of(backbone, names, templates, classes)
        known = words.known(names)
        return dict(zip(known, words.rows(known), strict=True)) if known else {}

    return Setting(
        classifier,
        backbone.logit_scale,
        method.largest_score,
        backbone.preprocessing,
        encode_frozen,
        encode_words,
        lambda: centre_of(backbone),
    )
