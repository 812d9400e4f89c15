"""`ostta ls identifiers`."""

from __future__ import annotations

from .listing import Files, components, print_table


def identifiers(files: Files = None) -> None:
    """List the identifiers, which decide by the scores.

    Example: ostta ls identifiers
    """
    rows = [(found.name, found.of.about) for found in components("identifier", files)]
    print_table("Identifiers", ("identifier", "description"), rows)
