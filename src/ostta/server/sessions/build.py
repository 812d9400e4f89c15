"""A request for a session, checked: registered names only, on the server's own backbone, nothing that is a path or a file."""

from __future__ import annotations

import math
import re
import threading
import unicodedata
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
from ...core.checks import shown
from ...core.types import Error
from ...data.class_names import Classes, described
from ...field.words import expanded
from ...io import is_unicode
from ...state.stored_shapes import DecidesShapes
from ..settings import Limits

PARTS: tuple[ComponentKind, ...] = ("method", "score", "identifier")
FIELDS = ("classes", "name", *PARTS, "profile", "seed", "guard", "options")
MOST_NAME = 200
# The most characters of a class name or a description.
MOST_TEXT = 500
MOST_DESCRIPTIONS = 32
_WARNINGS = threading.Lock()
# Characters without a shape of their own that `str.isprintable` lets through: fillers and variation selectors.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def build_adapter(wanted: Mapping[str, Any], backbone: Backbone, limits: Limits) -> Adapter:
    """A new adapter as `POST /sessions` asks for it; an Error says what is wrong with that."""
    for name in wanted:
        if name not in FIELDS:
            raise Error(f"A session has no {shown(name)}; there are {', '.join(FIELDS)}.")
    for kind in PARTS:
        if (given := wanted.get(kind)) is not None:
            find_component(kind, _text(given, kind))
    if (profile := wanted.get("profile")) is not None:
        require_known(_text(profile, "profile"), PROFILES, "profile")
    guard, seed = wanted.get("guard"), wanted.get("seed")
    if guard is not None and not isinstance(guard, bool):
        raise Error(f"`guard` is true or false, not {shown(guard)}.")
    if seed is not None and type(seed) is not int:
        raise Error(f"`seed` is a whole number, not {shown(seed)}.")
    options = wanted.get("options")
    if options is not None and not isinstance(options, dict):
        raise Error(f"`options` are values by name, not {shown(options)}.")
    classes = checked_classes(wanted.get("classes"), limits.classes)
    arguments: dict[str, Any] = {
        **{kind: wanted.get(kind) for kind in (*PARTS, "profile")},
        # Nobody looks at these answers one by one.
        "guard": guard is not False,
        # What `?evidence=true` shows.
        "options": {"class_scores": True, **(options or {})},
    }
    _require_few_wanted(classes, backbone, limits, **arguments)
    with without_warnings():
        adapter = load(backbone, classes, seed=0 if seed is None else seed, **arguments)
    # Also counts what no option tells of, such as the parameters that a method trains.
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
    """What `require_few` and `require_little` say of the options in force, before anything is made with them."""
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
            f"server allows: choose smaller banks{fewer}."
        )


def require_few(classes: Sequence[str], resolved: Resolved, limits: Limits) -> None:
    """Refuse more classes or prompts than the server takes: each goes through the text tower."""
    options, words = resolved.adapter, len(expanded(getattr(resolved.score, "words", ())))
    if len(classes) > limits.classes:
        raise Error(f"There are {len(classes)} classes, and {limits.classes} are the most that this server takes.")
    prompts = (len(classes) + words) * len(options.templates) + sum(
        line.count(";") + 1 for line in options.descriptions
    )
    if prompts > limits.prompts:
        raise Error(
            f"There are {prompts} prompts of classes{' and words' if words else ''}, and {limits.prompts} are the most that this server takes."
        )


def checked_classes(classes: Any, most: int) -> list[str] | dict[str, list[str]]:
    """The classes of a request: names, or names with descriptions."""
    if not isinstance(classes, list | dict) or not classes:
        raise Error(f"`classes` is a list of names, or an object from names to descriptions, not {shown(classes)}.")
    if len(classes) > most:
        raise Error(f"There are {len(classes)} classes, and {most} are the most that this server takes.")
    seen: dict[str, str] = {}
    for name in classes:
        if not _text(name, "classes").strip():
            raise Error(f"`classes` takes texts of at most {MOST_TEXT} characters, not {shown(name)}.")
        _require_visible(name, "A class name")
        look = _look(name)
        if look in seen:
            raise Error(
                f"The class names {shown(seen[look])} and {shown(name)} look the same; each class needs its own."
            )
        seen[look] = name
    if isinstance(classes, dict):
        for name, given in classes.items():
            if not isinstance(given, list) or len(given) > MOST_DESCRIPTIONS:
                raise Error(f"The descriptions of {shown(name)} are a list of at most {MOST_DESCRIPTIONS} texts.")
            for text in given:
                _require_visible(_text(text, "classes"), "A description")
        return {name.strip(): given for name, given in classes.items()}
    return [name.strip() for name in classes]


def checked_name(name: Any) -> str:
    """The name of a session: a short text for people, never part of a path."""
    if not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME or not is_unicode(name):
        raise Error(f"The name of a session is a text of at most {MOST_NAME} characters, not {shown(name)}.")
    _require_visible(name, "The name of a session")
    return name.strip()


def _require_visible(text: str, what: str) -> None:
    """Refuse line breaks, control characters and marks that change the direction of writing."""
    if not text.isprintable():
        raise Error(f"{what} is one line of characters that can be seen, not {shown(text)}.")


def _look(name: str) -> str:
    """Return a key that is equal for names that look the same."""
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", name)).strip()


def choices() -> dict[str, Any]:
    """What a request may name, and the options of each."""
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


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value or len(value) > MOST_TEXT or not is_unicode(value):
        raise Error(f"`{name}` takes texts of at most {MOST_TEXT} characters, not {shown(value)}.")
    return value
