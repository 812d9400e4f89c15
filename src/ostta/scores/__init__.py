"""The scores by name."""

from __future__ import annotations

from .dart import Dart, DartOptions
from .detector import Detector, DetectorOptions
from .dictionary import Dictionary, DictionaryOptions
from .neighbours import Neighbours, NeighboursOptions
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
    "Neighbours",
    "NeighboursOptions",
    "Score",
    "Setting",
]

SCORES: dict[str, type[Score]] = {
    "max": Max,
    "msp": MaxSoftmax,
    "neighbours": Neighbours,
    "detector": Detector,
    "dictionary": Dictionary,
    "dart": Dart,
    "energy": Energy,
    "mcm": MCM,
}
