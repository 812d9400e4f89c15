"""Built-in scores by name; `config/registry.py` adds those of `field` and `rivals`."""

from __future__ import annotations

from ..core.types import Scored
from .base import MCM, Energy, EnergyOptions, Max, MaxOptions, MaxSoftmax, MaxSoftmaxOptions, MCMOptions, Score, Setting

__all__ = [
    "MCM",
    "SCORES",
    "Energy",
    "EnergyOptions",
    "MCMOptions",
    "Max",
    "MaxOptions",
    "MaxSoftmax",
    "MaxSoftmaxOptions",
    "Score",
    "Scored",
    "Setting",
]

SCORES: dict[str, type[Score]] = {
    "max": Max,
    "msp": MaxSoftmax,
    "energy": Energy,
    "mcm": MCM,
}
