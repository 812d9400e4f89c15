"""What runs and streams are called where no suite gives them names: short, and different for what is different."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from ...core.types import Error
from ...data.names import parse_name
from ..file_model import FileModel
from ..spec import OF_THE_STREAM, RunSpec, name_of

# What of a spec is neither the stream's nor a name of its own in a table. A run's seed is part of its stream.
_STREAM = tuple(name for name in OF_THE_STREAM if name != "seed")
# Scenarios with a list of corruptions.
_LISTED = ("continual", "frequent", "smooth")
_METHOD = ("profile", "guard", "device", "dtype", "ahead", "method", "score", "identifier", "plugins")


def short(name: str) -> str:
    """A name without the folders before it.

    >>> short("folder:/data/pets"), short("mine/own.py:Mine"), short("openai/clip-vit-base-patch16")
    ('folder:pets', 'own.py:Mine', 'openai/clip-vit-base-patch16')
    """
    head, colon, rest = name.partition(":")
    if head.endswith(".py"):
        return f"{PurePath(head).name}:{rest}"
    return f"{head}:{PurePath(rest).name}" if colon and "/" in rest and head != "hub" else name


def stream_name(spec: RunSpec) -> str:
    """Known and unknown images, and how they come where that is not the usual.

    >>> stream_name(RunSpec(desired="cifar10c", undesired="svhn", limit=500))
    'cifar10c snow / svhn, limit 500'
    >>> stream_name(RunSpec(desired="folder:/data/pets", undesired=None, ratio=0.0))
    'folder:pets / none'
    """
    unknown = "none" if spec.undesired is None else short(spec.undesired)
    if spec.undesired_classes:
        unknown = f"{len(spec.undesired_classes)} of its classes"
    desired = short(spec.desired)
    if spec.scenario.kind == "domains":
        desired, unknown = "domains", "of each"
    elif spec.scenario.kind not in _LISTED and _corrupted(spec.desired):
        desired += f" {spec.corruption}" + ("" if spec.severity == 5 else f" {spec.severity}")
    parts = [f"{desired} / {unknown}"]
    if spec.scenario.kind != "single":
        parts.append(spec.scenario.kind)
    if spec.ratio != 1.0 and spec.undesired is not None:
        parts.append(f"ratio {spec.ratio:g}")
    if spec.limit is not None:
        parts.append(f"limit {spec.limit}")
    return ", ".join(parts)


def used_condition(spec: RunSpec) -> dict[str, Any]:
    """The corruption and severity of a spec; None where no image of the run has them.

    >>> used_condition(RunSpec(desired="cifar10c")), used_condition(RunSpec(desired="folder:/data/pets"))
    ({'corruption': 'snow', 'severity': 5}, {'corruption': None, 'severity': None})
    """
    kind, corrupted = spec.scenario.kind, any(_corrupted(name) for name in (spec.desired, spec.undesired) if name)
    # Domains have their own conditions, other changing scenarios have a list of corruptions, and a smooth path has severities too.
    return {
        "corruption": spec.corruption if corrupted and kind not in (*_LISTED, "domains") else None,
        "severity": spec.severity if corrupted and kind not in ("smooth", "domains") else None,
    }


def method_name(spec: RunSpec) -> str:
    """The method with score, identifier and guard where they are not the usual ones, and the options that were set.

    >>> method_name(RunSpec(method="rosita", options={"k": 3}))
    'rosita k=3'
    """
    named = spec.model_copy(update={"method": short(spec.method)})
    return " ".join([name_of(named), *(f"{name}={_text(value)}" for name, value in sorted(spec.options.items()))])


def stream_names(specs: Iterable[RunSpec]) -> dict[str, str]:
    """The names of the streams of `specs`, by `stream_key`; those that would be called the same say in what they differ.

    >>> [*stream_names([RunSpec(seed=0), RunSpec(seed=1), RunSpec(draw="images")]).values()]
    ['cifar10c snow / mnist (draw=order)', 'cifar10c snow / mnist (draw=images)']
    """
    return _distinct({stream_key(spec): spec for spec in specs}, stream_name, _STREAM)


def method_names(specs: Iterable[RunSpec]) -> dict[str, str]:
    """As `stream_names`, of the methods, by `method_key`."""
    return _distinct({method_key(spec): spec for spec in specs}, method_name, _METHOD)


def stream_key(spec: RunSpec) -> str:
    """What must be equal for two runs to be on one stream, whatever the seed."""
    return json.dumps(spec.model_dump(mode="json", include=set(_STREAM)), sort_keys=True)


def method_key(spec: RunSpec) -> str:
    """What must be equal for two runs to be of one method."""
    return json.dumps(spec.model_dump(mode="json", include={*_METHOD, "options"}), sort_keys=True)


def _distinct(specs: Mapping[str, RunSpec], name: Callable[[RunSpec], str], fields: Iterable[str]) -> dict[str, str]:
    alike: dict[str, list[str]] = {}
    for key, spec in specs.items():
        alike.setdefault(name(spec), []).append(key)
    named = {}
    for text, keys in alike.items():
        differ = [field for field in fields if len({_text(getattr(specs[key], field)) for key in keys}) > 1]
        for key in keys:
            more = " ".join(f"{field}={_text(getattr(specs[key], field))}" for field in differ)
            named[key] = f"{text} ({more})" if more else text
    return {key: named[key] for key in specs}


def _text(value: Any) -> str:
    """Without spaces, so that it is one word of a name."""
    if isinstance(value, list | tuple):
        return "+".join(map(_text, value))
    if isinstance(value, FileModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, default=str) if isinstance(value, dict) else str(value)


def _corrupted(name: str) -> bool:
    try:
        return parse_name(name).corrupted
    except Error:  # of a set that is not registered here
        return False
