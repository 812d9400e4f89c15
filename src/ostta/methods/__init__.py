"""The methods by name."""

from __future__ import annotations

from typing import Any

from ..core.types import Look, ViewSource
from .cliptta import CLIPTTA
from .dpe import DPE
from .entropy import Entropy
from .oga import OGA
from .onzeta import OnZeta
from .palign import PAlign, PAlignC
from .protocol import Facts, Gradient, Method, Proposal, State, Trained
from .prototypes import Prototypes
from .rosita import Rosita
from .tda import TDA
from .tpt import TPT, TPTC
from .unient import UniEnt
from .zero_shot import ZeroShot

METHODS: dict[str, type[Method[Any, Any, Any]]] = {
    "zero_shot": ZeroShot,
    "rosita": Rosita,
    "tpt": TPT,
    "tpt_c": TPTC,
    "palign": PAlign,
    "palign_c": PAlignC,
    "prototypes": Prototypes,
    "tda": TDA,
    "dpe": DPE,
    "unient": UniEnt,
    "entropy": Entropy,
    "cliptta": CLIPTTA,
    "oga": OGA,
    "onzeta": OnZeta,
}

__all__ = ["METHODS", "Facts", "Gradient", "Look", "Method", "Proposal", "State", "Trained", "ViewSource"]
