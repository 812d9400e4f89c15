"""The scores by name; `registry` adds those of `field` and `contrib`."""

from __future__ import annotations

from .dart import Dart, DartOptions
from .detector import Detector, DetectorOptions
from .dictionary import Dictionary, DictionaryOptions
from .plain import MCM, Energy, EnergyOptions, Max, MaxOptions, MaxSoftmax, MaxSoftmaxOptions, MCMOptions
from .protocol import Score, Setting

__all__ = [
    "MCM",
    "SCORES",
    "Dart",
    "DartOptions",
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
    "Setting",
]

SCORES: dict[str, type[Score]] = {
    "max": Max,
    "msp": MaxSoftmax,
    "detector": Detector,
    "dictionary": Dictionary,
    "dart": Dart,
    "energy": Energy,
    "mcm": MCM,
}
