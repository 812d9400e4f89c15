"""Find methods, scores and identifiers by name or by class, from the package and from plug-ins."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from .. import rivals
from ..core.checks import shown
from ..core.types import Error
from ..field import FieldIdentifier, FieldScore
from ..identifiers import IDENTIFIERS, Identifier
from ..methods import METHODS, Method
from ..scores import SCORES, Score
from . import plugins

# Components of the package; the recommended one is first.
ALL_METHODS: dict[str, type[Method]] = {**METHODS, **rivals.METHODS}
ALL_SCORES: dict[str, type[Score]] = {"field": FieldScore, **SCORES, **rivals.SCORES}
ALL_IDENTIFIERS: dict[str, type[Identifier]] = {"field": FieldIdentifier, **IDENTIFIERS, **rivals.IDENTIFIERS}
ComponentKind = Literal["method", "score", "identifier"]
COMPONENT_KINDS: tuple[ComponentKind, ...] = ("identifier", "score", "method")
BUILT_IN: dict[ComponentKind, Mapping[str, type[Any]]] = {
    "method": ALL_METHODS,
    "score": ALL_SCORES,
    "identifier": ALL_IDENTIFIERS,
}
# Attributes that a class must have; `ostta.testing` checks the behaviour of the class.
_PARTS = {
    "method": ("Options", "summary", "start", "overlay", "look", "propose", "answer", "commit"),
    "score": ("Options", "about", "value", "remember", "memories", "reset", "tensors", "load"),
    "identifier": ("Options", "about", "needs", "peek", "remember", "reset", "tensors", "load"),
}


@dataclass(frozen=True, slots=True)
class Component:
    """A method, a score or an identifier: its class `of`, and its name in files and messages.

    The name of an unregistered class is `package.module:Name`, or `file.py:Name` if it was read from a file.
    """

    name: str
    of: type[Any]

    @property
    def options(self) -> type[Any]:
        """Options class of the component."""
        options: type[Any] = self.of.Options
        return options

    @property
    def given(self) -> type[Any] | None:
        """The class if it is not registered and must be passed to restore a state; otherwise None."""
        return self.of if ":" in self.name else None


def find_component(kind: ComponentKind, requested: str | type[Any]) -> Component:
    """Return the component with this name or class. A name never runs a file."""
    if isinstance(requested, str):
        return _by_name(kind, requested)
    if not inspect.isclass(requested):
        raise Error(f"`{kind}` must be a name or a class, not {shown(requested)}.", code="component-invalid")
    _require_parts(kind, requested)
    for name, built_in in BUILT_IN[kind].items():
        if built_in is requested:
            return Component(name, requested)
    registered = plugins.registered_as(kind, requested)
    if registered is not None and registered not in BUILT_IN[kind]:
        return Component(registered, requested)
    return Component(plugins.file_name(requested) or f"{requested.__module__}:{requested.__qualname__}", requested)


@dataclass(frozen=True, slots=True)
class Components:
    """A method, a score and an identifier that work together."""

    method: Component
    score: Component
    identifier: Component

    def parts(self) -> dict[ComponentKind, Component]:
        return {"method": self.method, "score": self.score, "identifier": self.identifier}


def find_components(method: str | type[Any], score: str | type[Any] | None, identifier: str | type[Any]) -> Components:
    """Return the three components; the default score is the one that the identifier requires, or `max`.

    >>> find_components("rosita", None, "msp").score.name
    'msp'
    """
    return check_components(
        find_component("method", method),
        None if score is None else find_component("score", score),
        find_component("identifier", identifier),
    )


def check_components(method: Component, score: Component | None, identifier: Component) -> Components:
    """Return the components; raise an Error if the identifier requires another score."""
    needed: str | None = identifier.of.needs
    if score is None:
        score = _by_name("score", needed or "max")
    if needed is not None and score.name != needed:
        raise Error(
            f"The identifier {identifier.name!r} requires the score {needed!r}, not {score.name!r}.",
            code="components-incompatible",
        )
    return Components(method, score, identifier)


def find_saved_component(kind: ComponentKind, saved: str, given: str | type[Any] | None) -> Component:
    """Return the component with the name `saved` in a file; the caller must pass its class if it is not registered."""
    if given is None:
        if ":" in saved and saved not in component_names(kind):
            raise Error(
                f"it was saved with the {kind} {shown(saved, 300)}, which is not registered: pass its class as "
                f"`{kind}=`.",
                code="component-not-registered",
            )
        return _by_name(kind, saved)
    component = find_component(kind, given)
    # Only the name is compared, because a class may move to another module.
    if saved.rpartition(":")[2] != component.name.rpartition(":")[2]:
        raise Error(
            f"it was saved with the {kind} {shown(saved, 300)}, not with {component.name!r}.", code="component-mismatch"
        )
    return component


def component_names(kind: ComponentKind) -> list[str]:
    """Return all registered names: those of the package first, which plug-ins cannot replace."""
    return list(dict.fromkeys([*BUILT_IN[kind], *plugins.registered_names(kind)]))


def list_components(kind: ComponentKind) -> tuple[list[Component], list[str]]:
    """Return all registered components, and a message for each component that cannot be loaded."""
    components, problems = [], []
    for name in component_names(kind):
        try:
            components.append(_by_name(kind, name))
        except Error as problem:
            problems.append(str(problem))
    for name in plugins.registered_names(kind):
        if name in BUILT_IN[kind]:
            problems.append(f"A package registers the {kind} {name!r}, a name of ostta itself: it is ignored.")
    return components, problems


def require_known(name: str, known: Iterable[str], kind: str) -> str:
    """Return `name`; raise an Error with suggestions if it is not in `known`."""
    listed = list(known)
    if name not in listed:
        raise Error(f"There is no {kind} {shown(name)}{suggest(name, listed)}.", code=f"{kind.split()[0]}-unknown")
    return name


def suggest(name: str, known: list[str]) -> str:
    """Return the end of a message about an unknown name: the closest name, or all names."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}" if close else f"; there are {', '.join(sorted(known))}"


def _by_name(kind: ComponentKind, name: str) -> Component:
    if name in BUILT_IN[kind]:
        return Component(name, BUILT_IN[kind][name])
    if plugins.names_file(name):
        raise plugins.file_not_allowed(kind, name, "class")
    component_class = plugins.registered(kind, require_known(name, component_names(kind), kind))
    if not inspect.isclass(component_class):
        raise Error(
            f"The {kind} {name!r} of a package must be a class, not {shown(component_class)}.", code="component-invalid"
        )
    _require_parts(kind, component_class)
    return Component(name, component_class)


def _require_parts(kind: ComponentKind, given: type[Any]) -> None:
    for part in _PARTS[kind]:
        if not hasattr(given, part):
            raise Error(
                f"The class {given.__qualname__} is not a valid {kind}: it has no `{part}`.", code="component-invalid"
            )
    if not inspect.isclass(given.Options) or not is_dataclass(given.Options):
        raise Error(
            f"`Options` of {given.__qualname__} must be a dataclass, not {shown(given.Options)}.",
            code="component-invalid",
        )
