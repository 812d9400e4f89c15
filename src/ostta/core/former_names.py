"""The former name `take` of `remember`, which plug-ins written for earlier versions use."""

from __future__ import annotations

from typing import Any


def accept_former_name(of: type[Any]) -> None:
    """Make `take` and `remember` of a score or an identifier the same function, whichever of the two the class defines."""
    if "remember" in vars(of):
        of.take = of.remember
    elif hasattr(of, "take") and ("take" in vars(of) or not hasattr(of, "remember")):
        of.remember = of.take
