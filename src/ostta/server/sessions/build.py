"""Adapters of new sessions, within the limits of the server."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...adapter import Adapter, load
from ...backbones.protocol import Backbone
from ...config.declare import PROFILES, list_options, profile_values
from ...config.profiles import apply_profile
from ...config.registry import ComponentKind, component_names, find_component, find_components, require_known
from ...config.resolve import Resolved, list_options_classes, resolve
from ...core.types import Error
from ...data.class_names import Classes, described
from ...field.words import expanded
from ...state.stored_shapes import DecidesShapes
from ..settings import Limits

PARTS: tuple[ComponentKind, ...] = ("method", "score", "identifier")
_WARNINGS = threading.Lock()


def build_adapter(wanted: Mapping[str, Any], backbone: Backbone, limits: Limits) -> Adapter:
    """Build the adapter of a new session from a body that `NewSession` has validated.

    Only registered names and the backbone of the server can be used, and nothing that is a path or a file.
    """
    classes, options = wanted["classes"], wanted.get("options") or {}
    for kind in PARTS:
        if (given := wanted.get(kind)) is not None:
            find_component(kind, given)
    if (profile := wanted.get("profile")) is not None:
        require_known(profile, PROFILES, "profile")
    if len(classes) > limits.classes:
        raise _too_many_classes(len(classes), limits)
    arguments: dict[str, Any] = {
        **{kind: wanted.get(kind) for kind in (*PARTS, "profile")},
        "guard": wanted.get("guard") is not False,
        # For `?evidence=true`.
        "options": {"class_scores": True, **options},
    }
    _require_few_wanted(classes, backbone, limits, **arguments)
    with without_warnings():
        adapter = load(backbone, classes, seed=wanted.get("seed") or 0, **arguments)
    # Includes what no option determines, such as the parameters that a method trains.
    tensors = adapter.copy_state().tensors.values()
    _require_small(sum(tensor.nbytes for tensor in tensors), adapter.resolved, limits)
    return adapter


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress warnings; what adapters warn about is in the JSON of the session, as `unfamiliar`."""
    # Filters belong to the process: two threads that change them at the same time would leave them changed.
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _require_few_wanted(
    classes: Classes,
    backbone: Backbone,
    limits: Limits,
    *,
    method: str | None,
    score: str | None,
    identifier: str | None,
    profile: str | None,
    guard: bool,
    options: dict[str, Any],
) -> None:
    """Apply `require_few` and `require_little` to the resolved options, before anything is built with them."""
    picked = apply_profile(profile, method, score, identifier)
    choice = find_components(picked.method, picked.score, picked.identifier)
    names, lines = described(classes)
    keywords = {"descriptions": lines} if lines and "descriptions" not in options else {}
    resolved = resolve(choice, picked.profile, options, backbone.defaults, keywords, guard)
    require_few(names, resolved, limits)
    require_little(len(names), resolved, backbone, limits)


def require_little(classes: int, options: Resolved, backbone: Backbone, limits: Limits) -> None:
    """Refuse options whose banks of features and images may become larger than the memory of a session."""
    state = getattr(options.method, "stored_images", 0) * 3 * backbone.preprocessing.image_size**2
    for part in (options.method, options.score):
        if isinstance(part, DecidesShapes):
            state += 4 * sum(map(math.prod, part.stored_shapes(classes, backbone.feature_width).values()))
    _require_small(state, options, limits)


def _require_small(state: int, options: Resolved, limits: Limits) -> None:
    snapshots = 0 if options.guard is None else options.guard.snapshots
    needed = state * (1 + snapshots)
    if needed > limits.session_bytes:
        fewer = f", or fewer than {snapshots} snapshots of the guard" if snapshots > 1 else ""
        raise Error(
            f"This session may need {needed / 2**20:,.0f} MB of memory, and {limits.session_bytes / 2**20:,.0f} MB are the most that this "
            f"server allows: choose smaller banks{fewer}.",
            code="session-too-large",
        )


def require_few(classes: Sequence[str], resolved: Resolved, limits: Limits) -> None:
    """Refuse more classes or prompts than the server takes: each goes through the text tower."""
    options, words = resolved.adapter, len(expanded(getattr(resolved.score, "words", ())))
    if len(classes) > limits.classes:
        raise _too_many_classes(len(classes), limits)
    prompts = (len(classes) + words) * len(options.templates) + sum(
        line.count(";") + 1 for line in options.descriptions
    )
    if prompts > limits.prompts:
        raise Error(
            f"There are {prompts} prompts of classes{' and words' if words else ''}, and {limits.prompts} are the most that this server takes.",
            code="session-too-large",
        )


def _too_many_classes(count: int, limits: Limits) -> Error:
    return Error(
        f"There are {count} classes, and {limits.classes} are the most that this server takes.",
        code="session-too-large",
    )


def choices() -> dict[str, Any]:
    """Return the names that a request may use, and the options of each."""
    return {
        "methods": component_names("method"),
        "scores": component_names("score"),
        "identifiers": component_names("identifier"),
        "profiles": list(PROFILES),
        # What each profile chooses where it is not named; a score of None is the one that the identifier needs, or `max`.
        "profile_choices": {
            profile: {part: getattr(apply_profile(profile), part) for part in PARTS} for profile in PROFILES
        },
        "options": {owner: _options(options) for owner, options in list_options_classes().items()},
    }


def _options(options: type[Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "about": each.about,
            "default": _plain(each.default),
            # Values that a profile has in its place.
            "profiles": {
                profile: _plain(values[each.name])
                for profile in PROFILES
                if each.name in (values := profile_values(options, profile))
            },
            "kind": each.takes,
        }
        for each in list_options(options)
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
