"""A score inspired by DART (2026): one prototype of known images, one of unknown images, and the axis between them.

    s = the best cosine;  r = f.D - f.U        D, U: unit prototypes of known and unknown images
    value = std(s) + g std(r)                  std: standardised by mean and deviation of the last 512 images

This is not a reproduction. According to public information, DART keeps one prototype of either kind, tracks the axis
between them as it drifts, combines several layers, and corrects prototypes that have been swapped. The initialisation
and update of the prototypes, the score, the selected layers and the detection of swaps are not public. This module
makes these choices:

    layers      the final feature only: no hook in the image tower, so it also works on features and exported towers
    start       after 64 images: the means of the two groups into which s is split; before that the value is std(s)
    update      a reliable known image moves D by 1/64 towards its feature, a reliable unknown image moves U
    score       the two standardised terms with equal weight
    swaps       every 64 images, g is the sign of the correlation of r with s over the last 512; 0 if it is below 0.1

Limitations: one mean of many classes is coarse, and without unknown images U is the mean of difficult known images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..config.declare import Options, option
from ..core.banks import FeatureWindow, ScoreBank, feature_row, named
from ..core.checks import require_intact, require_names, split, stored, stored_count
from ..core.losses import max_score
from ..core.otsu import Floats, otsu_split
from ..core.types import Decision, Error, Look, Scored, Verdict
from ..scores import Score, Setting

KNOWN, UNKNOWN = 0, 1


@dataclass(frozen=True)
class DartOptions(Options):
    """Options of `dart`. All values are our choice, because no published value exists."""

    gather: int = option(64, bounds=(2, 10_000), about="number of images before the prototypes are initialised")
    follow: float = option(1 / 64, above=0, at_most=1, about="update rate of a prototype for each reliable image")
    kept: int = option(
        512,
        bounds=(2, 65_536),
        about="number of recent images over which mean, standard deviation and correlation are computed",
    )
    flip_every: int = option(
        64,
        bounds=(0, 10**6),
        about="number of images between two checks of the sign of the axis; 0 disables the checks",
    )
    flip_below: float = option(0.1, bounds=(0, 1), about="smallest absolute correlation at which the axis is used")

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of stored tensors that depend on the options, by name.

        The tensors are smaller until enough images have been seen.
        """
        return {"gathered/rows": (self.gather, width)}


