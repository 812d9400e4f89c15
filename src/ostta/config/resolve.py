"""Resolve options: explicit value > default of the backbone > profile > default of the options class.

This module assigns each given option to its owner, parses text by the declared type, and records the source of each
value for result files. All options classes can be imported from this module:

>>> RositaOptions(lr=1e-4).lr
0.0001
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args, get_origin

from ..acceptance import accept_lines
from ..core.checks import shown
from ..core.types import Error
from ..field import FieldIdentifierOptions, FieldOptions
from ..guard.options import GuardOptions
from ..identifiers import AllOptions, DAFOptions, LDAOptions, MSPOptions
from ..io import is_unicode, parse_json
from ..methods.dpe import DPEOptions
from ..methods.entropy import EntropyOptions
from ..methods.palign import PAlignCOptions, PAlignOptions
from ..methods.prototypes import PrototypesOptions
from ..methods.rosita import RositaOptions
from ..methods.tda import TDAOptions
from ..methods.tpt import TPTCOptions, TPTOptions
from ..methods.unient import UniEntOptions
from ..methods.zero_shot import ZeroShotOptions
from ..rivals import (
    AdaNDOptions,
    CLIPTTAOptions,
    DartOptions,
    DetectorOptions,
    DictionaryOptions,
    OGAOptions,
    OnZetaOptions,
)
from ..scores import (
    EnergyOptions,
    MaxOptions,
    MaxSoftmaxOptions,
    MCMOptions,
)
from .declare import PROFILES, Options, describe_type, option, profile_values, types_of
from .registry import COMPONENT_KINDS, Components, find_components, list_components, require_known, suggest

__all__ = [
    "AdaNDOptions", "AdapterOptions", "AllOptions", "CLIPTTAOptions", "DAFOptions", "DPEOptions",
    "DartOptions", "DetectorOptions", "DictionaryOptions", "EnergyOptions", "EntropyOptions",
    "FieldIdentifierOptions", "FieldOptions", "GuardOptions", "LDAOptions", "MCMOptions", "MSPOptions", "MaxOptions",
    "MaxSoftmaxOptions", "OGAOptions", "OnZetaOptions", "Options", "PAlignCOptions",
    "PAlignOptions", "PrototypesOptions", "Resolved", "RositaOptions", "TDAOptions", "TPTCOptions", "TPTOptions",
    "UniEntOptions", "ZeroShotOptions", "option", "resolve",
]  # fmt: skip

# Larger numbers cannot be represented in single precision.
LARGEST = 1e38


@dataclass(frozen=True)
class AdapterOptions(Options):
    """Options of the adapter."""

    answer_from: Literal["after", "before"] = option(
        "after",
        number="D30",
        about="whether the class is predicted before or after the update; the score is always from before",
    )
    answer: Literal["own", "levelled"] = option(
        "own",
        field="levelled",
        about="class prediction: own takes the class with the largest logit of the method; levelled "
        "first subtracts the mean logit of each class on the stream. The score and the updates do"
        " not change",
    )
    templates: tuple[str, ...] = option(
        ("a photo of a {}.",),
        number="D28",
        about="prompt templates, each with one {}; several templates (a JSON list on the command line) are averaged",
    )
    descriptions: tuple[str, ...] = option(
        (),
        about='prompts of a class that replace its name in the templates and are averaged, as "cat: a photo of a house '
        'cat; a kitten"; `classes` as a dictionary or a file of descriptions sets it',
    )
    precision: Literal["single", "mixed"] = option(
        "single",
        number="D32",
        published="mixed",
        about="half precision for class embeddings and frozen scores if mixed, as on the authors' GPU",
    )
    accept: tuple[str, ...] = option(
        (),
        about='smallest probability of an image that is accepted as known, as "0.8", or for one class as "person: '
        '0.9"; 0.5 by default',
    )
    class_probabilities: bool = option(
        False, about="put the probabilities of all classes, by name, into each prediction"
    )
    class_scores: bool = option(False, about="put the logits of all classes, by name, into each prediction")
    features: bool = option(False, about="put the image's unit feature from before the update into each prediction")
    reset_every: int = option(
        0,
        bounds=(0, 10**15),
        about="number of updates after which trained parameters, scores and features are reset; 0 means never",
    )
    max_megapixels: float = option(
        64.0,
        above=0,
        about="images with more megapixels are refused before decoding; images of data sets are limited to 64",
    )


# Sources of the value of an option.
SOURCES = ("explicit", "backbone", "profile", "default")
# Options by owner ("method", "score", "identifier", "adapter" and, if it is on, "guard") and name.
OptionsByOwner = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Resolved:
    """Resolved options, and the source of each value (one of `SOURCES`); `guard` is None if it is off."""

    method: Any
    score: Any
    identifier: Any
    adapter: AdapterOptions
    sources: OptionsByOwner
    guard: GuardOptions | None = None

    def values(self) -> OptionsByOwner:
        owned = {"method": self.method, "score": self.score, "identifier": self.identifier, "adapter": self.adapter}
        owned |= {} if self.guard is None else {"guard": self.guard}
        return {
            owner: {field.name: getattr(of, field.name) for field in dataclasses.fields(of)}
            for owner, of in owned.items()
        }


# Options of a user: values by name, an options object, or several objects. All fields of an object count as given.
UserOptions = Mapping[str, Any] | Options | Sequence[Options]


def resolve(
    choice: Components,
    profile: str,
    given: UserOptions,
    backbone_defaults: Mapping[str, Mapping[str, Any]],
    keywords: Mapping[str, Any] | None = None,
    guard: bool = False,
) -> Resolved:
    """Resolve the options of the components by precedence. Text is parsed by the type of the option.

    `guard` says whether the guard is on and has options. If two owners have an option of the same name, the option is
    given with its owner, for example as `score.name`.
    """
    require_known(profile, PROFILES, "profile")
    owned = options_classes(choice, guard)
    explicit = _by_owner(choice, owned, _explicit(list(owned.values()), given, keywords or {}))
    names: dict[str, str] = {owner: part.name for owner, part in choice.parts().items()}
    built, sources = dict[str, Any](), OptionsByOwner()
    for owner, options in owned.items():
        values: dict[str, Any] = {}
        layers = (
            ("profile", profile_values(options, profile)),
            ("backbone", backbone_defaults.get(names.get(owner, owner), {})),
            ("explicit", explicit[owner]),
        )
        hints = types_of(options)
        sources[owner] = {}
        for field in dataclasses.fields(options):
            sources[owner][field.name] = "default"
            for layer, content in layers:
                if field.name in content:
                    values[field.name] = read_value(field.name, content[field.name], hints[field.name])
                    sources[owner][field.name] = layer
        built[owner] = options(**values)
    return Resolved(**built, sources=sources)


def options_classes(choice: Components, guard: bool = False) -> dict[str, Any]:
    """Return the options classes of the components, of the adapter, and of the guard if it is on."""
    own: dict[str, Any] = {owner: part.options for owner, part in choice.parts().items()}
    return {**own, "adapter": AdapterOptions, **({"guard": GuardOptions} if guard else {})}


def _by_owner(choice: Components, owned: Mapping[str, type[Any]], explicit: Mapping[str, Any]) -> OptionsByOwner:
    """Group values that were given by name, or as `owner.name`, by owner. `owned` are the options classes by owner."""
    names = {owner: [field.name for field in dataclasses.fields(options)] for owner, options in owned.items()}
    by_owner: OptionsByOwner = {owner: {} for owner in owned}
    for full, value in explicit.items():
        prefix, _, name = str(full).rpartition(".")
        owners = [owner for owner in owned if name in names[owner] and prefix in ("", owner)]
        if not owners and prefix in ("", "guard") and name in types_of(GuardOptions):
            raise Error(
                f"`{name}` is an option of the guard, which is off: give it with `guard=True`.", code="guard-off"
            )
        if not owners:
            raise Error(_unknown_option(choice, full, list(chain(*names.values()))), code="option-unknown")
        if len(owners) > 1:
            ways = " or ".join(f"`{owner}.{name}`" for owner in owners)
            raise Error(
                f"`{name}` is an option of the {' and of the '.join(owners)}: write {ways}.", code="option-ambiguous"
            )
        if name in by_owner[owners[0]]:
            raise Error(f"`{name}` is given twice.", code="option-repeated")
        by_owner[owners[0]][name] = value
    return by_owner


def _unknown_option(choice: Components, name: Any, known: list[str]) -> str:
    """Return the message about an option that no owner has."""
    methods = [component.name for component in list_components("method")[0] if name in types_of(component.options)]
    hint = f"; it is an option of {', '.join(methods)}: name the method" if methods else suggest(str(name), known)
    components = f"{choice.method.name} with {choice.score.name} and {choice.identifier.name}"
    return f"There is no option {name!r} for {components}{hint}."


def _explicit(classes: Sequence[type[Any]], given: UserOptions, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return all given values by name."""
    explicit = dict(keywords)
    if isinstance(given, Mapping):
        _add(explicit, given, "`options`")
        return explicit
    objects: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    for one in objects:
        if type(one) not in classes:
            names = [options.__name__ for options in classes if dataclasses.fields(options)]
            raise Error(
                f"`options` must be values by name or objects of {', '.join(names[:-1])} or {names[-1]}, not "
                f"{shown(one)}.",
                code="options-invalid",
            )
        values = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
        _add(explicit, values, f"the object of {type(one).__name__}, which sets all its options,")
    return explicit


