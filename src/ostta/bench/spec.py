"""What a run is asked to do. Each field says its role; keys, pairing and reuse follow from the roles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from ..config import plugins
from ..config.profiles import apply_profile
from ..config.resolve import canonical, with_old_names
from ..core.types import Error
from ..data.names import is_file, is_own, placed
from ..feature_files import PREFIX as FEATURES
from ..io import is_unicode
from .file_model import FileModel, first_problem
from .scenario import DomainsScenario, Scenario, SingleScenario

# What a profile chooses if a spec names none of them.
PARTS = ("method", "score", "identifier")

# What a field of a spec decides: which images are shown and in which order; the backbone; how they are decided; or where and in
# which precision that is computed.
Role = Literal["stream", "model", "method", "machine"]


def _field(role: Role, default: Any = None, **more: Any) -> Any:
    """Declare a field of a spec together with its role."""
    given = more if "default_factory" in more else {"default": default, **more}
    return Field(json_schema_extra={"role": role}, **given)


class RunSpec(FileModel):
    """The request for one run: one method on one stream. Runs with equal specs and equal weights give equal figures.

    Options and paths are stored in a canonical form: `lr=1e-3` typed and `lr = 0.001` in a suite request the same run.
    """

    later: ClassVar[tuple[str, ...]] = (
        "scenario",
        "device",
        "dtype",
        "plugins",
        "draw",
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
    # What the seed draws beside corruption and augmentation: the order of the first `limit` images ("order"), or the images as well
    # ("images"). With "orders", images and corruption are those of seed 0, and the seed draws order and augmentation.
    draw: Literal["order", "images", "orders"] = _field("stream", "order")
    scenario: Scenario = _field("stream", default_factory=SingleScenario)
    # Off in benchmarks, for every profile, unless a run requests it.
    guard: bool = _field("method", False)
    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")] = _field("machine", "cpu")
    dtype: Literal["float32", "bfloat16", "float16"] = _field("machine", "float32")
    # Images that are encoded in one batch. Part of the spec because it changes the last bits of features.
    ahead: Annotated[int, Field(ge=1, le=1_024)] = _field("machine", 1)
    # The SHA-256 of each file of code that the run names as path/file.py:Name; `with_code` fills it in.
    plugins: dict[str, str] = _field("method", default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_one_set(cls, content: Any) -> Any:
        """Use the desired set as the undesired one if undesired classes are given."""
        if isinstance(content, dict) and content.get("undesired_classes") is not None and "undesired" not in content:
            return {**content, "undesired": content.get("desired", cls.model_fields["desired"].default)}
        return content

    @model_validator(mode="before")
    @classmethod
    def _of_profile(cls, content: Any) -> Any:
        return with_profile_parts(content) if isinstance(content, dict) else content

    @field_validator("options")
    @classmethod
    def _canonical(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return canonical(info.data.get("method", ""), info.data.get("score"), info.data.get("identifier", ""), given)

    @field_validator("backbone", "method", "score", "identifier", "desired", "undesired")
    @classmethod
    def _writable(cls, name: str | None) -> str | None:
        if name is not None and not is_unicode(name):
            raise ValueError(f"the name {name!r} is not valid Unicode text, and a result could not be filed under it")
        return name

    @field_validator("backbone")
    @classmethod
    def _placed_file(cls, name: str) -> str:
        return placed(name) if name.startswith(FEATURES) else name

    @field_validator("desired", "undesired")
    @classmethod
    def _placed(cls, name: str | None) -> str | None:
        return None if name is None else placed(name)


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
    """Return what must be equal for two runs to be on one stream, with any seed."""
    return _key(spec, set(stream_fields()))


def method_key(spec: RunSpec) -> str:
    """Return what must be equal for two runs to be of one method, computed in the same way."""
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


def checked_spec(**fields: Any) -> RunSpec:
    """Return the spec with these fields; an `Error` if a field is not valid."""
    try:
        return RunSpec(**fields)
    except ValidationError as problem:
        raise Error(f"This run is not possible ({first_problem(problem)}).", code="run-invalid") from None


def usual_draw(fields: Mapping[str, Any]) -> Literal["order", "images"]:
    """Return the default of `draw`: with a limit, the seed draws the images of a user's own data set.

    The first images of such a set may all be of one class. In the data sets of the catalogue, the first images are a fair sample. The
    scenario `ordered` keeps the order of the set.

    >>> usual_draw({"desired": "folder:pets", "limit": 100}), usual_draw({"desired": "cifar10c", "limit": 100})
    ('images', 'order')
    """
    spec = checked_spec(**{**fields, "options": {}})
    sets = [spec.desired]
    if isinstance(spec.scenario, DomainsScenario):
        sets = [domain.desired for domain in spec.scenario.domains]
    return (
        "images" if any(map(is_own, sets)) and spec.limit is not None and spec.scenario.kind != "ordered" else "order"
    )


def image_seed(spec: RunSpec) -> int:
    """Return the seed that draws images and corrupts them."""
    return 0 if spec.draw == "orders" else spec.seed


def draws_images(spec: RunSpec) -> bool:
    """Return whether images are drawn from all classes of a set, instead of taking its first images."""
    if spec.draw == "orders":
        return usual_draw(spec.model_dump(exclude={"options", "draw"})) == "images"
    return spec.draw == "images"


def changed(spec: RunSpec, **fields: Any) -> RunSpec:
    """Return the spec with other values in some fields."""
    return checked_spec(**{**spec.model_dump(), **fields}) if fields else spec


def identity(spec: RunSpec) -> dict[str, Any]:
    """Return what identifies a run: the spec without the number of the GPU, with the original names of options."""
    content: dict[str, Any] = spec.model_dump(mode="json")
    if "device" in content:
        content["device"] = spec.device.partition(":")[0]
    content["options"] = with_old_names(spec.method, content["options"])
    return content


def is_frozen(spec: RunSpec) -> bool:
    """Return whether a run is the frozen reference: no adaptation, with the paper's score, threshold and answer."""
    plain = spec.score in (None, "max") and spec.identifier == "lda" and spec.profile != "field"
    return spec.method == "zero_shot" and plain and not spec.guard and spec.options.get("answer", "own") == "own"


