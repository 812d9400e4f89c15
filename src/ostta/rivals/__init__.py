"""Methods, scores and identifiers that are newer than the paper, one file each.

adand.py         a detector that learns online, and its thresholds
cliptta.py       contrastive entropy over buffered images; image_memory.py stores them
dart.py          prototypes of known and of unknown images
dictionary.py    OODD: similarity to the images that fit the classes least
oga.py           Gaussian class models; closed_set.py has what it shares with onzeta.py
onzeta.py        balanced labels and a second classifier

They use what a plug-in may use, and no other room imports them except the registry of components.
"""

from __future__ import annotations

from ..identifiers import Identifier
from ..methods import Method
from ..scores import Score
from .adand import AdaND, AdaNDOptions, Detector, DetectorOptions
from .cliptta import CLIPTTA, CLIPTTAOptions
from .dart import Dart, DartOptions
from .dictionary import Dictionary, DictionaryOptions
from .oga import OGA, OGAOptions
from .onzeta import OnZeta, OnZetaOptions

__all__ = [
    "CLIPTTA", "IDENTIFIERS", "METHODS", "OGA", "SCORES", "AdaND", "AdaNDOptions", "CLIPTTAOptions", "Dart",
    "DartOptions", "Detector", "DetectorOptions", "Dictionary", "DictionaryOptions", "OGAOptions", "OnZeta",
    "OnZetaOptions",
]  # fmt: skip

METHODS: dict[str, type[Method]] = {"oga": OGA, "onzeta": OnZeta, "cliptta": CLIPTTA}
SCORES: dict[str, type[Score]] = {"detector": Detector, "dictionary": Dictionary, "dart": Dart}
IDENTIFIERS: dict[str, type[Identifier]] = {"adand": AdaND}
