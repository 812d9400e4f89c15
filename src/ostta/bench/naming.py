"""Names of runs and streams, and the command of a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Literal

from ..config.resolve import canonical
from ..core.types import Error
from ..data.catalogue import CATALOGUE
from ..data.names import parse_name
from .spec import (
    FileModel,
    RunSpec,
    default_draw,
    fields_of,
    method_key,
    name_of,
    sets_of,
    stream_fields,
    stream_key,
)

# Scenarios with a list of corruptions.
_LISTED = ("continual", "frequent", "smooth")
_BURST_LENGTHS = RunSpec.model_fields["burst_lengths"].default


def short(name: str) -> str:
    """Return a name without its folders.

    >>> short("folder:/data/pets"), short("mine/own.py:Mine"), short("openai/clip-vit-base-patch16")
    ('folder:pets', 'own.py:Mine', 'openai/clip-vit-base-patch16')
    """
    head, colon, rest = name.partition(":")
    if head.endswith(".py"):
        return f"{PurePath(head).name}:{rest}"
    return f"{head}:{PurePath(rest).name}" if colon and "/" in rest and head != "hub" else name


def file_name(text: str) -> str:
    """Return a text as part of a file name.

    >>> file_name("openai/clip-vit-base-patch16")
    'openai-clip-vit-base-patch16'
    """
    return "".join(character if character.isalnum() or character in "_-" else "-" for character in text)


def stream_name(spec: RunSpec) -> str:
    """Return the data sets of a stream, and its settings that differ from the defaults.

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
    parts += _arrangement(spec)
    if spec.ratio != 1.0 and spec.undesired is not None:
        parts.append(f"ratio {spec.ratio:g}")
    if spec.limit is not None:
        parts.append(f"limit {spec.limit}")
    return ", ".join(parts)


def _arrangement(spec: RunSpec) -> list[str]:
    """Return the arrangement of a stream in words; nothing for a shuffled one."""
    if spec.arrangement == "shuffled":
        return []
    low, high = spec.burst_lengths
    lengths = f" of {low} to {high}" if spec.arrangement == "bursts" and (low, high) != _BURST_LENGTHS else ""
    return [f"arrangement {spec.arrangement}{lengths}"]


def seeds_text(seeds: Collection[int]) -> str:
    """Return the seeds in words.

    >>> seeds_text([0]), seeds_text([0, 1])
    ('seed 0', 'seeds 0, 1')
    """
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def run_title(spec: RunSpec) -> str:
    """Return the name, the stream and the seed of a run.

    >>> run_title(RunSpec(method="tda", desired="cifar10c", undesired="svhn", seed=2))
    'tda, cifar10c snow / svhn, seed 2'
    """
    return f"{name_of(spec)}, {stream_name(spec)}, seed {spec.seed}"


def used_condition(spec: RunSpec) -> dict[str, Any]:
    """Return corruption and severity of a spec; None if no image of the run has them.

    >>> used_condition(RunSpec(desired="cifar10c")), used_condition(RunSpec(desired="folder:/data/pets"))
    ({'corruption': 'snow', 'severity': 5}, {'corruption': None, 'severity': None})
    """
    kind, corrupted = spec.scenario.kind, any(_corrupted(name) for name in (spec.desired, spec.undesired) if name)
    # Domains have conditions of their own; other changing scenarios have a list of corruptions, and a path severities.
    return {
        "corruption": spec.corruption if corrupted and kind not in (*_LISTED, "domains") else None,
        "severity": spec.severity if corrupted and kind not in ("smooth", "domains") else None,
    }


def method_name(spec: RunSpec) -> str:
    """Return the method, with score, identifier and guard that differ from the defaults, and the options that are set.

    >>> method_name(RunSpec(method="rosita", options={"k": 3}))
    'rosita k=3'
    """
    named = spec.model_copy(update={"method": short(spec.method)})
    return " ".join([name_of(named), *(f"{name}={_text(value)}" for name, value in sorted(spec.options.items()))])


def stream_names(specs: Iterable[RunSpec]) -> dict[str, str]:
    """Return the names of the streams of `specs` by `stream_key`. Equal names are followed by their differences.

    >>> [*stream_names([RunSpec(seed=0), RunSpec(seed=1), RunSpec(draw="images")]).values()]
    ['cifar10c snow / mnist (draw=order)', 'cifar10c snow / mnist (draw=images)']
    """
    return _distinct({stream_key(spec): spec for spec in specs}, stream_name, stream_fields())


def method_names(specs: Iterable[RunSpec]) -> dict[str, str]:
    """Return the names of the methods by `method_key`, as `stream_names`."""
    return _distinct({method_key(spec): spec for spec in specs}, method_name, fields_of("method", "machine"))


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
    """Return a value as text without spaces."""
    if isinstance(value, list | tuple):
        return "+".join(map(_text, value))
    if isinstance(value, FileModel):
        value = value.model_dump(mode="json")
    return json.dumps(value, sort_keys=True, default=str) if isinstance(value, dict) else str(value)


def _corrupted(name: str) -> bool:
    try:
        return parse_name(name).corrupted
    except Error:  # the data set is not registered here
        return False


# Options of `ostta run` by field of a scenario.
_FLAGS = {
    "corruptions": "corruptions",
    "images": "images-per-domain",
    "speed": "speed",
    "undesired_corruption": "undesired-corruption",
}