def name_of(spec: RunSpec) -> str:
    """Return the name of a run in tables: its method, with score, identifier and guard where they differ from the defaults.

    >>> name_of(RunSpec(method="zero_shot", score="neighbours"))
    'zero_shot neighbours'
    """
    picked = apply_profile(spec.profile)
    if spec.profile == "field" and (spec.method, spec.score, spec.identifier) == (
        picked.method,
        picked.score,
        picked.identifier,
    ):
        return "field guarded" if spec.guard else "field"
    others = [name for name in (spec.score, spec.identifier) if name not in (None, "max", "lda")]
    return " ".join([spec.method, *dict.fromkeys(map(str, others)), *(["guarded"] if spec.guard else [])])


def run_key(spec: RunSpec) -> str:
    """Return the key of a run. It depends on the spec alone, so it is known before data and model are opened."""
    content = json.dumps(identity(spec), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


# Fields that may name code in a file: path/file.py:Name.
_CODE, _SETS = ("method", "score", "identifier", "backbone"), ("desired", "undesired")


def files_of(spec: RunSpec) -> list[str]:
    """Return the names in `spec` that refer to code in files."""
    named = [name for field in _CODE if plugins.names_file(name := getattr(spec, field))]
    return list(dict.fromkeys([*named, *(name for name in sets_of(spec) if is_file(name))]))


def with_code(spec: RunSpec, folder: Path | None = None) -> RunSpec:
    """Return the spec with the hash of each file of code that it names, so that an edited file is another run.

    The files are executed here, to read the options by their types. Paths are relative to `folder`. Carrying out a spec executes the
    files that it names: a spec from an untrusted result file needs the user's consent first (`verify.py`).
    """
    places = {name: plugins.placed_file(name, folder) for name in files_of(spec)}
    if not places:
        return spec
    hashes = {place: plugins.file_hash(place) for place in places.values()}
    fields: dict[str, Any] = {field: _placed_name(getattr(spec, field), places) for field in (*_CODE, *_SETS)}
    if isinstance(spec.scenario, DomainsScenario):
        domains = [
            {**domain.model_dump(), **{side: _placed_name(getattr(domain, side), places) for side in _SETS}}
            for domain in spec.scenario.domains
        ]
        fields["scenario"] = {**spec.scenario.model_dump(), "domains": domains}
    placed = changed(spec, **fields, plugins=hashes)
    code = code_of(placed)
    method, identifier = (code.get(name, name) for name in (placed.method, placed.identifier))
    score = None if placed.score is None else code.get(placed.score, placed.score)
    return changed(placed, options=canonical(method, score, identifier, spec.options))


def code_of(spec: RunSpec) -> dict[str, Any]:
    """Execute the files that `spec` names, if their hashes are those of the spec, and return their objects by name."""
    return {name: plugins.from_file(name, spec.plugins.get(name)) for name in files_of(spec)}


def sources_of(spec: RunSpec) -> list[str]:
    """Return the content of the files, for a worker that may not have them. As Latin-1, in which every byte is a character."""
    return [plugins.source_of(name, spec.plugins.get(name)).decode("latin-1") for name in files_of(spec)]


def register_sources(sources: list[str]) -> None:
    """Make the content that `sources_of` returned in another process available here."""
    for source in sources:
        plugins.know_source(source.encode("latin-1"))


def packages_of(spec: RunSpec) -> dict[str, str]:
    """Return the packages that registered what `spec` names, with their versions."""
    kinds: list[tuple[plugins.Kind, str]] = [
        ("method", spec.method),
        ("identifier", spec.identifier),
        *((("score", spec.score),) if spec.score is not None else ()),
        ("backbone", spec.backbone),
        *(("dataset", name) for name in sets_of(spec)),
        # Measures are computed at the end of every run.
        *(("measure", name) for name in plugins.registered_names("measure")),
    ]
    found = [plugins.package(kind, name).rpartition(" ") for kind, name in kinds]
    return {name: version for name, _, version in found if name}


def sets_of(spec: RunSpec) -> list[str]:
    """Return the data sets that `spec` names."""
    sets = [spec.desired, spec.undesired]
    if isinstance(spec.scenario, DomainsScenario):
        sets += [name for domain in spec.scenario.domains for name in (domain.desired, domain.undesired)]
    return [name for name in sets if name is not None]


def _placed_name(name: str | None, places: dict[str, str]) -> str | None:
    return None if name is None else places.get(name, name)
