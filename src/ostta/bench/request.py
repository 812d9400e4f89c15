"""From the options of `ostta run` to the runs: scenario, data sets and sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..config.profiles import apply_profile
from ..core.errors import translate_errors
from ..core.types import Error
from ..data.class_names import Classes, described
from ..io import ROOT_VARIABLE, data_folder, parse_json
from ..schema import first_problem
from .spec import SCENARIOS, Scenario, checked_spec, default_draw, with_code
from .sweep import Sweep, sweep_of


def requested_sweep(
    *,
    desired: str | None = None,
    undesired: str | None = None,
    undesired_classes: Classes | None = None,
    classes: Classes | None = None,
    profile: str = "reference",
    method: str | None = None,
    score: str | None = None,
    identifier: str | None = None,
    options: Mapping[str, Sequence[str]],
    ratio: float = 1.0,
    limit: int | None = None,
    scenario: Scenario,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    orders: int | None = None,
    draw: str | None = None,
    root: Path | None = None,
    **fields: Any,
) -> tuple[Sweep, str]:
    """Return the sweep, and a note if included samples replace data sets.

    `orders` replaces `seeds` and `draw`. `fields` are further fields of the spec.
    """
    if undesired is not None and undesired_classes is not None:
        raise Error(
            "Give either --undesired, another data set, or --undesired-classes, classes of the known data set.",
            code="option-conflict",
        )
    if orders is not None:
        if seeds is not None or draw is not None or seed != 0:
            raise Error(
                "--orders uses the seeds 0, 1, ...; leave out --seed, --seeds and --draw.", code="option-invalid"
            )
        seeds, draw = range(orders), "orders"
    names, descriptions = (None, ()) if classes is None else described(classes)
    if descriptions and "descriptions" in options:
        raise Error("`descriptions` is given twice: the file of --classes has them too.", code="option-conflict")
    has_unknown = ratio > 0
    known, unknown, note = default_sets(desired, undesired, root, has_unknown and undesired_classes is None)
    if undesired_classes is not None:
        unknown = known
    components = apply_profile(profile, method, score, identifier)
    stream: dict[str, Any] = {
        "desired": known,
        "undesired": unknown if has_unknown else None,
        "undesired_classes": None if undesired_classes is None else list(undesired_classes),
        "limit": limit,
        "scenario": scenario,
    }
    spec = checked_spec(
        **stream,
        **fields,
        **asdict(components),
        options={"descriptions": list(descriptions)} if descriptions else {},
        ratio=ratio,
        classes=None if names is None else list(names),
        seed=seed,
        draw=default_draw(stream) if draw is None else draw,
    )
    return sweep_of(with_code(spec), options, list(seeds or [seed])), note


def default_sets(
    desired: str | None, undesired: str | None, root: Path | None, needs_unknown: bool = True
) -> tuple[str, str, str]:
    """Return the known and the unknown data set, and a note if included samples replace sets of the data folder.

    >>> default_sets("sample:cifar10c", None, None)[1]
    'sample:mnist'
    """
    samples = data_folder(root) is None
    known = desired or ("sample:cifar10c" if samples else "cifar10c")
    unknown = undesired or ("sample:mnist" if samples else "mnist")
    chosen = [name for name, given in ((known, desired), (unknown, undesired or not needs_unknown)) if not given]
    if not samples or not chosen:
        return known, unknown, ""
    return (
        known,
        unknown,
        f"No data folder is given, so included samples are used: {' and '.join(chosen)}. Other sets need --data or "
        f"{ROOT_VARIABLE}; for your own images, use --desired folder:PATH.",
    )


def read_scenario(kind_or_path: str, **options: Any) -> Scenario:
    """Return the scenario of a kind, or of a JSON file, with the `options` that are not None.

    >>> read_scenario("frequent", images=250).images
    250
    """
    content = {"kind": kind_or_path} if kind_or_path in SCENARIOS else _scenario_file(kind_or_path)
    kind = content["kind"]
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in SCENARIOS[kind].model_fields:
            owners = [other for other, model in SCENARIOS.items() if name in model.model_fields]
            raise Error(
                f"The scenario {kind} takes no `{name}`, which belongs to {' and '.join(owners)}.",
                code="scenario-invalid",
            )
    try:
        scenario: Scenario = TypeAdapter(Scenario).validate_python({**content, **given})
    except ValidationError as problem:
        missing = kind == "domains" and "domains" not in content
        hint = " It needs a list `domains`, given in a JSON file." if missing else ""
        raise Error(
            f"The scenario {kind} cannot be used ({first_problem(problem)}).{hint}", code="scenario-invalid"
        ) from None
    return scenario


def _scenario_file(path: str) -> dict[str, Any]:
    if not path.endswith(".json"):
        raise Error(
            f"There is no scenario {path!r}: choose one of {', '.join(SCENARIOS)}, or give a JSON file.",
            code="scenario-unknown",
        )
    with (
        translate_errors("file-unreadable", f"The scenario file {path} cannot be read ({{reason}}).", OSError),
        translate_errors("scenario-invalid", f"The scenario file {path} is not JSON ({{reason}}).", ValueError),
    ):
        content = parse_json(Path(path).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("kind") not in list(SCENARIOS):
        raise Error(
            f"The scenario file {path} must contain an object whose `kind` is one of {', '.join(SCENARIOS)}.",
            code="scenario-invalid",
        )
    return content