class Dart(Score):
    """Two prototypes, the last pairs of s and r, and the features for the initial prototypes.

    >>> ostta.load("embedded", ["cat", "dog"], "zero_shot", score="dart").step(image).score  # no images yet
    0.0
    """

    Options = DartOptions
    about = "inspired by DART: fit to the best class, and similarity to prototypes of known and unknown images"
    scale: float | None = None

    def __init__(self, options: DartOptions, setting: Setting) -> None:
        if options.kept < options.gather:
            raise Error(
                f"`kept` ({options.kept}) must be at least `gather` ({options.gather}).", code="option-conflict"
            )
        self.options = options
        self._width = setting.classifier.shape[1]
        self.reset()

    def reset(self) -> None:
        self._prototypes: Floats | None = None
        self._gathered = FeatureWindow(self.options.gather, self._width)
        # s and r of the last images; r exists only once there are prototypes.
        self._fits, self._axes = ScoreBank(self.options.kept), ScoreBank(self.options.kept)
        self._images, self._sign = 0, 1

    def value(self, look: Look[Any]) -> Scored:
        fit = _standard(max_score(look.cosines), self._fits)
        if self._prototypes is None:
            return Scored(fit, {"class": fit})
        known, unknown = (self._prototypes @ feature_row(look, np.float64)).tolist()
        score = fit + self._sign * _standard(known - unknown, self._axes)
        return Scored(score, {"class": fit, "known": known, "unknown": unknown})

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        row = feature_row(look, np.float64)
        self._fits.push(max_score(look.cosines))
        self._images += 1
        if self._prototypes is None:
            self._gathered.push(row.astype(np.float32))
            if len(self._gathered) == self.options.gather:
                self._begin()
            return
        self._axes.push(scored.evidence["known"] - scored.evidence["unknown"])
        if decision.verdict is Verdict.RELIABLE_DESIRED:
            self._move(KNOWN, row)
        elif decision.verdict is Verdict.RELIABLE_UNDESIRED:
            self._move(UNKNOWN, row)
        if self.options.flip_every and self._images % self.options.flip_every == 0:
            self._sign = self._sign_of_axis()

    def tensors(self) -> dict[str, torch.Tensor]:
        prototypes = np.zeros((0, self._width)) if self._prototypes is None else self._prototypes
        arrays = {"prototypes": prototypes, "fits": self._fits.scores(), "axes": self._axes.scores()}
        counts = {"images": self._images, "sign": self._sign + 1}
        return named(
            gathered=self._gathered.tensors(),
            axis={name: torch.from_numpy(value.copy()) for name, value in arrays.items()},
            counts={name: torch.tensor(number) for name, number in counts.items()},
        )

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        gathered, axis, counts = split(tensors, "gathered", "axis", "counts")
        require_names(axis, ("prototypes", "fits", "axes"))
        require_names(counts, ("images", "sign"))
        images, sign = stored_count(counts, "images"), stored_count(counts, "sign", 2)
        begun = axis["prototypes"].ndim > 0 and len(axis["prototypes"]) > 0
        prototypes = stored(axis, "prototypes", torch.float64, (2 if begun else 0, self._width))
        too_long = (torch.linalg.vector_norm(prototypes, dim=-1) > 1.001).any()
        require_intact(~too_long, "pair of prototypes", "a prototype is longer than 1")
        fits, axes = (self._fits.stored(axis, name) for name in ("fits", "axes"))
        fresh = FeatureWindow(self.options.gather, self._width)
        fresh.load(gathered)
        waiting = 0 if begun else min(images, self.options.gather)
        complete = len(fits) == min(images, self.options.kept) and len(axes) <= len(fits) and len(fresh) == waiting
        require_intact(complete, "pair of prototypes", "the numbers of stored images and of seen images do not agree")
        self._prototypes = prototypes.numpy().copy() if begun else None
        self._gathered, self._images, self._sign = fresh, images, sign - 1
        self._fits.load(fits)
        self._axes.load(axes)

    def _begin(self) -> None:
        """Compute the prototypes from the images so far, unless all images fit their class equally well."""
        rows = self._gathered.ordered.astype(np.float64)
        fits = self._fits.scores()[-len(rows) :]
        cut, low, high = otsu_split(fits)
        if low == high:
            return
        upper = fits > cut
        self._prototypes = np.stack([_unit(rows[upper].mean(0)), _unit(rows[~upper].mean(0))])
        along = rows @ self._prototypes.T
        for axis in along[:, KNOWN] - along[:, UNKNOWN]:
            self._axes.push(float(axis))
        self._gathered = FeatureWindow(self.options.gather, self._width)

    def _move(self, which: int, row: Floats) -> None:
        assert self._prototypes is not None
        follow = self.options.follow
        moved = self._prototypes.copy()
        moved[which] = _unit((1 - follow) * moved[which] + follow * row)
        self._prototypes = moved

    def _sign_of_axis(self) -> int:
        axis = self._axes.scores()
        fits = self._fits.scores()[-len(axis) :]
        fits, axis = fits - fits.mean(), axis - axis.mean()
        spread = float(np.sqrt((fits @ fits) * (axis @ axis)))
        correlation = float(fits @ axis) / spread if spread > 0 else 0.0
        return int(np.sign(correlation)) if abs(correlation) >= self.options.flip_below else 0


def _standard(value: float, bank: ScoreBank) -> float:
    """Return `value` standardised by the mean and deviation of the bank; 0 if the deviation is 0."""
    others = bank.scores()
    deviation = float(others.std()) if len(others) else 0.0
    return (value - float(others.mean())) / deviation if deviation > 1e-9 else 0.0


def _unit(row: Floats) -> Floats:
    length = float(np.linalg.norm(row))
    return row / length if length > 1e-12 else row
