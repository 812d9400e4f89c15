"""`ostta ls methods`."""

from __future__ import annotations

import dataclasses

from .listing import Files, components, print_table


def methods(files: Files = None) -> None:
    """List the methods, with their cost.

    Example: ostta ls methods
    """
    print_table(
        "Methods",
        ("method", "trains", "remembers", "passes of the image tower", "paper"),
        [(found.name, *dataclasses.astuple(found.of.summary)) for found in components("method", files)],
    )
