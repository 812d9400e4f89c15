"""Base class of scores, and the scores that depend on a single image: `max`, `msp`, `mcm` and `energy`.

A score is a number that is higher the more an image looks like one of the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..config.declare import Options, option
from ..core.banks import FeatureMemory
from ..core.checks import require_names
from ..core.losses import energy_score, max_score, max_softmax_score
from ..core.types import Decision, Error, Look, Preprocessing, Scored


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs available to a score.

    classifier:     unit text features of the classes [C, D], on the device of all computations.
    logit_scale:    factor of the backbone on cosines before a softmax.
    method_scale:   the largest score of the method: 1 for cosines, 100 for scaled logits.
    preprocessing:  preprocessing of the backbone.
    encode:         unit features [N, D] of preprocessed images [N, 3, H, W] under the frozen tower; raises an Error if
                    there is no tower.
    encode_words:   unit text features [D] by name, for the names that the backbone can encode.
    centre:         prior centre of the backbone, float32 [D], or None if it has none. The first call may encode images.
    """

    classifier: torch.Tensor
    logit_scale: float
    method_scale: float
    preprocessing: Preprocessing
    encode: Callable[[torch.Tensor], torch.Tensor]
    encode_words: Callable[[Sequence[str]], Mapping[str, torch.Tensor]] = lambda names: {}
    centre: Callable[[], torch.Tensor | None] = lambda: None


class Score:
    """Base of scores.

    A score without a memory implements only `__init__` and `value`. Any class with the same functions works as well.

    Only `remember`, `fit_set`, `reset` and `load` change a score.

    Options:     a frozen dataclass with defaults; optional.
    about:       one line for `ostta ls scores`.
    scale:       the largest value, if all values lie between 0 and `scale`; None otherwise.
    warming_up:  whether too few images were seen for reliable decisions, if the identifier cannot determine this;
                 optional.

    >>> ostta.load("embedded", ["cat", "dog"], score="msp").score.scale
    1.0
    """

    Options: type[Any] = Options
    about: str
    scale: float | None

    def __init__(self, options: Any, setting: Setting) -> None:
        """Create the score. Raise an Error if it cannot work in this setting.

        `options` is an instance of `Options`.
        """

    def value(self, look: Look[Any]) -> Scored:
        """Return the score of an image from the look of the method, before its update. Changes nothing."""
        raise NotImplementedError

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        """Store the image in the memory, after its step succeeded. `scored` is the result of `value`."""

    def fit_set(self, rows: NDArray[np.float32]) -> list[Scored]:
        """Fit to the unit features [N, D] of a whole set of images at once, and return the score of each.

        The memory then holds a balanced sample of the set, so that a stream can go on from it.
        """
        raise Error(
            f"{type(self).__name__} scores images one by one: use the score 'field' for a whole set of images.",
            code="option-conflict",
        )

    def memories(self) -> Mapping[str, FeatureMemory]:
        """Return banks of features by name; banks of known and unknown images are called desired and undesired."""
        return {}

    def reset(self) -> None:
        """Forget all images."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the content of the memory, for the state file."""
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the content of the memory by the result of an earlier `tensors`."""
        require_names(tensors, ())


# --- scores of one image alone ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MaxOptions(Options):
    """`max` has no options."""


class Max(Score):
    """s = max_c z_c over the scores of the method: its logits, or the values that it provides instead.

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
    """Options of `mcm`. The default is the published value."""

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
    # All values lie between 1/C and 1, but at temperature 1 they differ only by thousandths, for which a grid over
    # [0, 1] is too coarse.
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
