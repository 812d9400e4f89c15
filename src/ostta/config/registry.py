"""Methods, scores and identifiers by name or by class, whether they ship with ostta or come from outside."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from ..contrib import Adaptive, Neighbours
from ..core.checks import shown
from ..core.types import Error
from ..field import FieldIdentifier, FieldScore
from ..identifiers import IDENTIFIERS, Identifier
from ..methods import METHODS
from ..scores import SCORES, Score
from . import plugins

# All that ships, what is recommended first.
ALL_SCORES: dict[str, type[Score]] = {"field": FieldScore, **SCORES, "neighbours": Neighbours}
ALL_IDENTIFIERS: dict[str, type[Identifier]] = {"field": FieldIdentifier, **IDENTIFIERS, "adaptive": Adaptive}
ComponentKind = Literal["method", "score", "identifier"]
COMPONENT_KINDS: tuple[ComponentKind, ...] = ("identifier", "score", "method")
# What a class must have at the least; `ostta.testing` checks what it does.
_PARTS = {
    "method": ("Options", "facts", "start", "overlay", "look", "propose", "commit"),
    "score": ("Options", "about", "value", "take", "memories", "reset", "tensors", "load"),
    "identifier": ("Options", "about", "needs", "peek", "take", "observe", "reset", "tensors", "load"),
}


@dataclass(frozen=True, slots=True)
class Component:
    """A method, a score or an identifier: its class, and its name in files and sentences.

    A class that nobody registered is called `package.module:Name`, and one from a file `file.py:Name`.
    """

    name: str
    of: type[Any]

    @property
    def options(self) -> type[Any]:
        """Its options class."""
        options: type[Any] = self.of.Options
        return options

    @property
    def given(self) -> type[Any] | None:
        """The class, where a state file must be given it as its name is not registered; else None."""
        return self.of if ":" in self.name else None


def find_component(kind: ComponentKind, wanted: str | type[Any]) -> Component:
    """The method, score or identifier of that name, or of that class. A text never makes a file be run."""
    if isinstance(wanted, str):
        return _by_name(kind, wanted)
    if not inspect.isclass(wanted):
        raise Error(f"`{kind}` takes a name or a class, not {shown(wanted)}.")
    _require_parts(kind, wanted)
    for name, own in _built_in(kind).items():
        if own is wanted:
            return Component(name, wanted)
    known = plugins.registered_as(kind, wanted)
    if known is not None and known not in _built_in(kind):
        return Component(known, wanted)
    return Component(plugins.file_name(wanted) or f"{wanted.__module__}:{wanted.__qualname__}", wanted)


@dataclass(frozen=True, slots=True)
class Components:
    """Which method, score and identifier work together."""

    method: Component
    score: Component
    identifier: Component

    def parts(self) -> dict[ComponentKind, Component]:
        return {"method": self.method, "score": self.score, "identifier": self.identifier}


def find_components(method: str | type[Any], score: str | type[Any] | None, identifier: str | type[Any]) -> Components:
    """The three by name or by class. Without a score, the one that the identifier needs, or `max`.

    >>> find_components("rosita", None, "msp").score.name
    'msp'
    """
    return check_components(
        find_component("method", method),
        None if score is None else find_component("score", score),
        find_component("identifier", identifier),
    )


def check_components(method: Component, score: Component | None, identifier: Component) -> Components:
    """An Error where the identifier can judge another score only."""
    needed: str | None = identifier.of.needs
    if score is None:
        score = _by_name("score", needed or "max")
    if needed is not None and score.name != needed:
        raise Error(f"The identifier {identifier.name!r} judges the score {needed!r} only, not {score.name!r}.")
    return Components(method, score, identifier)


def find_saved_component(kind: ComponentKind, saved: str, given: str | type[Any] | None) -> Component:
    """What a file calls `saved`: it is found by that name if it is registered, else it must be given."""
    if given is None:
        if ":" in saved and saved not in component_names(kind):
            raise Error(
                f"it was made with the {kind} {shown(saved, 300)}, which is not registered: pass its class as `{kind}=`."
            )
        return _by_name(kind, saved)
    found = find_component(kind, given)
    # A class may have moved to another module; a registered name is a promise.
    if saved.rpartition(":")[2] != found.name.rpartition(":")[2]:
        raise Error(f"it was made with the {kind} {shown(saved, 300)}, not with {found.name!r}.")
    return found


def component_names(kind: ComponentKind) -> list[str]:
    """Everything that is registered: what ships, then what packages add. Nobody can take a name that ships."""
    own = list(_built_in(kind))
    return [*own, *(name for name in plugins.registered_names(kind) if name not in own)]


def list_components(kind: ComponentKind) -> tuple[list[Component], list[str]]:
    """All that is registered, and a sentence about each that cannot be had."""
    found, problems = [], []
    for name in component_names(kind):
        try:
            found.append(_by_name(kind, name))
        except Error as problem:
            problems.append(str(problem))
    for name in plugins.registered_names(kind):
        if name in _built_in(kind):
            problems.append(f"A package registers the {kind} {name!r}, which ships with ostta: it is passed over.")
    return found, problems


def require_known(name: str, known: Iterable[str], kind: str) -> str:
    """`name` if it is known, else an Error that lists what is."""
    listed = list(known)
    if name not in listed:
        raise Error(f"There is no {kind} {shown(name)}{suggest(name, listed)}.", code=f"{kind.split()[0]}-unknown")
    return name


def suggest(name: str, known: list[str]) -> str:
    """The end of a sentence about a name that is not known."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}" if close else f"; there are {', '.join(sorted(known))}"


def _built_in(kind: ComponentKind) -> dict[str, type[Any]]:
    shipped: dict[ComponentKind, Any] = {"method": METHODS, "score": ALL_SCORES, "identifier": ALL_IDENTIFIERS}
    return dict(shipped[kind])


def _by_name(kind: ComponentKind, name: str) -> Component:
    own = _built_in(kind)
    if name in own:
        return Component(name, own[name])
    if plugins.names_file(name):
        raise Error(
            f"The {kind} {shown(name, 300)} is in a file, which only a command line or a suite may name: "
            f'in Python, give the class, or `ostta.plugins.from_file("path/file.py:Name")`.'
        )
    found = plugins.registered(kind, require_known(name, component_names(kind), kind))
    if not inspect.isclass(found):
        raise Error(f"The {kind} {name!r} that a package registers is no class, but {shown(found)}.")
    _require_parts(kind, found)
    return Component(name, found)


def _require_parts(kind: ComponentKind, given: type[Any]) -> None:
    for part in _PARTS[kind]:
        if not hasattr(given, part):
            raise Error(f"The class {given.__qualname__} is no {kind}: it has no `{part}`.")
    if not inspect.isclass(given.Options) or not is_dataclass(given.Options):
        raise Error(f"The `Options` of {given.__qualname__} must be a dataclass, not {shown(given.Options)}.")
