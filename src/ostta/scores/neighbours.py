"""The score `neighbours`: how well an image fits its best class, and whether it lies nearer to known or to unknown images.

It keeps the features of the last images, whatever they showed. Every so many images it finds two groups among them (`two_groups`):
images that are reliably known, and images that are reliably unknown. A new image is scored by its best class and by how much
more it is like its nearest known images than like its nearest unknown ones. No gradient, no second pass.

Its evidence, beside the numbers for people, is what the identifier `adaptive` decides by: `fit` and `cloud`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.banks import FeatureMemory, FeatureWindow, named
from ..core.checks import require_names, split, stored, stored_count
from ..core.options import Options, option
from ..core.types import Decision, Error, Look, Scored
from .protocol import Setting
from .two_groups import TINY, Floats, Groups, Measure, find_cloud, find_groups, likenesses, nearest_mean

# Images before the first fit, and up to when fits come twice as often.
FIRST_FIT, YOUNG = 16, 128
# Of each image in the window, as bits of one number.
KNOWN, UNKNOWN, CLOUD = 1, 2, 4
NUMBERS = ("gap", "gap_sd", "match_sd", "weight")
LARGEST = 1e12


@dataclass(frozen=True)
class NeighboursOptions(Options):
    """Chosen on streams of training images that the embedded model was not trained on; docs/deciding.md has the tables."""

    recent: int = option(512, bounds=(32, 65_536), about="how many recent images are remembered")
    nearest: int = option(5, bounds=(1, 100), about="how many of the nearest known and unknown images count")
    fit_every: int = option(
        32, bounds=(2, 65_536), about="the groups are found anew after so many images; half of it at first"
    )


class Neighbours:
    """A window of features, and what the last fit has found in it.

    >>> adapter = ostta.load("embedded", ["cat", "dog"], score="neighbours")
    >>> prediction = adapter.step(image)
    >>> sorted(prediction.evidence)
    ['class', 'cloud', 'fit']
    """

    Options = NeighboursOptions
    about = "the best class, and likeness to recent known images less likeness to recent unknown ones: ours"
    scale: float | None = None

    def __init__(self, options: NeighboursOptions, setting: Setting) -> None:
        if options.nearest * 4 > options.recent:
            raise Error(f"`recent` is at least four times `nearest`, not {options.recent} with {options.nearest}.")
        self.options = options
        self._classifier: NDArray[np.float32] = setting.classifier.detach().float().cpu().numpy()
        self.reset()

    def reset(self) -> None:
        self._window = FeatureWindow(self.options.recent, self._classifier.shape[1])
        self._bits: NDArray[np.int32] = np.zeros(self.options.recent, np.int32)
        self._seen = 0
        self._measure: Measure | None = None
        self._groups: Groups | None = None

    def value(self, look: Look[Any]) -> Scored:
        features = _row(look)
        cosines = self._cosines(features[None])
        measure = self._measure or Measure.common(np.concatenate([self._cosines(self._window.rows), cosines]))
        match = float(measure.drawn().match(cosines)[0])
        evidence = {"class": match, "fit": float(measure.fit(cosines)[0]), "cloud": 0.0}
        if self._groups is None:
            return Scored(match, evidence)
        likeness = (self._window.rows @ features).astype(np.float64)
        bits, nearest = self._bits[: len(likeness)], self.options.nearest
        near = likeness.argpartition(-nearest)[-nearest:]
        evidence["cloud"] = float((bits[near] & CLOUD > 0).mean())
        known, unknown = likeness[bits & KNOWN > 0], likeness[bits & UNKNOWN > 0]
        if min(len(known), len(unknown)) < nearest:  # newcomers have taken the places of too many
            return Scored(match, evidence)
        evidence["known"], evidence["unknown"] = (float(nearest_mean(of, nearest)) for of in (known, unknown))
        return Scored(float(self._groups.score(match, evidence["known"] - evidence["unknown"])), evidence)

    def take(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        place = self._window.push(_row(look))
        # Before the next fit a newcomer is in no group; in the cloud it is by its neighbours.
        self._bits[place] = CLOUD * (scored.evidence["cloud"] > 0.5)
        self._seen += 1
        every = self.options.fit_every if self._seen > YOUNG else max(1, self.options.fit_every // 2)
        if self._seen >= FIRST_FIT and self._seen % every == 0:
            self._fit()

    def memories(self) -> dict[str, FeatureMemory]:
        return {"recent": self._window}

    def tensors(self) -> dict[str, torch.Tensor]:
        measure, groups = self._measure, self._groups
        fitted = {} if measure is None else {"centre": measure.centre, "sd": measure.sd}
        if groups is not None:
            fitted["numbers"] = np.array([getattr(groups, name) for name in NUMBERS])
        return named(
            window=self._window.tensors(),
            fit={name: torch.from_numpy(values.copy()) for name, values in fitted.items()},
            images={"bits": torch.from_numpy(self._bits.copy()), "seen": torch.tensor(self._seen)},
        )

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        window, fitted, images = split(tensors, "window", "fit", "images")
        require_names(images, ("bits", "seen"))
        classes, kind = len(self._classifier), torch.float64
        bits = stored(images, "bits", torch.int32, (self.options.recent,), 0, 7).numpy().copy()
        seen = stored_count(images, "seen")
        measure, groups = None, None
        if fitted:
            require_names(fitted, ("centre", "sd", *(("numbers",) if "numbers" in fitted else ())))
            centre = stored(fitted, "centre", kind, (classes,), -LARGEST, LARGEST).numpy().copy()
            measure = Measure(centre, stored(fitted, "sd", kind, (classes,), TINY / 2, LARGEST).numpy().copy())
        if "numbers" in fitted:
            gap, gap_sd, match_sd, weight = stored(fitted, "numbers", kind, (4,), -LARGEST, LARGEST).tolist()
            if min(gap_sd, match_sd) <= 0:
                raise Error("The stored groups are damaged: a spread is not above zero.")
            groups = Groups(bits & KNOWN > 0, bits & UNKNOWN > 0, gap, gap_sd, match_sd, weight)
        fresh = FeatureWindow(self.options.recent, self._classifier.shape[1])
        fresh.load(window)
        if len(fresh) != min(seen, self.options.recent):
            raise Error("The stored window of features is damaged: it does not hold as many images as were seen.")
        self._window, self._bits, self._seen, self._measure, self._groups = fresh, bits, seen, measure, groups

    def _fit(self) -> None:
        rows, nearest = self._window.rows, self.options.nearest
        cosines, among = self._cosines(rows), likenesses(rows)
        self._measure = Measure.of(cosines)
        self._groups = find_groups(cosines, among, self._measure, nearest)
        self._bits[:] = 0
        bits = self._bits[: len(rows)]
        if self._groups is not None:
            bits |= KNOWN * self._groups.known + UNKNOWN * self._groups.unknown
        bits |= CLOUD * find_cloud(cosines, among, self._measure, nearest)

    def _cosines(self, rows: NDArray[np.float32]) -> Floats:
        cosines: Floats = (rows @ self._classifier.T).astype(np.float64)
        return cosines


def _row(look: Look[Any]) -> NDArray[np.float32]:
    row: NDArray[np.float32] = look.features.detach().float().cpu().numpy()
    return row
