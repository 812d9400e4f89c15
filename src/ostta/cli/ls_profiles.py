"""`ostta ls profiles`."""

from __future__ import annotations

import typer

from .listing import Files, print_table


def profiles(files: Files = None) -> None:
    """List the profiles, and each option in which they differ.

    Example: ostta ls profiles
    """
    from ..config.declare import PROFILES, UNCHANGED
    from ..config.profiles import ABOUT, apply_profile
    from .declared_options import declared_options, paper_value, print_departures

    declared = declared_options(files or ())
    pairs = [(owner, option) for owner, options in declared.items() for option in options]
    set_by_field = [f"{one.name}={one.text(one.field)}" for _, one in pairs if one.field is not UNCHANGED]
    options = {"reference": "–", "paper": "see below", "field": ", ".join(set_by_field) or "–"}
    chosen = {profile: apply_profile(profile) for profile in PROFILES}
    print_table(
        "Profiles: the components that apply if none is named",
        ("profile", "method", "score", "identifier", "options", "description"),
        [
            (name, str(one.method), str(one.score or "max"), str(one.identifier), options[name], ABOUT[name])
            for name, one in chosen.items()
        ],
    )
    print_table(
        "Options in which the text of the paper and the published code disagree",
        ("of", "option", "no.", "reference", "paper", "description"),
        [
            (owner, one.name, one.number or "–", one.text(one.default), paper_value(one), one.about)
            for owner, one in pairs
            if one.number is not None or one.paper is not UNCHANGED
        ],
    )
    typer.echo("An explicit option takes precedence over the default of the backbone, which precedes the profile.")
    typer.echo("docs/disagreements.md lists all disagreements, with those of data and streams, and their effects.")
    print_departures(declared)
