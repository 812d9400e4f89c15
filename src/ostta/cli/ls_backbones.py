"""`ostta ls backbones`."""

from __future__ import annotations

from .listing import print_table


def backbones() -> None:
    """List the backbones that have a name.

    Example: ostta ls backbones
    """
    from ..backbones import backbone_names

    print_table("Backbones", ("backbone", "description", "how to get it"), backbone_names())
