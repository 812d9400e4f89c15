"""Description of a state: the content of a state file except its tensors, checked before anything is built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from ..config.declare import PROFILES
from ..config.registry import ComponentKind, Components, check_components, find_saved_component, require_known
from ..config.resolve import SOURCES, Resolved, options_classes, rebuild
from ..core.checks import shown
from ..core.errors import error_context
from ..core.types import Error
from .versions import versions

if TYPE_CHECKING:
    from ..adapter import Adapter
    from .schema import BackboneModel


@dataclass(frozen=True, slots=True)
class ComponentClasses:
    """Component classes of a state, which the caller passes if they are not registered."""

    method: str | type[Any] | None = None
    score: str | type[Any] | None = None
    identifier: str | type[Any] | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Content of a state except its tensors."""

    backbone: BackboneModel
    classes: tuple[str, ...]
    choice: Components
    profile: str
    options: Resolved
    seed: int
    step: int
    versions: dict[str, str]

    @classmethod
    def read(cls, content: dict[str, Any], given: ComponentClasses | None = None) -> Description:
        """Return the description in the parsed JSON `content`; raise an Error that names the first invalid entry."""
        from ..schema import validate
        from .schema import StateModel

        model = validate(StateModel, content)
        choice = saved_components(content, given or ComponentClasses())
        return cls(
            model.backbone,
            model.classes,
            choice,
            require_known(model.profile, PROFILES, "profile"),
            _read_options(choice, model.options, model.option_sources),
            model.seed,
            model.step,
            model.versions,
        )


def saved_components(content: dict[str, Any], given: ComponentClasses) -> Components:
    """Return the method, the score and the identifier named in a file."""
    kinds: tuple[ComponentKind, ...] = get_args(ComponentKind)
    method, score, identifier = (find_saved_component(kind, str(content[kind]), getattr(given, kind)) for kind in kinds)
    return check_components(method, score, identifier)


def _read_options(
    choice: Components, values: dict[str, dict[str, Any]], sources: dict[str, dict[str, str]]
) -> Resolved:
    """Return the options of a file."""
    from ..schema import validate
    from .schema import options_model

    owned = options_classes(choice, guard="guard" in values)
    for name, content in (("options", values), ("option_sources", sources)):
        if content.keys() != owned.keys():
            entry = shown(min(content.keys() ^ owned.keys()))
            raise Error(f"`{name}` must have the entries {', '.join(owned)}; {entry} differs.", code="state-invalid")
    for owner, options in owned.items():
        if values[owner].keys() != sources[owner].keys():
            name = shown(min(values[owner].keys() ^ sources[owner].keys()))
            raise Error(f"Only one of `options` and `option_sources` has the option {name}.", code="state-invalid")
        for name, source in sources[owner].items():
            if source not in SOURCES:
                message = (
                    f"The source of the option {shown(name)} must be one of {', '.join(SOURCES)}, not {shown(source)}."
                )
                raise Error(message, code="state-invalid")
        with error_context(f"options.{owner}"):
            validate(options_model(options), values[owner])
    return rebuild(choice, values, sources)


def describe_adapter(adapter: Adapter) -> dict[str, Any]:
    """Return the content of the JSON in a state file, which `Description.read` reads."""
    backbone = adapter.backbone
    return {
        "backbone": {name: getattr(backbone, name) for name in ("id", "weight_hash", "restorable")},
        "classes": list(adapter.classes),
        "method": adapter.method_name,
        "score": adapter.score_name,
        "identifier": adapter.identifier_name,
        "profile": adapter.profile,
        "options": adapter.resolved.values(),
        "option_sources": adapter.resolved.sources,
        "seed": adapter.seed,
        "step": adapter.steps,
        "versions": versions(),
    }
