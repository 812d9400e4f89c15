"""Profiles: the default method, score and identifier. Option declarations hold the option values of each profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .declare import PROFILES
from .plugins import names_file
from .registry import find_component, require_known

Named = str | type[Any] | None


@dataclass(frozen=True, slots=True)
class ComponentNames:
    """A profile and its components. A score of None selects the score that the identifier requires."""

    profile: str
    method: str | type[Any]
    score: Named
    identifier: str | type[Any]


# docs/deciding.md has the measurements behind `field`.
_DEFAULTS: dict[str, tuple[str, str | None, str]] = {
    "reference": ("rosita", None, "lda"),
    "paper": ("rosita", None, "lda"),
    "field": ("zero_shot", "field", "field"),
}


ABOUT = {
    "reference": "what the published code does, but for plain bugs; the default of `ostta run` and of suites",
    "paper": "what the text of the paper says",
    "field": "what we recommend outside a benchmark; the default of `ostta.load` and `ostta stream` with nothing named",
}


def apply_profile(
    profile: str | None, method: Named = None, score: Named = None, identifier: Named = None
) -> ComponentNames:
    """Return the named components, completed with those of the profile.

    The default profile is `field` if no component is named, otherwise `reference`.

    >>> apply_profile(None), apply_profile(None, method="tda").identifier
    (ComponentNames(profile='field', method='zero_shot', score='field', identifier='field'), 'lda')
    >>> apply_profile("field", identifier="lda").score, apply_profile("field", score="max").identifier
    ('field', 'lda')
    """
    if profile is None:
        profile = "field" if method is None and score is None and identifier is None else "reference"
    default_method, default_score, default_identifier = _DEFAULTS[require_known(profile, PROFILES, "profile")]
    if identifier is None:
        # The identifier `field` requires its own score.
        other_score = score not in (None, default_score)
        identifier = "lda" if other_score and default_identifier == "field" else default_identifier
    if score is None and not _requires_another(identifier, default_score):
        score = default_score
    return ComponentNames(profile, default_method if method is None else method, score, identifier)


def _requires_another(identifier: Named, score: str | None) -> bool:
    """Return whether a named identifier requires another score. Plug-in files are not run for this check."""
    if identifier is None or score is None or names_file(identifier):
        return False
    return find_component("identifier", identifier).of.needs not in (None, score)