def _add(explicit: dict[str, Any], values: Mapping[str, Any], source: str) -> None:
    for name in values:
        if name in explicit:
            raise Error(f"`{name}` is given twice: {source} has it too.", code="option-repeated")
    explicit.update(values)


def canonical(
    method: str | type[Any], score: str | type[Any] | None, identifier: str | type[Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `given` with values converted to the types of the options; invalid values stay unchanged.

    >>> canonical("rosita", None, "lda", {"lr": "1e-3", "losses": "re,d"})
    {'lr': 0.001, 'losses': ['re', 'd']}
    """
    if not given:
        return {}
    try:
        owned = options_classes(find_components(method, score, identifier), guard=True)
    except Error:  # raised again when the components are used
        return dict(given)
    hints: dict[str, Any] = {}
    for owner, options in reversed(owned.items()):  # components take precedence over the guard, which may be off
        for name, hint in types_of(options).items():
            hints |= {name: hint, f"{owner}.{name}": hint}
    return {name: _canonical(name, value, hints.get(name)) for name, value in given.items()}


def _canonical(name: str, value: Any, hint: Any) -> Any:
    if hint is None:
        return value
    try:
        read = read_value(name, value, hint)
    except Error:  # raised again when the value is used
        return value
    return list(read) if isinstance(read, tuple) else read


def list_options_classes() -> dict[str, Any]:
    """Return the options classes of all scores, identifiers and methods, of the adapter and of the guard, by name."""
    components = [component for kind in COMPONENT_KINDS for component in list_components(kind)[0]]
    classes = {component.name: component.options for component in components}
    # If a score and an identifier have the same name, at most one of them has options.
    classes |= {component.name: component.options for component in components if dataclasses.fields(component.options)}
    return {**classes, "adapter": AdapterOptions, "guard": GuardOptions}


def read_value(name: str, value: Any, hint: Any) -> Any:
    """Convert `value`, text or a Python object, to the type `hint`; raise an Error if it does not fit."""
    origin = get_origin(hint)
    if origin is Literal:
        if value not in get_args(hint):
            raise Error(f"`{name}` must be {describe_type(hint)}, not {value!r}.", code="option-invalid")
        return value
    if origin is tuple:
        inner = get_args(hint)[0]
        if name.removeprefix("adapter.") == "accept":
            value = accept_lines(value)
        entries = _entries(name, value, inner)
        return tuple(read_value(name, part.strip() if isinstance(part, str) else part, inner) for part in entries)
    if origin is types.UnionType:
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
    raise Error(f"`{name}` must be {describe_type(hint)}, not {value!r}.", code="option-invalid")


def _entries(name: str, value: Any, inner: Any) -> list[Any]:
    """Return the entries of a list option, given as a list, as the text of a JSON list, or as other text.

    Choices and numbers are separated by commas. Free text (type `str`) may contain commas and is a single entry.
    """
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        raise Error(f"`{name}` must be a list, not {value!r}.", code="option-invalid")
    if value.lstrip().startswith("["):
        with suppress(ValueError):
            entries: list[Any] = parse_json(value)
            if inner is not str or all(isinstance(entry, str) for entry in entries):
                return entries
    return [value] if inner is str else value.split(",")


def rebuild(choice: Components, values: Mapping[str, Mapping[str, Any]], sources: OptionsByOwner) -> Resolved:
    """Return the options of a state file with their recorded values and sources."""
    flat = {f"{owner}.{name}": value for owner, named in values.items() for name, value in named.items()}
    resolved = resolve(choice, "reference", flat, {}, guard="guard" in values)
    return dataclasses.replace(
        resolved, sources={owner: {**own, **sources.get(owner, {})} for owner, own in resolved.sources.items()}
    )
