"""Specifications of runs.

`RunSpec` has all fields of a run. Each field declares its role; stream keys, method keys, pairing and reuse of results
follow from the roles. The scenario of a run is one of the models derived from `Mixed`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from ..config import plugins
from ..config.profiles import apply_profile
from ..config.resolve import canonical
from ..core.types import Error
from ..data.corruptions import corruption_names
from ..data.names import is_file, is_own, placed
from ..feature_files import PREFIX as FEATURES
from ..io import is_unicode
from ..schema import first_problem

# Components that a profile chooses if a spec names none of them.
PARTS = ("method", "score", "identifier")

# What a field of a spec determines: the images and their order, the backbone, the decisions, or device and precision.
Role = Literal["stream", "model", "method", "machine"]


class FileModel(BaseModel):
    """Base of the models of result files and suites. Unknown fields and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Fields added after the first version. They are written only if they differ from their defaults, so that files and
    # keys of runs without them stay the same.
    added_later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = handler(self)
        for name in self.added_later:
            if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                content.pop(name, None)
        return content


# --- scenarios --------------------------------------------------------------------------------------------------------
# CCC at its middle difficulty, the one in published use, omits these two corruptions.
NOT_SMOOTH = ("brightness", "jpeg")


class Mixed(FileModel):
    """Base of all scenarios.

    undesired_corruption: corruption of undesired sets whose name ends in c; None for that of the desired images (D25).
    """

    undesired_corruption: str | None = None


class SingleScenario(Mixed):
    """One domain, all images in random order."""

    kind: Literal["single"] = "single"


class ContinualScenario(Mixed):
    """One corruption after another, each with all desired images and the same undesired images."""

    kind: Literal["continual"] = "continual"
    corruptions: tuple[str, ...] = Field(default_factory=corruption_names)


class FrequentScenario(Mixed):
    """The corruption changes after every `images` desired images, until each image has been shown once."""

    kind: Literal["frequent"] = "frequent"
    images: int = 100
    corruptions: tuple[str, ...] = Field(default_factory=corruption_names)


class SmoothScenario(Mixed):
    """Pairs of corruptions that drift along a path (streams/smooth.py).

    speed: desired images a step. budget: total severity. cells: steps of the path; None for as many as show every
    desired image once.
    """

    kind: Literal["smooth"] = "smooth"
    speed: int = 100
    corruptions: tuple[str, ...] = Field(
        default_factory=lambda: tuple(name for name in corruption_names() if name not in NOT_SMOOTH)
    )
    budget: float = 5.0
    cells: int | None = None


class OrderedScenario(Mixed):
    """Desired images in the order of the data set, undesired images at random positions between them."""

    kind: Literal["ordered"] = "ordered"


class ShuffledScenario(Mixed):
    """At most `images` known images and `ratio` times as many unknown images, all drawn at random."""

    kind: Literal["shuffled"] = "shuffled"
    images: int = 1000


class UnknownFirstScenario(Mixed):
    """`images` undesired images first (streams/hostile.py has this scenario and the next four)."""

    kind: Literal["unknown_first"] = "unknown_first"
    images: int = 1000


class OneClassFirstScenario(Mixed):
    """`images` images of one desired class first."""

    kind: Literal["one_class_first"] = "one_class_first"
    images: int = 1000


class SortedScenario(Mixed):
    """Desired images class by class, undesired images throughout."""

    kind: Literal["sorted"] = "sorted"


class CoveredScenario(Mixed):
    """`images` black images, then as many images of noise, as under a lens cap; both are undesired."""

    kind: Literal["covered"] = "covered"
    images: int = 500


class FoolingScenario(Mixed):
    """The undesired images with the highest scores under the frozen model, out of `pool` times as many candidates."""

    kind: Literal["fooling"] = "fooling"
    pool: int = 3


def _folder(info: ValidationInfo) -> Path | None:
    """Return the folder at which relative paths start, which a suite gives as the validation context."""
    return None if info.context is None else info.context["folder"]


class DomainSpec(FileModel):
    """One domain of a user's list. None stands for the value of the run. `name`: name of the domain in results."""

    desired: str
    undesired: str | None = None
    corruption: str | None = None
    severity: int | None = None
    name: str | None = None

    @field_validator("desired", "undesired")
    @classmethod
    def _placed(cls, name: str | None, info: ValidationInfo) -> str | None:
        return None if name is None else placed(name, _folder(info))


class DomainsScenario(Mixed):
    """A user's list of domains, shown in order. All domains have the same classes."""

    kind: Literal["domains"] = "domains"
    domains: tuple[DomainSpec, ...]


