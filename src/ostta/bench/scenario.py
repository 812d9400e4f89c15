"""How a run's stream is put together, as a run's spec says it: one small model for each kind of scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from ..core.types import Error
from ..data.corruptions import corruption_names
from ..data.names import placed
from ..io import parse_json
from .file_model import FileModel, first_problem

# CCC at its middle difficulty, the one in published use, does without these two.
NOT_SMOOTH = ("brightness", "jpeg")


class Mixed(FileModel):
    """What all kinds have: the corruption of undesired sets whose name ends in c; None: that of the desired ones (D25)."""

    undesired_corruption: str | None = None


class SingleScenario(Mixed):
    """One domain, all images in one random order."""

    kind: Literal["single"] = "single"


class ContinualScenario(Mixed):
    """One corruption after another, each with all desired images and the same undesired ones."""

    kind: Literal["continual"] = "continual"
    corruptions: tuple[str, ...] = Field(default_factory=corruption_names)


class FrequentScenario(Mixed):
    """The corruption changes after every `images` desired images, until each has been shown once."""

    kind: Literal["frequent"] = "frequent"
    images: int = 100
    corruptions: tuple[str, ...] = Field(default_factory=corruption_names)


class SmoothScenario(Mixed):
    """Pairs of corruptions that drift, `speed` desired images a step; `budget` is their total severity (streams/corruption_path.py).

    `cells` is how many steps the path has; None: as many as show every desired image once.
    """

    kind: Literal["smooth"] = "smooth"
    speed: int = 100
    corruptions: tuple[str, ...] = Field(
        default_factory=lambda: tuple(name for name in corruption_names() if name not in NOT_SMOOTH)
    )
    budget: float = 5.0
    cells: int | None = None


class OrderedScenario(Mixed):
    """The desired images in the set's own order, the undesired ones at random places between them."""

    kind: Literal["ordered"] = "ordered"


class ShuffledScenario(Mixed):
    """At most `images` known images and `ratio` times as many unknown ones, all drawn at random (streams/shuffled.py)."""

    kind: Literal["shuffled"] = "shuffled"
    images: int = 1000


class UnknownFirstScenario(Mixed):
    """Nothing but `images` undesired ones first (streams/hostile.py has this one and the next four)."""

    kind: Literal["unknown_first"] = "unknown_first"
    images: int = 1000


class OneClassFirstScenario(Mixed):
    """Nothing but `images` of one desired class first."""

    kind: Literal["one_class_first"] = "one_class_first"
    images: int = 1000


class SortedScenario(Mixed):
    """Class after class, undesired images all along."""

    kind: Literal["sorted"] = "sorted"


class CoveredScenario(Mixed):
    """`images` black ones, then as many of nothing but noise, as under a lens cap; both are undesired."""

    kind: Literal["covered"] = "covered"
    images: int = 500


class FoolingScenario(Mixed):
    """The undesired images are those that look most like a class to the frozen model, of `pool` times as many."""

    kind: Literal["fooling"] = "fooling"
    pool: int = 3


class DomainSpec(FileModel):
    """One domain of one's own. What is None is as the run's spec says; `name` is what the figures are filed under."""

    desired: str
    undesired: str | None = None
    corruption: str | None = None
    severity: int | None = None
    name: str | None = None

    @field_validator("desired", "undesired")
    @classmethod
    def _placed(cls, name: str | None) -> str | None:
        return None if name is None else placed(name)


class DomainsScenario(Mixed):
    """A list of one's own: domains in order, all with the same classes."""

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
_KINDS: dict[str, type[Mixed]] = {
    "single": SingleScenario,
    "continual": ContinualScenario,
    "frequent": FrequentScenario,
    "smooth": SmoothScenario,
    "ordered": OrderedScenario,
    "shuffled": ShuffledScenario,
    "domains": DomainsScenario,
    "unknown_first": UnknownFirstScenario,
    "one_class_first": OneClassFirstScenario,
    "sorted": SortedScenario,
    "covered": CoveredScenario,
    "fooling": FoolingScenario,
}


def read_scenario(kind_or_path: str, **options: Any) -> Scenario:
    """The scenario of that kind, or the one in that JSON file, with those `options` that are not None.

    >>> read_scenario("frequent", images=250).images
    250
    """
    content: dict[str, Any] = {"kind": kind_or_path}
    if kind_or_path not in _KINDS:
        content = _file_content(kind_or_path)
    given = {name: value for name, value in options.items() if value is not None}
    kind = content["kind"]
    for name in given:
        if name not in _KINDS[kind].model_fields:
            owners = [other for other, model in _KINDS.items() if name in model.model_fields]
            raise Error(
                f"The scenario {kind} takes no `{name}`, which belongs to {' and '.join(owners)}.",
                code="scenario-invalid",
            )
    try:
        scenario: Scenario = TypeAdapter(Scenario).validate_python({**content, **given})
    except ValidationError as problem:
        hint = (
            " It needs a list `domains`, given in a JSON file."
            if kind == "domains" and "domains" not in content
            else ""
        )
        raise Error(
            f"The scenario {kind} cannot be used ({first_problem(problem)}).{hint}", code="scenario-invalid"
        ) from None
    return scenario


def _file_content(path: str) -> dict[str, Any]:
    if not path.endswith(".json"):
        raise Error(
            f"There is no scenario {path!r}: choose one of {', '.join(_KINDS)}, or give a JSON file of one.",
            code="scenario-unknown",
        )
    try:
        content = parse_json(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise Error(f"The scenario file {path} cannot be read ({problem.strerror}).", code="file-unreadable") from None
    except ValueError as problem:
        raise Error(f"The scenario file {path} is not JSON ({problem}).", code="scenario-invalid") from None
    if not isinstance(content, dict) or content.get("kind") not in list(_KINDS):
        raise Error(
            f"The scenario file {path} must hold an object whose `kind` is one of {', '.join(_KINDS)}.",
            code="scenario-invalid",
        )
    return content
