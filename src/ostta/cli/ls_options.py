"""`ostta ls options`."""

from __future__ import annotations

from typing import Annotated

import typer

from .listing import print_table


def options(
    owner: Annotated[
        str,
        typer.Argument(metavar="METHOD", help="A method, a score, an identifier, `adapter`, `guard`, or file.py:Name."),
    ],
) -> None:
    """List the options of a method or another component.

    Example: ostta ls options rosita
    """
    from ..config.registry import require_known
    from .declared_options import declared_options, paper_value, print_departures

    declared = declared_options([owner])
    found = declared[require_known(owner, declared, "method, score or identifier")]
    if not found:
        typer.echo(f"{owner} has no options.")
        return
    print_table(
        f"Options of {owner}",
        ("option", "takes", "default", "paper", "no.", "description"),
        [(one.name, one.takes, one.text(one.default), paper_value(one), one.number or "–", one.about) for one in found],
    )
    typer.echo("paper: the value in the profile `paper`. no.: the number of the entry in docs/disagreements.md.")
    print_departures({owner: found})