Scenario = Annotated[
    SingleScenario
    | ContinualScenario
    | FrequentScenario
    | SmoothScenario
    | OrderedScenario
    | ShuffledScenario
    | DomainsScenario
    | UnknownFirstScenario
    | OneClassFirstScenario
    | SortedScenario
    | CoveredScenario
    | FoolingScenario,
    Field(discriminator="kind"),
]
SCENARIOS: dict[str, type[Mixed]] = {
    model.model_fields["kind"].default: model for model in get_args(get_args(Scenario)[0])
}

# Scenarios of one domain in random order, whose images can be arranged in another order.
ARRANGED = ("single", "shuffled")


# --- the spec of a run ------------------------------------------------------------------------------------------------
def _field(role: Role, default: Any = None, **more: Any) -> Any:
    """Declare a field of a spec together with its role."""
    given = more if "default_factory" in more else {"default": default, **more}
    return Field(json_schema_extra={"role": role}, **given)


class RunSpec(FileModel):
    """The request for one run: one method on one stream. Runs with equal specs and equal weights give equal figures.

    Options and paths are stored in a canonical form: `lr=1e-3` typed and `lr = 0.001` in a suite request the same run.
    """

    added_later: ClassVar[tuple[str, ...]] = (
        "scenario",
        "device",
        "dtype",
        "plugins",
        "draw",
        "arrangement",
        "burst_lengths",
        "score",
        "undesired_classes",
        "guard",
        "ahead",
    )

    backbone: str = _field("model", "embedded")
    method: str = _field("method", "rosita")
    # None: the score that the identifier needs, or `max`.
    score: str | None = _field("method")
    identifier: str = _field("method", "lda")
    profile: str = _field("method", "reference")
    options: dict[str, Any] = _field("method", default_factory=dict)
    desired: str = _field("stream", "cifar10c")
    undesired: str | None = _field("stream", "mnist")
    corruption: str = _field("stream", "snow")
    severity: int = _field("stream", 5)
    ratio: float = _field("stream", 1.0)
    limit: int | None = _field("stream")
    classes: list[str] | None = _field("stream")
    # Classes of the desired set that are unknown. `undesired` is then the same set, and shows no other classes.
    undesired_classes: list[str] | None = _field("stream")
    seed: int = _field("stream", 0)
    # What the seed draws beside corruption and augmentation: the order of the first `limit` images ("order"), or also
    # the images ("images"). With "orders", images and corruption are those of seed 0, and the seed draws order and
    # augmentation.
    draw: Literal["order", "images", "orders"] = _field("stream", "order")
    scenario: Scenario = _field("stream", default_factory=SingleScenario)
    # The order of the images of the scenarios in `ARRANGED`: in random order ("shuffled"), class by class ("ordered"),
    # or in runs of one class ("bursts"), with the smallest and the largest length of a run (streams/arranged.py).
    arrangement: Literal["shuffled", "ordered", "bursts"] = _field("stream", "shuffled")
    burst_lengths: tuple[Annotated[int, Field(ge=1)], int] = _field("stream", (5, 40))
    # Off in benchmarks, for every profile, unless a run requests it.
    guard: bool = _field("method", False)
    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")] = _field("machine", "cpu")
    dtype: Literal["float32", "bfloat16", "float16"] = _field("machine", "float32")
    # Images that are encoded in one batch. Part of the spec because it changes the last bits of features.
    ahead: Annotated[int, Field(ge=1, le=1_024)] = _field("machine", 1)
    # The SHA-256 of each file of code that the run names as path/file.py:Name, and of each data file that the code
    # declares; `with_code` fills it in.
    plugins: dict[str, str] = _field("method", default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, content: Any) -> Any:
        """Fill in the parts of the profile, and the desired set as the undesired one if undesired classes are given."""
        if not isinstance(content, dict):
            return content
        filled = with_profile_parts(content)
        if filled.get("undesired_classes") is not None:
            filled.setdefault("undesired", filled.get("desired", cls.model_fields["desired"].default))
        return filled

    @model_validator(mode="after")
    def _can_be_arranged(self) -> RunSpec:
        if self.arrangement != "shuffled" and self.scenario.kind not in ARRANGED:
            raise ValueError(
                f"the scenario {self.scenario.kind} has its own order of images: "
                f"arrangement {self.arrangement!r} needs the scenario {' or '.join(ARRANGED)}"
            )
        return self

    @field_validator("burst_lengths")
    @classmethod
    def _in_order(cls, lengths: tuple[int, int]) -> tuple[int, int]:
        if lengths[0] > lengths[1]:
            raise ValueError(f"the smallest length comes first, not {lengths[0]} before {lengths[1]}")
        return lengths

    @field_validator("options")
    @classmethod
    def _canonical(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return canonical(info.data.get("method", ""), info.data.get("score"), info.data.get("identifier", ""), given)

    @field_validator("backbone", "method", "score", "identifier", "desired", "undesired")
    @classmethod
    def _placed(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is None:
            return None
        if not is_unicode(name):
            raise ValueError(f"the name {name!r} is not valid Unicode text, and a result could not be filed under it")
        has_path = info.field_name in _SETS or (info.field_name == "backbone" and name.startswith(FEATURES))
        return placed(name, _folder(info)) if has_path else name


def fields_of(*roles: Role) -> tuple[str, ...]:
    """Return the names of the fields with these roles, in the order of their declaration.

    >>> fields_of("machine")
    ('device', 'dtype', 'ahead')
    """
    extras = {name: field.json_schema_extra for name, field in RunSpec.model_fields.items()}
    return tuple(name for name, extra in extras.items() if isinstance(extra, dict) and extra["role"] in roles)


def stream_fields() -> tuple[str, ...]:
    """Return the names of the fields that identify a stream, with any seed."""
    return tuple(name for name in fields_of("stream") if name != "seed")


def stream_key(spec: RunSpec) -> str:
    """Return a key that all runs on one stream share, whatever their seed."""
    return _key(spec, set(stream_fields()))


def method_key(spec: RunSpec) -> str:
    """Return a key that all runs of one method share, with the same device and precision."""
    return _key(spec, set(fields_of("method", "machine")))


def _key(spec: RunSpec, fields: set[str]) -> str:
    return json.dumps(spec.model_dump(mode="json", include=fields), sort_keys=True)


def with_profile_parts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec, with method, score and identifier of the profile `field` if none of them is named.

    The other profiles use the defaults of a spec.

    >>> with_profile_parts({"profile": "field"})
    {'profile': 'field', 'method': 'zero_shot', 'score': 'field', 'identifier': 'field'}
    """
    if fields.get("profile") != "field" or any(part in fields for part in PARTS):
        return dict(fields)
    picked = apply_profile("field")
    return {**fields, **{part: getattr(picked, part) for part in PARTS}}


def default_fields() -> dict[str, Any]:
    """Return the fields of a spec with their defaults."""
    return {"scenario": {}, **RunSpec().model_dump()}


def without_defaults(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from their defaults.

    The parts of the profile `field` are kept: without them, it stands for its own parts and not for the defaults.
    """
    kept = PARTS if fields.get("profile") == "field" else ()
    defaults = default_fields()
    return {
        name: value for name, value in fields.items() if name in kept or name not in defaults or value != defaults[name]
    }


def checked_spec(**fields: Any) -> RunSpec:
    """Return the spec with these fields; an `Error` if a field is not valid."""
    try:
        return RunSpec(**fields)
    except ValidationError as problem:
        raise Error(f"This run is not possible ({first_problem(problem)}).", code="run-invalid") from None


def default_draw(fields: Mapping[str, Any]) -> Literal["order", "images"]:
    """Return the default of `draw`: with a limit, the seed draws the images of a user's own data set.

    The first images of such a set may all be of one class. In the data sets of the catalogue, the first images are a
    fair sample. The scenario `ordered` keeps the order of the set.

    >>> default_draw({"desired": "folder:pets", "limit": 100}), default_draw({"desired": "cifar10c", "limit": 100})
    ('images', 'order')
    """
    spec = checked_spec(**{**fields, "options": {}})
    sets = [spec.desired]
    if spec.scenario.kind == "domains":
        sets = [domain.desired for domain in spec.scenario.domains]
    draws = any(map(is_own, sets)) and spec.limit is not None and spec.scenario.kind != "ordered"
    return "images" if draws else "order"


def image_seed(spec: RunSpec) -> int:
    """Return the seed that draws images and corrupts them."""
    return 0 if spec.draw == "orders" else spec.seed


def draws_images(spec: RunSpec) -> bool:
    """Return whether images are drawn from all classes of a set, instead of taking its first images."""
    if spec.draw == "orders":
        return default_draw(spec.model_dump(exclude={"options", "draw"})) == "images"
    return spec.draw == "images"


def changed(spec: RunSpec, **fields: Any) -> RunSpec:
    """Return the spec with other values in some fields."""
    return checked_spec(**{**spec.model_dump(), **fields}) if fields else spec


def identity(spec: RunSpec) -> dict[str, Any]:
    """Return the identity of a run: the spec without the number of the GPU."""
    content: dict[str, Any] = spec.model_dump(mode="json")
    if "device" in content:
        content["device"] = spec.device.partition(":")[0]
    return content


def is_frozen(spec: RunSpec) -> bool:
    """Return whether a run is the frozen reference: no adaptation, with the paper's score, threshold and answer."""
    plain = spec.score in (None, "max") and spec.identifier == "lda" and spec.profile != "field"
    return spec.method == "zero_shot" and plain and not spec.guard and spec.options.get("answer", "own") == "own"


def name_of(spec: RunSpec) -> str:
    """Return the name of a run in tables: its method, and score, identifier and guard if they are not the defaults.

    >>> name_of(RunSpec(method="zero_shot", score="energy"))
    'zero_shot energy'
    """
    picked = apply_profile(spec.profile)
    if spec.profile == "field" and all(getattr(spec, part) == getattr(picked, part) for part in PARTS):
        return "field guarded" if spec.guard else "field"
    others = [name for name in (spec.score, spec.identifier) if name not in (None, "max", "lda")]
    return " ".join([spec.method, *dict.fromkeys(map(str, others)), *(["guarded"] if spec.guard else [])])


def run_key(spec: RunSpec) -> str:
    """Return the key of a run. It depends on the spec alone, so it is known before data and model are opened."""
    content = json.dumps(identity(spec), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


# Fields that may name code in a file: path/file.py:Name.
_CODE: tuple[plugins.Kind, ...] = ("method", "score", "identifier", "backbone")
_SETS = ("desired", "undesired")


def files_of(spec: RunSpec) -> list[str]:
    """Return the names in `spec` that refer to code in files."""
    named = [name for field in _CODE if plugins.names_file(name := getattr(spec, field))]
    return list(dict.fromkeys([*named, *(name for name in sets_of(spec) if is_file(name))]))


def with_code(spec: RunSpec, folder: Path | None = None) -> RunSpec:
    """Return the spec with the hash of each file of code that it names, so that an edited file is another run.

    The data files that the code declares (`plugins.data_hashes`) are included. The files of code are executed here, to
    read the options by their types. Paths are relative to `folder`. Carrying out a spec executes the files that it
    names: a spec from an untrusted result file needs the user's consent first (`verify.py`).
    """
    places = {name: plugins.placed_file(name, folder) for name in files_of(spec)}
    if not places:
        return spec
    hashes = {place: plugins.file_hash(place) for place in places.values()}
    for place in places.values():
        hashes |= plugins.data_hashes(place, hashes[place])
    fields: dict[str, Any] = {field: _placed_name(getattr(spec, field), places) for field in (*_CODE, *_SETS)}
    if spec.scenario.kind == "domains":
        domains = [
            {**domain.model_dump(), **{side: _placed_name(getattr(domain, side), places) for side in _SETS}}
            for domain in spec.scenario.domains
        ]
        fields["scenario"] = {**spec.scenario.model_dump(), "domains": domains}
    placed = changed(spec, **fields, plugins=hashes)
    return changed(placed, options=canonical(*parts_of(placed, code_of(placed)), spec.options))


def code_of(spec: RunSpec) -> dict[str, Any]:
    """Execute the files that `spec` names, if their hashes are those of the spec, and return their objects by name."""
    for name in files_of(spec):
        for path, now in plugins.data_hashes(name, spec.plugins.get(name)).items():
            plugins.require_unchanged(path, now, spec.plugins.get(path))
    return {name: plugins.from_file(name, spec.plugins.get(name)) for name in files_of(spec)}


def parts_of(spec: RunSpec, code: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return method, score and identifier of `spec`; a part in a file is its object in `code`, others are names."""
    method, score, identifier = (code.get(name, name) for name in (getattr(spec, part) for part in PARTS))
    return method, score, identifier


def sources_of(spec: RunSpec) -> list[str]:
    """Return the content of the files of code, for a worker that may not have them. Latin-1 keeps every byte."""
    return [plugins.source_of(name, spec.plugins.get(name)).decode("latin-1") for name in files_of(spec)]


def register_sources(sources: list[str]) -> None:
    """Make the content that `sources_of` returned in another process available here."""
    for source in sources:
        plugins.know_source(source.encode("latin-1"))


def packages_of(spec: RunSpec) -> dict[str, str]:
    """Return the packages that registered what `spec` names, with their versions."""
    named: list[tuple[plugins.Kind, str]] = [(kind, getattr(spec, kind)) for kind in _CODE if getattr(spec, kind)]
    named += [("dataset", name) for name in sets_of(spec)]
    # Measures are computed at the end of every run.
    named += [("measure", name) for name in plugins.registered_names("measure")]
    packages = [plugins.package(kind, name).rpartition(" ") for kind, name in named]
    return {name: version for name, _, version in packages if name}


def sets_of(spec: RunSpec) -> list[str]:
    """Return the data sets that `spec` names."""
    sets = [spec.desired, spec.undesired]
    if spec.scenario.kind == "domains":
        sets += [name for domain in spec.scenario.domains for name in (domain.desired, domain.undesired)]
    return [name for name in sets if name is not None]


def _placed_name(name: str | None, places: dict[str, str]) -> str | None:
    return None if name is None else places.get(name, name)
