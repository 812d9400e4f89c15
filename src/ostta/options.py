"""Which options apply: explicit option > backbone's default > profile > default of the dataclass.

Methods and identifiers declare their options as frozen dataclasses; this module finds whose an option is, reads text values by
the declared type, and remembers where each value came from, so that a result file can say so.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .core.types import Error
from .files import is_unicode, parse_json
from .identifiers import IDENTIFIERS
from .methods import METHODS

# What the text of the paper says where the published code does something else. `reference` is the defaults of the dataclasses.
PROFILES: dict[str, dict[str, dict[str, Any]]] = {
    "reference": {},
    "paper": {
        "lda": {"objective": "unweighted", "groups": "strict"},
        "rosita": {"contrast_weight": 1.0, "normaliser": "matches"},
        "tpt": {"lr": 5e-4, "maple_lr": 5e-4},
        "tpt_c": {"update": "reliable"},
        "palign": {"maple_lr": 5e-4, "over": "all"},
        "palign_c": {"update": "reliable", "momentum": 0.0, "over": "all"},
        "prototypes": {"store": "reliable"},
        "tda": {"insert": "desired", "score": "cosine"},
        "dpe": {"score": "cosine"},
        "entropy": {"loss": "entropy"},
    },
}

# Plain bugs of the published code that are mended by default; the option's value "reference" brings each back.
MENDED_BUGS = {
    "dpe: gate": "the entropy of the evolution gate is divided by log2 of the feature width instead of the number of classes (D13)",
    "palign: blocks": "two of the three announced blocks are aligned, with the weight of three (D11)",
    "palign_c: blocks": "the same",
    "entropy: answer": "the class is named from the image's feature before the update and the classifier after it (D21)",
    "prototypes: unreliable": "a desired image that is not reliable takes a step on a loss of NaN, which moves nothing (D18)",
}

# Where paper and published code disagree: option -> number and what it is about, for `ostta ls profiles`.
DISAGREEMENTS: dict[str, dict[str, tuple[str, str]]] = {
    "lda": {
        "objective": ("D1", "variance of the two groups weighted by their size, or plainly summed"),
        "search": ("D1", "candidates on a grid of 100, or every gap between scores"),
        "groups": ("D8", "a score equal to a candidate counts in the upper group, or in neither"),
    },
    "rosita": {
        "contrast_weight": ("D2", "factor of L_D and L_U"),
        "normaliser": ("D3", "L_D divided by K, or by the matching positives K+"),
        "temperature": ("D4", "temperature of L_D and L_U: a symbol without a value in the paper"),
        "entropy_scale": ("D5", "factor on the cosines inside L_Re"),
        "neighbours": ("D6", "whether an image may be its own nearest positive"),
        "undesired_bank": ("D7", "size of the bank of unknown images; the paper's memory table implies 320"),
        "desired_bank": ("D31", "one shared bank of K times C, or K places a class"),
    },
    "tpt": {
        "lr": ("D9", "rate of the one AdamW step on a CLIP; TPT's own code has 0.005 too"),
        "maple_lr": ("D9", "the same on MaPLe"),
    },
    "tpt_c": {"update": ("D16", "which images the prompts are tuned on")},
    "palign": {
        "maple_lr": ("D10", "rate of the one AdamW step; the paper's is PromptAlign's for fine-grained sets"),
        "over": ("D11", "views whose token statistics are aligned"),
        "blocks": ("D11", "how many of the three announced blocks are aligned; `reference` is the published slip"),
    },
    "palign_c": {
        "update": ("D16", "which images the prompts are tuned on"),
        "momentum": ("D17", "momentum of SGD"),
        "over": ("D11", "views whose token statistics are aligned"),
        "blocks": ("D11", "how many of the three announced blocks are aligned; `reference` is the published slip"),
    },
    "prototypes": {
        "store": ("D18", "which undesired images enter the pool"),
        "wait": ("D18", "images before the first update; the paper names none"),
        "scale": ("D18", "factor on the cosines inside the loss"),
    },
    "tda": {
        "insert": ("D12", "which images enter the caches"),
        "score": ("D29", "what the score is the largest of"),
        "alpha": ("D15", "weight of the positive cache; upstream's differs by data set"),
        "entropy_window": ("D15", "entropies that enter the negative cache; upstream's upper bound is 0.5"),
    },
    "dpe": {
        "gate": ("D13", "what the entropy of the evolution gate is divided by; `reference` is the published slip"),
        "score": ("D29", "what the score is the largest of"),
        "alpha": ("D14", "weight of the cache; no upstream configuration has 2"),
        "align": ("D14", "weight of the alignment loss, switched off as published"),
    },
    "unient": {"scale": ("D19", "factor on the cosines inside the entropy")},
    "entropy": {
        "loss": ("D21", "what a confident image is trained on"),
        "answer": ("D21", "what the class is named from after the update; `reference` is the development code's slip"),
    },
    "adapter": {
        "precision": (
            "D32",
            "half precision for recorded classes and frozen scores, as on the authors' GPU; silent in the paper",
        ),
        "answer_from": ("D30", "the class is named after the update, or before it; the score is always from before"),
    },
}

# The methods whose scores the published code takes in half precision on a GPU; `precision=mixed` does so here (D32).
SCORES_IN_HALF = frozenset({"zero_shot", "tda", "dpe"})


# More than this is no number in single precision, and torch refuses to multiply by it.
LARGEST = 1e38


@dataclass(frozen=True)
class AdapterOptions:
    """Options of the adapter itself.

    answer_from: name the class "after" the update (published) or "before" it, which saves a forward (D30).
    templates: prompt templates, each with one {}; several, as a list (on the command line a JSON list), are averaged.
    precision: "single" throughout, or "mixed": half precision where the published code has it on a GPU, that is for the answer
        after an update and for the scores of zero_shot, tda and dpe (D32).
    class_scores: put the logits of all classes, by name, into each prediction.
    features: put the image's unit feature from before the update into each prediction.
    max_megapixels: a larger image is refused, from its header alone; images of data sets are refused above 64 in any case.
    """

    answer_from: Literal["after", "before"] = "after"
    templates: tuple[str, ...] = ("a photo of a {}.",)
    precision: Literal["single", "mixed"] = "single"
    class_scores: bool = False
    features: bool = False
    max_megapixels: float = 64.0

    def __post_init__(self) -> None:
        if self.max_megapixels <= 0:
            raise Error(f"`max_megapixels` must be more than 0, not {self.max_megapixels:g}.")


# Where an option's value can have come from.
SOURCES = ("explicit", "backbone", "profile", "default")


@dataclass(frozen=True)
class Resolved:
    """The options in force, and for each where its value came from, one of `SOURCES`."""

    method: Any
    identifier: Any
    adapter: AdapterOptions
    sources: dict[str, str]

    def values(self) -> dict[str, Any]:
        parts = (self.method, self.identifier, self.adapter)
        return {field.name: getattr(part, field.name) for part in parts for field in dataclasses.fields(part)}


def resolve(
    method: str,
    identifier: str,
    profile: str,
    explicit: Mapping[str, Any],
    backbone_defaults: Mapping[str, Mapping[str, Any]],
) -> Resolved:
    """The options of `method` and `identifier` by the order of precedence. Text values are read by the field's type."""
    pick(method, METHODS, "method")
    pick(identifier, IDENTIFIERS, "identifier")
    pick(profile, PROFILES, "profile")
    owners = {owner: options_class(owner) for owner in (method, identifier, "adapter")}
    known = [field.name for options in owners.values() for field in dataclasses.fields(options)]
    for name in explicit:
        if name not in known:
            raise Error(f"There is no option {name!r} for {method} with {identifier}{_nearest(name, known)}.")
    built: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for owner, options in owners.items():
        values: dict[str, Any] = {}
        layers = (
            ("profile", PROFILES[profile].get(owner, {})),
            ("backbone", backbone_defaults.get(owner, {})),
            ("explicit", explicit),
        )
        hints = types_of(options)
        for field in dataclasses.fields(options):
            sources[field.name] = "default"
            for layer, content in layers:
                if field.name in content:
                    values[field.name] = read_value(field.name, content[field.name], hints[field.name])
                    sources[field.name] = layer
        built[owner] = options(**values)
    return Resolved(built[method], built[identifier], built["adapter"], sources)


