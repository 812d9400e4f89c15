"""Names of runs and streams, and the command that carries out a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from ..config.resolve import canonical
from ..core.types import Error
from ..data.catalogue import CATALOGUE
from ..data.names import parse_name
from .file_model import FileModel
from .scenario import DomainsScenario
from .spec import RunSpec, fields_of, method_key, name_of, sets_of, stream_fields, stream_key, usual_draw

# Scenarios with a list of corruptions.
_LISTED = ("continual", "frequent", "smooth")


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
    return _distinct({stream_key(spec): spec for spec in specs}, stream_name, stream_fields())


def method_names(specs: Iterable[RunSpec]) -> dict[str, str]:
    """As `stream_names`, of the methods, by `method_key`."""
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


# What `ostta run` can say of a scenario, by field.
_FLAGS = {
    "corruptions": "corruptions",
    "images": "images-per-domain",
    "speed": "speed",
    "undesired_corruption": "undesired-corruption",
}


def run_command(spec: RunSpec) -> str | None:
    """`ostta run` with all that it takes; None for runs that only a suite can ask for.

    >>> run_command(RunSpec(method="tda", desired="sample:cifar10c", undesired="sample:mnist", limit=50, options={"shots": 5}))
    'ostta run --method tda --desired sample:cifar10c --undesired sample:mnist --limit 50 --set shots=5'
    """
    try:
        fields = {name: getattr(spec, name) for name in fields_of("stream") if name != "draw"}
        draw = usual_draw(fields)
    except Error:
        return None
    options, scenario, sides = _option_texts(spec), _scenario_flags(spec), _side_flags(spec)
    if options is None or scenario is None or sides is None:
        return None
    parts = ["ostta run", *_named("backbone", spec.backbone, "embedded"), f"--method {shlex.quote(spec.method)}"]
    parts += _named("score", spec.score, None)
    if spec.profile != "reference" or spec.identifier != "lda":
        parts.append(f"--identifier {shlex.quote(spec.identifier)}")
    parts += _named("profile", spec.profile, "reference")
    parts += sides
    parts += _named("corruption", spec.corruption, "snow") + _named("severity", spec.severity, 5)
    parts += _named("ratio", f"{spec.ratio:g}", "1") + _named("limit", spec.limit, None)
    parts += scenario
    parts += _named("draw", spec.draw, draw) + _named("seed", spec.seed, 0)
    parts += _named("device", spec.device, "cpu") + _named("dtype", spec.dtype, "float32")
    parts += _named("ahead", spec.ahead, 1)
    parts += ["--guard"] if spec.guard else []
    parts += [f"--set {shlex.quote(f'{name}={value}')}" for name, value in options.items()]
    return " ".join(parts)


def needs_data(spec: RunSpec) -> bool:
    """Whether the run needs `--data`.

    >>> needs_data(RunSpec()), needs_data(RunSpec(desired="sample:cifar10c", undesired="sample:mnist"))
    (True, False)
    """
    try:
        return any(parse_name(name).kind == "known" for name in (spec.desired, spec.undesired) if name is not None)
    except Error:  # a set from a package that is not here
        return True


def _named(name: str, value: object, usual: object) -> list[str]:
    return [] if value == usual else [f"--{name.replace('_', '-')} {shlex.quote(str(value))}"]


def _side_flags(spec: RunSpec) -> list[str] | None:
    parts = [f"--desired {shlex.quote(spec.desired)}"]
    if (spec.undesired is None) != (spec.ratio == 0):
        return None
    if spec.undesired_classes is not None:
        parts.append(f"--undesired-classes {shlex.quote(','.join(spec.undesired_classes))}")
    elif spec.undesired is not None:
        parts.append(f"--undesired {shlex.quote(spec.undesired)}")
    if spec.classes is not None:
        parts.append(f"--classes {shlex.quote(','.join(spec.classes))}")
    # A comma in a name would split it.
    return None if any("," in name for name in [*(spec.classes or ()), *(spec.undesired_classes or ())]) else parts


def _option_texts(spec: RunSpec) -> dict[str, str] | None:
    """As texts; None where a text does not mean the value again."""
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
    wanted = spec.scenario
    if isinstance(wanted, DomainsScenario):
        return None
    plain = type(wanted)()
    given = {name: getattr(wanted, name) for name in _FLAGS if name in type(wanted).model_fields}
    if plain.model_copy(update=given) != wanted:
        return None
    parts = _named("scenario", wanted.kind, "single")
    for name, value in given.items():
        if value != getattr(plain, name):
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            parts.append(f"--{_FLAGS[name]} {shlex.quote(text)}")
    return parts


WARNING = "WARNING:"


def choice_remark(spec: RunSpec) -> str:
    """What it means to choose values of options on the stream of `spec`.

    >>> choice_remark(RunSpec(desired="cifar10c:train", undesired="mnist:train"))
    'Values of options were compared on training images (cifar10c:train under snow 5 against mnist:train): report the chosen one on test images.'
    """
    where, sides = shown_stream(spec), {images_of(name) for name in sets_of(spec)}
    if "test" in sides:
        return (
            f"{WARNING} values of options were compared on test images ({where}). The best of them looks better here than it is: do "
            "not report its figure on this stream. Choose on training images, such as cifar10c:train, and report on test images."
        )
    if "own" in sides:
        return (
            f"Values of options were compared on {where}. The best of them looks better on these images than on others: report it on "
            "images that had no part in the choice."
        )
    return f"Values of options were compared on training images ({where}): report the chosen one on test images."


def shown_stream(spec: RunSpec) -> str:
    """The stream of a run in a few words.

    >>> shown_stream(RunSpec(undesired="svhn", limit=500))
    'cifar10c under snow 5 against svhn, 500 desired images'
    """
    if isinstance(spec.scenario, DomainsScenario):
        known = " and ".join(dict.fromkeys(domain.desired for domain in spec.scenario.domains))
    else:
        known = spec.desired
        if spec.scenario.kind == "single" and parse_name(known).corrupted:
            known += f" under {spec.corruption} {spec.severity}"
    kind = "" if spec.scenario.kind == "single" else f", scenario {spec.scenario.kind}"
    images = "" if spec.limit is None else f", {spec.limit:,} desired images"
    unknown = "no undesired images" if spec.undesired is None else spec.undesired
    return f"{known} against {unknown}{kind}{images}"


def images_of(name: str) -> str:
    """Whether a set has test images, training images, or images of one's own."""
    parsed = parse_name(name)
    if parsed.kind == "sample":
        return "test"
    if parsed.kind != "known":
        return "own"
    split = parsed.split or next(iter(CATALOGUE[parsed.base].splits))
    return "training" if "train" in split else "test"
