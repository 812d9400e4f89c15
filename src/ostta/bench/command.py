"""The command that carries out a run again, as a person would type it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ..config.resolve import canonical
from ..core.types import Error
from ..data.names import parse_name
from .scenario import DomainsScenario
from .spec import RunSpec, usual_draw

# What `ostta run` can say of a scenario, by field.
_FLAGS = {
    "corruptions": "corruptions",
    "images": "images-per-domain",
    "speed": "speed",
    "undesired_corruption": "undesired-corruption",
}
_STREAM = ("desired", "undesired", "undesired_classes", "limit", "scenario")


def run_command(spec: RunSpec) -> str | None:
    """`ostta run` with all that it takes; None for runs that only a suite can ask for.

    >>> run_command(RunSpec(method="tda", desired="sample:cifar10c", undesired="sample:mnist", limit=50, options={"shots": 5}))
    'ostta run --method tda --desired sample:cifar10c --undesired sample:mnist --limit 50 --set shots=5'
    """
    try:
        fields = {name: getattr(spec, name) for name in _STREAM}
        draw = usual_draw(fields)
    except Error:
        return None
    options, scenario, sides = _options(spec), _scenario(spec), _sides(spec)
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


def _sides(spec: RunSpec) -> list[str] | None:
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


def _options(spec: RunSpec) -> dict[str, str] | None:
    """As texts; None where a text does not mean the value again."""
    texts = {name: _text(value) for name, value in spec.options.items()}
    try:
        return texts if canonical(spec.method, spec.score, spec.identifier, texts) == spec.options else None
    except Error:
        return None


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def _scenario(spec: RunSpec) -> list[str] | None:
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
