"""Built-in scores by name; `config/registry.py` adds those of `field` and `contrib`."""

from __future__ import annotations

from ..core.types import Scored
from .base import MCM, Energy, EnergyOptions, Max, MaxOptions, MaxSoftmax, MaxSoftmaxOptions, MCMOptions, Score, Setting
from .detector import Detector, DetectorOptions
from .dictionary import Dictionary, DictionaryOptions

__all__ = [
    "MCM",
    "SCORES",
    "Detector",
    "DetectorOptions",
    "Dictionary",
    "DictionaryOptions",
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
    "detector": Detector,
    "dictionary": Dictionary,
    "energy": Energy,
    "mcm": MCM,
}