def canonical(method: str, identifier: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with each value as its type says, whether it came as text or as a number; what does not fit stays as it is.

    >>> canonical("rosita", "lda", {"lr": "1e-3", "losses": "re,d"})
    {'lr': 0.001, 'losses': ['re', 'd']}
    """
    if not given:
        return {}
    owners = [owner for owner in (method, identifier, "adapter") if owner in (*METHODS, *IDENTIFIERS, "adapter")]
    hints = {name: hint for owner in owners for name, hint in get_type_hints(options_class(owner)).items()}
    return {name: _canonical(name, value, hints.get(name)) for name, value in given.items()}


def _canonical(name: str, value: Any, hint: Any) -> Any:
    if hint is None:
        return value
    try:
        read = read_value(name, value, hint)
    except Error:
        # Whoever uses it will say so.
        return value
    return list(read) if isinstance(read, tuple) else read


def options_class(owner: str) -> Any:
    """The options dataclass of a method, an identifier or the adapter."""
    if owner in METHODS:
        return METHODS[owner].Options
    return IDENTIFIERS[owner][1] if owner in IDENTIFIERS else AdapterOptions


@cache
def types_of(options: type[Any]) -> dict[str, Any]:
    """The type of each option; worked out once, as reading annotations takes longer than all the rest."""
    return get_type_hints(options)


def pick(name: str, known: Iterable[str], kind: str) -> str:
    """`name` if it is known, else an Error that lists what is."""
    names = list(known)
    if name not in names:
        raise Error(f"There is no {kind} {name!r}{_nearest(name, names)}.")
    return name


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}" if close else f"; there are {', '.join(sorted(known))}"


def read_value(name: str, value: Any, hint: Any) -> Any:
    """`value` as the type `hint` says, from text or from Python; an Error where it does not fit."""
    origin = get_origin(hint)
    if origin is Literal:
        if value not in get_args(hint):
            raise Error(f"`{name}` is one of {', '.join(map(str, get_args(hint)))}, not {value!r}.")
        return value
    if origin is tuple:
        inner = get_args(hint)[0]
        entries = _entries(name, value, inner)
        return tuple(read_value(name, part.strip() if isinstance(part, str) else part, inner) for part in entries)
    if origin in (types.UnionType,):
        options = [option for option in get_args(hint) if option is not type(None)]
        return None if value in (None, "none") else read_value(name, value, options[0])
    try:
        if hint is bool:
            return {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]
        if hint is int and not isinstance(value, bool) and float(value) == int(float(value)):
            return int(float(value))
        if hint is float and not isinstance(value, bool):
            number = float(value)
            if abs(number) <= LARGEST:  # false for NaN
                return number
        if hint is str and isinstance(value, str) and is_unicode(value):
            return value
    except (TypeError, ValueError, KeyError, OverflowError):
        pass
    raise Error(f"`{name}` takes {word_for(hint)}, not {value!r}.")


def _entries(name: str, value: Any, inner: Any) -> list[Any]:
    """The entries of an option that takes several: of a list, of a JSON list as text, or of any other text.

    Words and numbers are separated by commas. Free text, whose type is `str`, may have commas of its own and is one entry.
    """
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        raise Error(f"`{name}` takes a list, not {value!r}.")
    if value.lstrip().startswith("["):
        with suppress(ValueError):
            listed: list[Any] = parse_json(value)
            if inner is not str or all(isinstance(entry, str) for entry in listed):
                return listed
    return [value] if inner is str else value.split(",")


def word_for(hint: Any) -> str:
    """What a value of that type is, for a sentence."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"a list, each {word_for(get_args(hint)[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}.get(hint, str(hint))


def rebuild(method: str, identifier: str, values: Mapping[str, Any], sources: Mapping[str, str]) -> Resolved:
    """The options that a state file recorded, values and sources alike, whatever today's profiles and defaults say."""
    resolved = resolve(method, identifier, "reference", values, {})
    return dataclasses.replace(resolved, sources={**resolved.sources, **sources})