def run_command(spec: RunSpec) -> str | None:
    """Return the command `ostta run` of a spec; None if only a suite can describe the run.

    >>> sets = {"desired": "sample:cifar10c", "undesired": "sample:mnist"}
    >>> run_command(RunSpec(method="tda", **sets, limit=50, options={"shots": 5}))
    'ostta run --method tda --desired sample:cifar10c --undesired sample:mnist --limit 50 --set shots=5'
    """
    try:
        fields = {name: getattr(spec, name) for name in fields_of("stream") if name != "draw"}
        draw = default_draw(fields)
    except Error:
        return None
    options, scenario, sides = _option_texts(spec), _scenario_flags(spec), _side_flags(spec)
    if options is None or scenario is None or sides is None:
        return None

    def flags(*names: str) -> list[str]:
        fields = RunSpec.model_fields
        return [flag for name in names for flag in _flag(name, getattr(spec, name), fields[name].default)]

    parts = ["ostta run", *flags("backbone"), f"--method {shlex.quote(spec.method)}", *flags("score")]
    # Without a name, the identifier is that of the profile.
    parts += _flag("identifier", spec.identifier) if spec.profile != "reference" else flags("identifier")
    parts += flags("profile") + sides + flags("corruption", "severity") + _flag("ratio", f"{spec.ratio:g}", "1")
    parts += flags("limit") + scenario + flags("arrangement")
    if spec.burst_lengths != _BURST_LENGTHS:
        parts.append(f"--burst-lengths {_option_text(spec.burst_lengths)}")
    parts += _flag("draw", spec.draw, draw) + flags("seed", "device", "dtype", "ahead")
    parts += ["--guard"] if spec.guard else []
    parts += [f"--set {shlex.quote(f'{name}={value}')}" for name, value in options.items()]
    return " ".join(parts)


def needs_data(spec: RunSpec) -> bool:
    """Return whether the run needs `--data`.

    >>> needs_data(RunSpec()), needs_data(RunSpec(desired="sample:cifar10c", undesired="sample:mnist"))
    (True, False)
    """
    try:
        return any(parse_name(name).kind == "known" for name in (spec.desired, spec.undesired) if name is not None)
    except Error:  # the data set is not registered here
        return True


def _flag(name: str, value: object, default: object = None) -> list[str]:
    return [] if value == default else [f"--{name} {shlex.quote(str(value))}"]


def _side_flags(spec: RunSpec) -> list[str] | None:
    # The command line splits class names at commas.
    split = any("," in name for name in [*(spec.classes or ()), *(spec.undesired_classes or ())])
    if split or (spec.undesired is None) != (spec.ratio == 0):
        return None
    unknown, known = (None if names is None else ",".join(names) for names in (spec.undesired_classes, spec.classes))
    undesired = _flag("undesired", spec.undesired) if unknown is None else _flag("undesired-classes", unknown)
    return [*_flag("desired", spec.desired), *undesired, *_flag("classes", known)]


def _option_texts(spec: RunSpec) -> dict[str, str] | None:
    """Return the options as texts; None if a text would not be read as the same value."""
    texts = {name: _option_text(value) for name, value in spec.options.items()}
    try:
        return texts if canonical(spec.method, spec.score, spec.identifier, texts) == spec.options else None
    except Error:
        return None


def _option_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def _scenario_flags(spec: RunSpec) -> list[str] | None:
    scenario = spec.scenario
    if scenario.kind == "domains":
        return None
    plain = type(scenario)()
    given = {name: getattr(scenario, name) for name in _FLAGS if name in type(scenario).model_fields}
    if plain.model_copy(update=given) != scenario:
        return None
    parts = _flag("scenario", scenario.kind, "single")
    for name, value in given.items():
        if value != getattr(plain, name):
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            parts.append(f"--{_FLAGS[name]} {shlex.quote(text)}")
    return parts


def choice_remark(spec: RunSpec) -> str:
    """Return a remark about choosing values of options on the stream of `spec`.

    >>> choice_remark(RunSpec(desired="cifar10c:train", undesired="mnist:train")).partition(" (")[0]
    'Values of options were compared on training images'
    """
    where, kind = shown_stream(spec), images_of_stream(spec)
    if kind == "test":
        return (
            f"WARNING: values of options were compared on test images ({where}). The best value looks better on this "
            "stream than it is: do not report its figure. Choose on training images, such as cifar10c:train, and "
            "report on test images."
        )
    if kind == "own":
        return (
            f"Values of options were compared on {where}. The best value looks better on these images than on others: "
            "report it on images that were not used for the choice."
        )
    return f"Values of options were compared on training images ({where}): report the best value on test images."


def shown_stream(spec: RunSpec) -> str:
    """Return a short description of the stream of a run.

    >>> shown_stream(RunSpec(undesired="svhn", limit=500))
    'cifar10c under snow 5 against svhn, 500 desired images'
    """
    if spec.scenario.kind == "domains":
        known = " and ".join(dict.fromkeys(domain.desired for domain in spec.scenario.domains))
    else:
        known = spec.desired
        if spec.scenario.kind == "single" and parse_name(known).corrupted:
            known += f" under {spec.corruption} {spec.severity}"
    kind = "" if spec.scenario.kind == "single" else f", scenario {spec.scenario.kind}"
    kind += "".join(f", {text}" for text in _arrangement(spec))
    images = "" if spec.limit is None else f", {spec.limit:,} desired images"
    unknown = "no undesired images" if spec.undesired is None else spec.undesired
    return f"{known} against {unknown}{kind}{images}"


def images_of_stream(spec: RunSpec) -> Literal["test", "own", "training"]:
    """Return whether any image of a stream is a test image, otherwise whether any is of a user's own set."""
    kinds = set()
    for name in map(parse_name, sets_of(spec)):
        if name.kind == "known":
            split = name.split or next(iter(CATALOGUE[name.base].splits))
            kinds.add("training" if "train" in split else "test")
        else:
            kinds.add("test" if name.kind == "sample" else "own")
    return "test" if "test" in kinds else "own" if "own" in kinds else "training"
