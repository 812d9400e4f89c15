"""Built-in methods by name, and base classes for new methods; `config/registry.py` adds the methods of `rivals`."""

from __future__ import annotations

from ..core.optimisers import ProposedStep, StepResult
from ..core.types import Look, ViewSource
from .base import (
    FrozenMethod,
    GradientMethod,
    GradientState,
    Learner,
    Method,
    MethodSummary,
    Proposal,
    State,
    TensorState,
)
from .dpe import DPE
from .entropy import Entropy
from .palign import PAlign, PAlignC
from .prototypes import Prototypes
from .rosita import Rosita
from .tda import TDA
from .tpt import TPT, TPTC
from .unient import UniEnt
from .zero_shot import ZeroShot

METHODS: dict[str, type[Method]] = {
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
}

__all__ = [
    "METHODS", "FrozenMethod", "GradientMethod", "GradientState", "Learner", "Look", "Method", "MethodSummary",
    "Proposal", "ProposedStep", "State", "StepResult", "TensorState", "ViewSource",
]  # fmt: skip
