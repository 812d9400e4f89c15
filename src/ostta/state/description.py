"""Description of a state: everything in a state file but its tensors, checked before anything is built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config.declare import PROFILES
from ..config.registry import (
    Component,
    ComponentKind,
    Components,
    check_components,
    find_saved_component,
    require_known,
)
from ..config.resolve import SOURCES, Resolved, options_classes, rebuild
from ..core.checks import shown
from ..core.errors import error_context
from ..core.types import Error


@dataclass(frozen=True, slots=True)
class SavedBackbone:
    """The backbone that a state was saved with."""

    id: str
    weight_hash: str
    restorable: bool


@dataclass(frozen=True, slots=True)
class ComponentClasses:
    """Classes of the components of a state, which the caller passes if they are not registered."""

    method: str | type[Any] | None = None
    score: str | type[Any] | None = None
    identifier: str | type[Any] | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Everything about a state but its tensors."""

    backbone: SavedBackbone
    classes: tuple[str, ...]
    choice: Components
    profile: str
    options: Resolved
    seed: int
    step: int
    versions: dict[str, str]

    @classmethod
    def read(cls, content: dict[str, Any], given: ComponentClasses | None = None) -> Description:
        """Return the description in the parsed JSON `content`; an Error names the first entry that is wrong."""
        from ..schema import validate
        from .schema import StateModel

        found = validate(StateModel, content)
        choice = saved_components(content, given or ComponentClasses())
        return cls(
            SavedBackbone(found.backbone.id, found.backbone.weight_hash, found.backbone.restorable),
            found.classes,
            choice,
            require_known(found.profile, PROFILES, "profile"),
            _read_options(choice, found.options, found.option_sources),
            found.seed,
            found.step,
            found.versions,
        )


def saved_components(content: dict[str, Any], given: ComponentClasses) -> Components:
    """Return the method, the score and the identifier that a file names."""

    def found(kind: ComponentKind, given: str | type[Any] | None) -> Component:
        return find_saved_component(kind, str(content[kind]), given)

    return check_components(
        found("method", given.method), found("score", given.score), found("identifier", given.identifier)
    )


def _read_options(
    choice: Components, values: dict[str, dict[str, Any]], sources: dict[str, dict[str, str]]
) -> Resolved:
    """Return the options of a file; options that a later version added get their defaults."""
    from ..schema import validate
    from .schema import options_model

    owned = options_classes(choice, guard="guard" in values)
    for name, content in (("options", values), ("option_sources", sources)):
        if content.keys() != owned.keys():
            odd = shown(min(content.keys() ^ owned.keys()))
            raise Error(f"`{name}` must have the entries {', '.join(owned)}; {odd} differs.", code="state-invalid")
    for owner, options in owned.items():
        if values[owner].keys() != sources[owner].keys():
            odd = shown(min(values[owner].keys() ^ sources[owner].keys()))
            raise Error(f"Only one of `options` and `option_sources` has the option {odd}.", code="state-invalid")
        for name, source in sources[owner].items():
            if source not in SOURCES:
                message = (
                    f"The source of the option {shown(name)} must be one of {', '.join(SOURCES)}, not {shown(source)}."
                )
                raise Error(message, code="state-invalid")
        with error_context(f"options.{owner}"):
            validate(options_model(options), values[owner])
    return rebuild(choice, values, sources)
