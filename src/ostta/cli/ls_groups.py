"""`ostta ls groups`."""

from __future__ import annotations

from .listing import print_table


def groups() -> None:
    """List the parameter groups that a method can train.

    The option `group` selects one.

    Example: ostta ls groups
    """
    from ..methods.groups import GROUPS

    print_table("Groups of parameters", ("group", "trained parameters"), GROUPS.items())
