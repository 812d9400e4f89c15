"""The score `field`: log-odds that an image is known, under a model fitted to the remembered images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.banks import feature_row
from ..core.checks import (
    require_intact,
    require_names,
    require_room,
    require_unit,
    stored,
    stored_count,
    stored_length,
)
from ..core.types import Decision, Error, Look, Scored
from ..scores.base import Score, Setting
from .arrays import Floats, Indices, Singles
from .fit_to_text import Centre
from .memory import balanced, kept
from .model import StreamModel, fit, neighbour_count
from .options import FieldOptions
from .solve import USUAL_SHARE
from .words import Words, expanded

# Log-odds before the first fit, and the number of images before it.
PRIOR, FIRST_FIT = math.log(USUAL_SHARE / (1 - USUAL_SHARE)), 4
# The pieces of evidence repeat each other, so their sum is divided by this number (docs/experiments/deciding.md).
TEMPERATURE = 1.5
# Largest number of images of a set that the model is fitted to; the others are compared with these.
LARGEST_SAMPLE = 2_000


class FieldScore(Score):
    """Log-odds that an image is known; 0 is a probability of one half.

    >>> prediction = ostta.load("embedded", ["cat", "dog"]).step(image)
    >>> round(prediction.probability, 2), prediction.undecided
    (0.75, True)
    """

    Options = FieldOptions
    about = "log-odds that an image is known, by its fit to the classes and the remembered images like it: ours"
    scale: float | None = None

    def __init__(self, options: FieldOptions, setting: Setting) -> None:
        self.options = options
        self._classifier: Singles = setting.classifier.detach().float().cpu().numpy()
        require_room("The memory of the score `field`", (options.memory_images, self._classifier.shape[1]))
        encoded = setting.encode_words(expanded(options.words)) if options.words else {}
        self.words = Words.of(encoded, self._classifier)
        self._given_centre = setting.centre
        self.reset()

    def reset(self) -> None:
        width = self._classifier.shape[1]
        self._rows: Singles = np.zeros((0, width), np.float32)
        # Step at which each remembered image was seen.
        self._steps: NDArray[np.int64] = np.zeros(0, np.int64)
        self._waiting: list[Singles] = []
        self.seen = 0
        self._model: StreamModel | None = None
        centre = self._given_centre()
        self._set_centre(None if centre is None else centre.detach().float().cpu().numpy())

    def _set_centre(self, centre: Singles | None) -> None:
        self._centre = None if centre is None else Centre(centre, self.cosines(centre[None])[0])

    @property
    def warming_up(self) -> bool:
        return self.seen < self.options.undecided_images

    def cosines(self, rows: Singles) -> Floats:
        """Return the cosines [N, C] of features [N, D] to the classes."""
        result: Floats = (rows @ self._classifier.T).astype(np.float64)
        return result

    # --- one image ----------------------------------------------------------------------------------------------------
    def value(self, look: Look[Any]) -> Scored:
        row = feature_row(look)[None]
        if self._model is None:
            most_like = self._over_words(row, self.cosines(row))[1][0]
            return Scored(PRIOR, {"images": float(self.seen)}, most_like)
        return self._scored(self._model, row)[0]

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        self._waiting.append(feature_row(look))
        self.seen += 1
        fitted = self.seen - len(self._waiting)
        due = FIRST_FIT if fitted == 0 else max(1, min(self.options.fit_every, fitted // 4))
        if len(self._waiting) >= due:
            self._include(np.stack(self._waiting))
            self._waiting = []

    def _include(self, rows: Singles) -> None:
        """Remember new images, forget others if there are too many, and fit the model again."""
        steps = np.append(self._steps, np.arange(self.seen - len(rows), self.seen))
        if self._model is None:
            groups = np.zeros(len(steps), np.intp)
        else:
            known, best = self._judged(self._model, rows)
            groups = _groups(np.append(self._model.best, best), np.append(self._model.known > 0.5, known))
        places = kept(groups, steps, self.options.memory_images, self.seen)
        self._remember_rows(np.concatenate([self._rows, rows])[places], steps[places])

    def _remember_rows(self, rows: Singles, steps: NDArray[np.int64]) -> None:
        self._rows, self._steps = rows, steps
        self._model = self._fit(rows)

    def _fit(self, rows: Singles) -> StreamModel:
        words = None if self.words is None else self.words.cosines(rows)
        return fit(rows, self.cosines(rows), self.options, self._centre, words)

    def _judged(self, model: StreamModel, rows: Singles) -> tuple[NDArray[np.bool_], Indices]:
        """Whether each image is known, and its best class."""
        best = model.units.centre.subtracted(rows, self.cosines(rows))[1].argmax(1)
        return np.sum(self._evidence(model, rows)[0], axis=0) > 0, best

    def _over_words(self, rows: Singles, cosines: Floats) -> tuple[Floats, list[str | None]]:
        """Largest cosine to a class less that to a word [N], and the word of each image that is more like a word."""
        if self.words is None:
            return np.zeros(len(rows)), [None] * len(rows)
        nearest = [self.words.nearest(row) for row in rows]
        advantages = cosines.max(1) - np.array([cosine for _, cosine in nearest])
        return advantages, [word if over < 0 else None for (word, _), over in zip(nearest, advantages, strict=True)]

    def _evidence(
        self, model: StreamModel, rows: Singles, members: bool = False
    ) -> tuple[list[Floats], Floats, Floats, Floats, list[str | None]]:
        """Pieces of the log-odds, fits, votes, advantages over the words, and words that images are more like."""
        cosines = self.cosines(rows)
        centred, own, nearness = model.units.centre.subtracted(rows, cosines)
        fits = model.units.fit(own)
        votes = model.member_votes if members else model.votes(centred)
        advantages, most_like = self._over_words(rows, cosines)
        parts = model.log_odds(fits, own.argmax(1), votes, nearness)
        if model.words is not None:
            parts = (*parts, model.words.evidence(advantages, fits))
        return [part / TEMPERATURE for part in parts], fits, votes, advantages, most_like

    def _scored(self, model: StreamModel, rows: Singles, members: bool = False) -> list[Scored]:
        """Score images; `members` are the images of the model itself."""
        parts, fits, votes, advantages, most_like = self._evidence(model, rows, members)
        totals, above = np.sum(parts, axis=0), model.above_chance(fits)
        names = ("from_text", "from_neighbours", "from_distance", "from_words")
        return [
            Scored(
                float(totals[number]),
                {
                    "fit": float(above[number]),
                    "known_neighbours": float(votes[number]),
                    "neighbours": float(neighbour_count(len(model.known), self.options.nearest_images)),
                    "share_known": float(model.parameters.share[0, 0]),
                    "images": float(self.seen),
                    **dict(zip(names, (float(part[number]) for part in parts[1:]), strict=False)),
                }
                | ({} if model.words is None else {"over_words": float(advantages[number])}),
                most_like[number],
            )
            for number in range(len(rows))
        ]

    # --- a whole set --------------------------------------------------------------------------------------------------
    def fit_set(self, rows: Singles) -> list[Scored]:
        """Fit to a whole set of images at once, and return the score of each.

        The memory then holds a balanced sample of the set, so that a stream can go on from it. The order of the images
        does not matter.
        """
        self.reset()
        self.seen = len(rows)
        if len(rows) < FIRST_FIT:
            self._waiting = list(rows)
            return [Scored(PRIOR, {"images": float(self.seen)})] * len(rows)
        order = np.lexsort(rows.T[:8])
        rows = rows[order]
        sample = np.arange(len(rows))
        if len(rows) > LARGEST_SAMPLE:
            sample = np.random.default_rng(0).permutation(len(rows))[:LARGEST_SAMPLE]
            known, best = self._judged(self._fit(rows[sample]), rows)
            sample = balanced(_groups(best, known), LARGEST_SAMPLE)
        model = self._fit(rows[sample])
        others = np.setdiff1d(np.arange(len(rows)), sample)
        found: dict[int, Scored] = dict(
            zip(order[sample].tolist(), self._scored(model, rows[sample], members=True), strict=True)
        )
        for start in range(0, len(others), LARGEST_SAMPLE):
            block = others[start : start + LARGEST_SAMPLE]
            found |= zip(order[block].tolist(), self._scored(model, rows[block]), strict=True)
        places = sample[balanced(_groups(model.best, model.known > 0.5), self.options.memory_images)]
        self._remember_rows(rows[places], np.full(len(places), len(rows) - 1))
        return [found[number] for number in range(len(rows))]

    # --- state --------------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, torch.Tensor]:
        waiting = np.stack(self._waiting) if self._waiting else np.zeros((0, self._rows.shape[1]), np.float32)
        arrays: dict[str, NDArray[Any]] = {"rows": self._rows, "steps": self._steps, "waiting": waiting}
        if self._centre is not None:
            arrays["centre"] = self._centre.features
        counts = {"seen": self.seen, "words": 0 if self.words is None else len(self.words.names)}
        return {name: torch.from_numpy(values.copy()) for name, values in arrays.items()} | {
            name: torch.tensor(value) for name, value in counts.items()
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        width, single = self._classifier.shape[1], torch.float32
        centre = stored(tensors, "centre", single, (width,)).numpy().copy() if "centre" in tensors else None
        require_names(tensors, ("rows", "steps", "waiting", "seen", "words", *(() if centre is None else ("centre",))))
        count, present = stored_count(tensors, "words"), 0 if self.words is None else len(self.words.names)
        if count != present:
            raise Error(
                f"The state was saved with {count:,} words, and {present:,} of them can be encoded now: give the "
                "embeddings again as `words={name: embedding}`.",
                code="words-missing",
            )
        seen, length = stored_count(tensors, "seen"), stored_length(tensors, "rows", self.options.memory_images)
        rows = stored(tensors, "rows", single, (length, width))
        steps = stored(tensors, "steps", torch.int64, (length,), 0, max(seen - 1, 0)).numpy().copy()
        most = min(seen - length, max(FIRST_FIT, self.options.fit_every))
        waiting = stored(tensors, "waiting", single, (stored_length(tensors, "waiting", most), width))
        for name, content in (("memory of images", rows), ("list of new images", waiting)):
            require_unit(content, name)
        complete = bool((np.diff(steps) >= 0).all()) and (length >= FIRST_FIT or length == 0)
        require_intact(complete, "memory of images", "its steps and its number of images do not agree")
        self.seen, self._model = seen, None
        self._waiting = [row.copy() for row in waiting.numpy()]
        self._set_centre(centre)
        self._rows, self._steps = rows.numpy().copy(), steps
        if length:
            self._model = self._fit(self._rows)

    def memories(self) -> dict[str, Any]:
        return {"remembered": _Remembered(self._rows)}

    def explain(self, scored: Scored, label: str) -> str:
        """One sentence about the numbers behind a score."""
        evidence = scored.evidence
        most_like = "" if scored.most_like is None else f" Most like: {scored.most_like}."
        if "fit" not in evidence:
            return f"Too few images have been seen to compare this one with.{most_like}"
        fits, count = evidence["fit"], round(evidence["neighbours"])
        known = round(evidence["known_neighbours"] * count)
        side = "better" if fits >= 0 else "worse"
        return (
            f"Fits {label} {side} than chance by {abs(fits):.1f} deviations; {known} of the {count} most similar "
            f"images were known.{most_like}"
        )


class _Remembered:
    def __init__(self, rows: Singles) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes(self) -> int:
        return self._rows.nbytes


def _groups(best: Indices, known: NDArray[np.bool_]) -> Indices:
    """One group for the known and one for the unknown images of each best class."""
    groups: Indices = 2 * best + known
    return groups
