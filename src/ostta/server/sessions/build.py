"""Adapters of new sessions and of uploaded state files, within the limits of the server."""

from __future__ import annotations

import math
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...adapter import Adapter, load
from ...backbones.protocol import Backbone
from ...config.declare import PROFILES, list_options, profile_values
from ...config.profiles import apply_profile
from ...config.registry import ComponentKind, component_names, find_component, find_components, require_known
from ...config.resolve import Resolved, list_options_classes, resolve
from ...core.types import Error
from ...data.class_names import described
from ...field.words import expanded
from ...state import read_state
from ...state.stored_shapes import DecidesShapes
from ..settings import Limits
from .names import checked_classes

PARTS: tuple[ComponentKind, ...] = ("method", "score", "identifier")
_WARNINGS = threading.Lock()


def build_adapter(request: Mapping[str, Any], backbone: Backbone, limits: Limits) -> Adapter:
    """Build the adapter of a new session from a body that `NewSession` has validated.

    Only registered names and the backbone of the server can be used, and nothing that is a path or a file.
    """
    classes, guard = request["classes"], request.get("guard") is not False
    # The scores of all classes are for ?evidence=true.
    options = {"class_scores": True, **(request.get("options") or {})}
    parts = {kind: request.get(kind) for kind in PARTS}
    for kind, given in parts.items():
        if given is not None:
            find_component(kind, given)
    if (profile := request.get("profile")) is not None:
        require_known(profile, PROFILES, "profile")
    # Checked before anything is built.
    picked = apply_profile(profile, **parts)
    names, lines = described(classes)
    keywords = {"descriptions": lines} if lines and "descriptions" not in options else {}
    components = find_components(picked.method, picked.score, picked.identifier)
    resolved = resolve(components, picked.profile, options, backbone.defaults, keywords, guard)
    _require_within_limits(names, resolved, backbone, limits)
    with _without_warnings():
        seed = request.get("seed") or 0
        adapter = load(backbone, classes, profile=profile, seed=seed, guard=guard, options=options, **parts)
    # Includes what no option determines, such as the parameters that a method trains.
    tensors = adapter.copy_state().tensors.values()
    _require_memory(sum(tensor.nbytes for tensor in tensors), adapter.resolved, limits)
    return adapter


def restored(state: bytes, backbone: Backbone, limits: Limits) -> Adapter:
    """Return the adapter in a state file. An Error says what is wrong with it, without naming a file of the server."""
    with tempfile.TemporaryDirectory(prefix="ostta-") as folder:
        path = Path(folder) / "state.ostta"
        path.write_bytes(state)
        try:
            # Checked first: prompts of all classes go through the text tower.
            with _without_warnings():
                _, described = read_state(path)
                checked_classes(list(described.classes))
                _require_within_limits(described.classes, described.options, backbone, limits)
                return Adapter.restore(path, backbone)
        except Error as problem:
            raise Error(str(problem).replace(str(path), "The state file"), code=problem.code) from None


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress warnings; what adapters warn about is in the JSON of the session, as `unfamiliar`."""
    # Filters belong to the process: two threads that change them at the same time would leave them changed.
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _require_within_limits(classes: Sequence[str], resolved: Resolved, backbone: Backbone, limits: Limits) -> None:
    """Refuse more classes or prompts than the server accepts, which all go through the text tower, and larger banks."""
    options, words = resolved.adapter, len(expanded(getattr(resolved.score, "words", ())))
    if len(classes) > limits.classes:
        raise Error(
            f"There are {len(classes)} classes, and the limit of this server is {limits.classes}.",
            code="session-too-large",
        )
    descriptions = sum(line.count(";") + 1 for line in options.descriptions)
    prompts = (len(classes) + words) * len(options.templates) + descriptions
    if prompts > limits.prompts:
        raise Error(
            f"There are {prompts} prompts of classes{' and words' if words else ''}, and the limit of this server is "
            f"{limits.prompts}.",
            code="session-too-large",
        )
    state = getattr(resolved.method, "stored_images", 0) * 3 * backbone.preprocessing.image_size**2
    for part in (resolved.method, resolved.score):
        if isinstance(part, DecidesShapes):
            shapes = part.stored_shapes(len(classes), backbone.feature_width).values()
            # A shape that ends with `...` depends on the backbone too: it is checked when the adapter is built.
            state += 4 * sum(math.prod(shape) for shape in shapes if ... not in shape)
    _require_memory(state, resolved, limits)


def _require_memory(state: int, options: Resolved, limits: Limits) -> None:
    """Refuse a state that would need more memory than a session may use, with the snapshots of its guard."""
    snapshots = 0 if options.guard is None else options.guard.snapshots
    needed = state * (1 + snapshots)
    if needed > limits.session_bytes:
        fewer = f", or fewer than {snapshots} snapshots of the guard" if snapshots > 1 else ""
        raise Error(
            f"This session may need {needed / 2**20:,.0f} MB of memory, and {limits.session_bytes / 2**20:,.0f} MB are "
            f"the most that this server allows: choose smaller banks{fewer}.",
            code="session-too-large",
        )


def choices() -> dict[str, Any]:
    """Return the names that a request may use, and the options of each."""
    return {
        "methods": component_names("method"),
        "scores": component_names("score"),
        "identifiers": component_names("identifier"),
        "profiles": list(PROFILES),
        # A score of None is the one that the identifier needs, or `max`.
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
