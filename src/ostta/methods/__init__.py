"""The methods by name."""

from __future__ import annotations

from .protocol import Facts, Method
from .rosita import Rosita
from .zero_shot import ZeroShot

METHODS: dict[str, type[Method]] = {"zero_shot": ZeroShot, "rosita": Rosita}

__all__ = ["METHODS", "Facts", "Method"]
