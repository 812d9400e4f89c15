"""`ostta ls scores`."""

from __future__ import annotations

from .listing import Files, components, print_table


def scores(files: Files = None) -> None:
    """List the scores, each of which gives one number per image.

    Example: ostta ls scores
    """
    rows = [(found.name, found.of.about) for found in components("score", files)]
    print_table("Scores", ("score", "description"), rows)
