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

# What a profile chooses where a spec names none of them.
PARTS = ("method", "score", "identifier")


# The fields of a spec that decide which images a run shows.
OF_THE_STREAM = (
    "desired", "undesired", "corruption", "severity", "ratio", "limit", "classes", "undesired_classes", "scenario", "draw", "seed",
)  # fmt: skip


class RunSpec(FileModel):
    """What was asked for: one method on one stream. Two runs with equal specs and equal weights give equal figures.

    Options and paths are kept in one form, so that `lr=1e-3` typed and `lr = 0.001` in a suite ask for the same run.
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

    backbone: str = "embedded"
    method: str = "rosita"
    # None: the one that the identifier needs, or `max`.
    score: str | None = None
    identifier: str = "lda"
    profile: str = "reference"
    options: dict[str, Any] = Field(default_factory=dict)
    desired: str = "cifar10c"
    undesired: str | None = "mnist"
    corruption: str = "snow"
    severity: int = 5
    ratio: float = 1.0
    limit: int | None = None
    classes: list[str] | None = None
    # Classes of the desired set that are unknown: `undesired` is then the same set, and shows no others.
    undesired_classes: list[str] | None = None
    seed: int = 0
    # What the seed draws beside corruption and augmentation: the order of the first `limit` images, or which images too. With
    # "orders" images and their corruption are those of seed 0, and the seed draws order and augmentation alone.
    draw: Literal["order", "images", "orders"] = "order"
    scenario: Scenario = Field(default_factory=SingleScenario)
    # Off in benchmarks, whatever the profile says, unless a run asks for it.
    guard: bool = False
    device: Annotated[str, Field(pattern=r"^(cpu|mps|cuda(:\d+)?)$")] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    # Images that are encoded in one batch: part of what is asked, because it changes the last bits of features.
    ahead: Annotated[int, Field(ge=1, le=1_024)] = 1
    # The SHA-256 of each file of code that the run names as path/file.py:Name; `own_code.asked` fills it in.
    plugins: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_one_set(cls, content: Any) -> Any:
        """Undesired classes are classes of the desired set, so that no undesired set has to be named beside them."""
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


def with_profile_parts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec, with method, score and identifier of the profile `field` if none of them is named.

    The other profiles choose the defaults of a spec.

    >>> with_profile_parts({"profile": "field"})
    {'profile': 'field', 'method': 'zero_shot', 'score': 'field', 'identifier': 'field'}
    """
    if fields.get("profile") != "field" or any(part in fields for part in PARTS):
        return dict(fields)
    picked = apply_profile("field")
    return {**fields, **{part: getattr(picked, part) for part in PARTS}}


def checked_spec(**fields: Any) -> RunSpec:
    """The spec with these fields; an `Error` where a field cannot be what it is."""
    try:
        return RunSpec(**fields)
    except ValidationError as problem:
        raise Error(f"This run is not possible ({first_problem(problem)}).") from None


def usual_draw(fields: Mapping[str, Any]) -> Literal["order", "images"]:
    """What the seed draws where nobody has said it: under a limit, images of a set of one's own, which may go class by class.

    The first images of such a set could all be of one class. The sets of the catalogue have an order of which any first part is a fair
    sample, and the scenario ordered is about the order.

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
    """The seed that draws images and corrupts them."""
    return 0 if spec.draw == "orders" else spec.seed


def draws_images(spec: RunSpec) -> bool:
    """Whether images are drawn from all classes of a set, and are not its first ones."""
    if spec.draw == "orders":
        return usual_draw(spec.model_dump(exclude={"options", "draw"})) == "images"
    return spec.draw == "images"


def changed(spec: RunSpec, **fields: Any) -> RunSpec:
    """The spec with other values in some fields."""
    return checked_spec(**{**spec.model_dump(), **fields}) if fields else spec


def identity(spec: RunSpec) -> dict[str, Any]:
    """What makes a run the same: the spec, whichever of several GPUs it runs on, by the names that options have always had."""
    content: dict[str, Any] = spec.model_dump(mode="json")
    if "device" in content:
        content["device"] = spec.device.partition(":")[0]
    content["options"] = with_old_names(spec.method, content["options"])
    return content


def is_frozen(spec: RunSpec) -> bool:
    """Whether a run is what every other is set against: nothing learned, the paper's score, threshold and answer."""
    plain = spec.score in (None, "max") and spec.identifier == "lda" and spec.profile != "field"
    return spec.method == "zero_shot" and plain and not spec.guard and spec.options.get("answer", "own") == "own"


def name_of(spec: RunSpec) -> str:
    """What a run is called in a table: its method, with the score and the identifier where they are not the usual ones, and the guard.

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
    """Names a run by its spec alone, so that it is known before data and model are opened."""
    content = json.dumps(identity(spec), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


_CODE, _SETS = ("method", "score", "identifier", "backbone"), ("desired", "undesired")


def files_of(spec: RunSpec) -> list[str]:
    """The names in `spec` that are in files."""
    named = [name for field in _CODE if plugins.names_file(name := getattr(spec, field))]
    return list(dict.fromkeys([*named, *(name for name in sets_of(spec) if is_file(name))]))


def asked(spec: RunSpec, folder: Path | None = None) -> RunSpec:
    """The run that a person asks for. Files are run here, to read the options by their types; paths are meant from `folder`."""
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
    """What the names in files stand for; this runs the files, if they still are what was asked for."""
    return {name: plugins.from_file(name, spec.plugins.get(name)) for name in files_of(spec)}


def sources_of(spec: RunSpec) -> list[str]:
    """The content of the files, for a worker that may not have them. As Latin-1, in which every byte is a character."""
    return [plugins.source_of(name, spec.plugins.get(name)).decode("latin-1") for name in files_of(spec)]


def know_sources(sources: list[str]) -> None:
    """Take what `sources_of` gave elsewhere."""
    for source in sources:
        plugins.know_source(source.encode("latin-1"))


def packages_of(spec: RunSpec) -> dict[str, str]:
    """The packages, with their versions, that registered what `spec` names."""
    kinds: list[tuple[plugins.Kind, str]] = [
        ("method", spec.method),
        ("identifier", spec.identifier),
        *((("score", spec.score),) if spec.score is not None else ()),
        ("backbone", spec.backbone),
        *(("dataset", name) for name in sets_of(spec)),
        # They are computed at the end of every run.
        *(("measure", name) for name in plugins.registered_names("measure")),
    ]
    found = [plugins.package(kind, name).rpartition(" ") for kind, name in kinds]
    return {name: version for name, _, version in found if name}


def sets_of(spec: RunSpec) -> list[str]:
    """The data sets that `spec` names."""
    sets = [spec.desired, spec.undesired]
    if isinstance(spec.scenario, DomainsScenario):
        sets += [name for domain in spec.scenario.domains for name in (domain.desired, domain.undesired)]
    return [name for name in sets if name is not None]


def _placed_name(name: str | None, places: dict[str, str]) -> str | None:
    return None if name is None else places.get(name, name)
