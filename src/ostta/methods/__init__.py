"""The methods by name."""

from __future__ import annotations

from .protocol import Facts, Method
from .rosita import Rosita
from .zero_shot import ZeroShot

METHODS: dict[str, type[Method]] = {method.name: method for method in (ZeroShot, Rosita)}

__all__ = ["METHODS", "Facts", "Method"]
