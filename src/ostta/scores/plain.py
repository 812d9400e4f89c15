"""Scores computed from one image alone: the largest logit, the largest softmax probability (`msp`, `mcm`) and the energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config.declare import Options, option
from ..core.scores import energy_score, max_score, max_softmax_score
from ..core.types import Look, Scored
from .base import Score, Setting


@dataclass(frozen=True)
class MaxOptions(Options):
    """`max` has no options."""


class Max(Score):
    """s = max_c z_c over the method's own scores: its logits, or what it names in their place.

    >>> ostta.load("embedded", ["cat", "dog"], score="max").step(image).score > 0.4
    True
    """

    Options = MaxOptions
    about = "the best logit of the method, for most methods the best cosine: the paper's"

    def __init__(self, options: MaxOptions, setting: Setting) -> None:
        self.scale: float | None = setting.method_scale

    def value(self, look: Look[Any]) -> Scored:
        return Scored(max_score(look.logits if look.scores is None else look.scores))


@dataclass(frozen=True)
class MaxSoftmaxOptions(Options):
    """`msp` has no options."""


class MaxSoftmax(Score):
    """The largest probability in the softmax of the scaled cosines.

    >>> 0.5 < ostta.load("embedded", ["cat", "dog"], score="msp").step(image).score < 1
    True
    """

    Options = MaxSoftmaxOptions
    about = "the maximum softmax probability, at the backbone's own temperature"
    scale: float | None = 1.0

    def __init__(self, options: MaxSoftmaxOptions, setting: Setting) -> None:
        self._logit_scale = setting.logit_scale

    def value(self, look: Look[Any]) -> Scored:
        return Scored(max_softmax_score(look.cosines, self._logit_scale))


@dataclass(frozen=True)
class MCMOptions(Options):
    """The default is the published value."""

    softmax_temperature: float = option(
        1.0, bounds=(1e-6, 1e6), about="temperature of the softmax over cosines; 1 / logit scale gives the score `msp`"
    )


class MCM(Score):
    """Maximum concept matching: the largest softmax probability of the cosines at a temperature (Ming et al. 2022).

    >>> round(ostta.load("embedded", ["cat", "dog"], score="mcm").step(image).score, 1)
    0.5
    """

    Options = MCMOptions
    about = "MCM: the maximum softmax probability of the cosines, at temperature 1"
    # All values lie between 1/C and 1, but at temperature 1 they differ by thousandths. A grid over [0, 1] is too coarse for them.
    scale: float | None = None

    def __init__(self, options: MCMOptions, setting: Setting) -> None:
        self._scale = 1 / options.softmax_temperature

    def value(self, look: Look[Any]) -> Scored:
        return Scored(max_softmax_score(look.cosines, self._scale))


@dataclass(frozen=True)
class EnergyOptions(Options):
    """`energy` has no options."""


class Energy(Score):
    """The negative free energy of the scaled cosines, log sum_c exp(s z_c) (Liu et al. 2020).

    >>> ostta.load("embedded", ["cat", "dog"], score="energy").step(image).score > 0
    True
    """

    Options = EnergyOptions
    about = "the energy score: log-sum-exp of the cosines times the backbone's logit scale"
    scale: float | None = None

    def __init__(self, options: EnergyOptions, setting: Setting) -> None:
        self._logit_scale = setting.logit_scale

    def value(self, look: Look[Any]) -> Scored:
        return Scored(energy_score(look.cosines, self._logit_scale))
