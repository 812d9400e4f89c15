"""Whether what a spec names exists: asked before any model or data is opened, so that a slip of the keyboard costs no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import backbones
from ...config.registry import Components, find_components
from ...config.resolve import resolve
from ...data.corruptions import checked
from ...data.names import parse_name
from ..own_code import sets_of
from ..spec import RunSpec


def check_names(spec: RunSpec, code: Mapping[str, Any]) -> Components:
    """Method, score and identifier of `spec`. An Error about the first name, option or value that cannot be.

    `code` has what is behind names of files.
    """
    score = None if spec.score is None else code.get(spec.score, spec.score)
    choice = find_components(code.get(spec.method, spec.method), score, code.get(spec.identifier, spec.identifier))
    resolve(choice, spec.profile, spec.options, {}, guard=spec.guard)
    if spec.backbone not in code:
        backbones.check_name(spec.backbone)
    names = [parse_name(name) for name in sets_of(spec)]
    if any(name.corrupted for name in names):
        checked(spec.corruption, spec.severity)
    return choice
