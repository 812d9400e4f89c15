"""Declared options, for `ostta ls options` and `ostta ls profiles`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from ..config.declare import UNCHANGED, Option, list_options

if TYPE_CHECKING:
    from ..config.registry import ComponentKind


def declared_options(files: Sequence[str] = ()) -> dict[str, list[Option]]:
    """Return the options of all methods, scores and identifiers, of the adapter, and of the classes in `files`."""
    from ..config.plugins import from_file, names_file
    from ..config.registry import find_component
    from ..config.resolve import list_options_classes

    found = list_options_classes()
    for name in filter(names_file, files):
        owner = from_file(name)
        kind: ComponentKind = (
            "method" if hasattr(owner, "propose") else "score" if hasattr(owner, "value") else "identifier"
        )
        found[name] = find_component(kind, owner).options
    return {owner: list_options(options) for owner, options in found.items()}


def paper_value(option: Option) -> str:
    """Return the value of an option in the profile `paper` as text."""
    return "same" if option.paper is UNCHANGED else option.text(option.paper)


def print_departures(declared: Mapping[str, Sequence[Option]]) -> None:
    """Print where the defaults differ from the published code."""
    pairs = [(owner, option) for owner, options in declared.items() for option in options]
    bugs = [
        f"  {owner}: {option.name}=reference  {option.bug} ({option.number})" for owner, option in pairs if option.bug
    ]
    others = [
        f"  {owner}: {option.name}={option.text(option.published)}  {option.about} ({option.number})"
        for owner, option in pairs
        if option.published is not UNCHANGED
    ]
    for heading, lines in (
        ("Bugs of the published code that are fixed by default, with the option that restores each:", bugs),
        ("Other differences between the defaults and the published code:", others),
    ):
        for line in (heading, *lines) if lines else ():
            typer.echo(line)
