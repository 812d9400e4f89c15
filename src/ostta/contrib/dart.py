"""A score in the spirit of DART (2026): one prototype of known images, one of unknown ones, and the axis between them.

    s = the best cosine;  r = f.D - f.U        D, U: unit prototypes of known and unknown images
    value = std(s) + g std(r)                  std: less the mean, over the deviation, of the last 512 images

Not a reproduction. Public text says that DART keeps one prototype of either kind, that the axis between them is followed as it drifts,
that several layers are joined, and that something corrects prototypes which have changed places. It does not say how the prototypes
begin, who may move them and how fast, what the score is, which layers count, or how a change of places is noticed. What was chosen here:

    layers      the final feature alone: no hook in the image tower, so that it works on features and exported towers too
    beginning   after 64 images: the means of the two groups that s is cut into; until then the value is std(s)
    movement    a reliable known image moves D by 1/64 towards itself, a reliable unknown one U
    score       the two standardised terms with equal weight
    flips       every 64 images, g is the sign of the correlation of r with s over the last 512; 0 where it is below 0.1

What to expect: one mean of many classes is coarse, and where there are no unknown images U is the mean of hard known ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..config.declare import Options, option
from ..core.banks import FeatureWindow, ScoreBank, feature_row, named
from ..core.checks import require_names, split, stored, stored_count
from ..core.otsu import otsu_split
from ..core.scores import max_score
from ..core.types import Decision, Error, Look, Scored, Verdict
from ..scores.base import Score, Setting

Floats = NDArray[np.float64]
KNOWN, UNKNOWN = 0, 1


@dataclass(frozen=True)
class DartOptions(Options):
    """All of them are our choice: none is public."""

    gather: int = option(64, bounds=(2, 10_000), about="images before there are prototypes")
    follow: float = option(1 / 64, above=0, at_most=1, about="how far a reliable image moves its prototype")
    kept: int = option(512, bounds=(2, 65_536), about="images that mean, deviation and correlation are over")
    flip_every: int = option(
        64, bounds=(0, 10**6), about="images between two looks at the sign of the axis; 0 for none"
    )
    flip_below: float = option(0.1, bounds=(0, 1), about="a correlation this weak leaves the axis out")

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors whose size these options decide, by name; smaller ones while few images have been seen."""
        return {"gathered/rows": (self.gather, width)}


class Dart(Score):
    """Two prototypes, the last pairs of s and r, and, before there are prototypes, the images for them.

    >>> ostta.load("embedded", ["cat", "dog"], "zero_shot", score="dart").step(image).score  # nothing to compare with yet
    0.0
    """

    Options = DartOptions
    about = "in the spirit of DART: the best class, and which of two running prototypes the image is nearer to"
    scale: float | None = None

    def __init__(self, options: DartOptions, setting: Setting) -> None:
        if options.kept < options.gather:
            raise Error(f"`kept` is at least `gather`, not {options.kept} with {options.gather}.")
        self.options = options
        self._width = setting.classifier.shape[1]
        self.reset()

    def reset(self) -> None:
        self._prototypes: Floats | None = None
        self._gathered = FeatureWindow(self.options.gather, self._width)
        # s and r of the last images, r from where there are prototypes on.
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
        if bool((torch.linalg.vector_norm(prototypes, dim=-1) > 1.001).any()):
            raise Error("The stored prototypes are damaged: none is longer than one.")
        fits, axes = (self._fits.stored(axis, name) for name in ("fits", "axes"))
        fresh = FeatureWindow(self.options.gather, self._width)
        fresh.load(gathered)
        waiting = 0 if begun else min(images, self.options.gather)
        if len(fits) != min(images, self.options.kept) or len(axes) > len(fits) or len(fresh) != waiting:
            raise Error("The stored prototypes are damaged: what is kept for them are not as many images as were seen.")
        self._prototypes = prototypes.numpy().copy() if begun else None
        self._gathered, self._images, self._sign = fresh, images, sign - 1
        self._fits.load(fits)
        self._axes.load(axes)

    def _begin(self) -> None:
        """Prototypes from the images so far; not yet, where all of them fit their class equally well."""
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
    """`value` less the mean of those in the bank, in deviations of theirs; 0 where they do not differ."""
    others = bank.scores()
    deviation = float(others.std()) if len(others) else 0.0
    return (value - float(others.mean())) / deviation if deviation > 1e-9 else 0.0


def _unit(row: Floats) -> Floats:
    length = float(np.linalg.norm(row))
    return row / length if length > 1e-12 else row
