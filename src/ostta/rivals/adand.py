"""AdaND: a linear layer that learns online to separate known from unknown images (Cao et al. 2025).

    a_t = 1 - max softmax(s z)                 labelled "unknown" if above its Otsu threshold over the last 512
    b_t = softmax(W g + w)[unknown]            the detector, on the image's feature g
    value = 1 - a_t for the first 640 images, then 1 - b_t

After every eighth image the detector also receives an image of pure noise, which is certainly unknown. After every 64
images of either kind it takes one step of Adam on their cross-entropy. Both thresholds include the noise images. The
complete AdaND is the method `zero_shot` with the score `detector` and the identifier `adand`, which uses the
thresholds of the detector.

There are two differences from the published code. Noise comes after every eighth image instead of at random positions,
and its features are computed once. The feature g has the same length for all images (`length`), while the published
code uses the raw feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..config.declare import Options, option
from ..core.banks import ScoreBank, feature_row, named
from ..core.checks import require_names, split, stored, stored_count, stored_length
from ..core.losses import max_softmax_score
from ..core.otsu import Floats, grid_split
from ..core.types import NO_EVIDENCE, Decision, Error, Evidence, Look, Preprocessing, Scored, Verdict
from ..identifiers import Identifier
from ..scores import Score, Setting

WINDOW, NOISES, NOISE_SEED = 512, 64, 0
GRID: Floats = np.arange(100, dtype=np.float64) * 0.01
FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # defaults of Adam


@dataclass(frozen=True)
class DetectorOptions(Options):
    """Options of `detector`. Defaults are those of the published code."""

    detector_lr: float = option(5e-4, above=0, about="learning rate of Adam for the linear layer")
    detector_batch: int = option(64, bounds=(1, 10_000), about="number of images between two Adam steps")
    blind: int = option(
        640, bounds=(0, 10**9), about="number of images that are scored by the softmax before the detector is used"
    )
    noise_every: int = option(
        8, bounds=(0, 10**6), about="number of images between two noise images; 0 disables noise images"
    )
    length: float = option(
        10.0,
        above=0,
        about="norm to which features are scaled for the detector; features of CLIP have a norm of about 10",
    )


class Detector(Score):
    """A linear layer, the moments of Adam, two windows of scores, and the images since the last step.

    >>> ostta.load("embedded", ["cat", "dog"], "zero_shot", score="detector").step(image).evidence["unknown"]
    0.5
    """

    Options = DetectorOptions
    about = "AdaND: a linear layer trained on softmax decisions and noise images to detect unknown images"
    scale: float | None = 1.0

    def __init__(self, options: DetectorOptions, setting: Setting) -> None:
        self.options = options
        self._logit_scale, self._width = setting.logit_scale, setting.classifier.shape[1]
        self._noise = _noise_features(setting) if options.noise_every else np.zeros((0, self._width))
        self.reset()

    def reset(self) -> None:
        width = self._width
        # The last column is the bias. Row 0 is unknown, row 1 known.
        self._weights, self._mean, self._square = (np.zeros((2, width + 1)) for _ in range(3))
        self._softmax, self._detector = ScoreBank(WINDOW), ScoreBank(WINDOW)
        self._seen, self._labels = np.zeros((0, width)), np.zeros(0)
        # Numbers of all images including noise, of real images, and of steps of Adam.
        self._items = self._images = self._steps = 0

    @property
    def warming_up(self) -> bool:
        # The score has the thresholds, because the identifier `adand` has no bank.
        return self._softmax.young

    def value(self, look: Look[Any]) -> Scored:
        doubt = 1 - max_softmax_score(look.cosines, self._logit_scale)
        unknown = self._unknown(feature_row(look, np.float64))
        if self._items <= self.options.blind:
            score, threshold = doubt, _threshold(self._softmax.sorted_with(doubt))
        else:
            score, threshold = unknown, _threshold(self._detector.sorted_with(unknown))
        return Scored(1 - score, {"class": 1 - doubt, "unknown": unknown, "threshold": 1 - threshold})

    def remember(self, look: Look[Any], scored: Scored, decision: Decision) -> None:
        self._learn_from(feature_row(look, np.float64), 1 - scored.evidence["class"], noise=False)
        self._images += 1
        every = self.options.noise_every
        if every and self._images % every == 0:
            features, doubt = self._noise_of(self._images // every)
            self._learn_from(features, doubt, noise=True)

    def tensors(self) -> dict[str, torch.Tensor]:
        return named(
            layer={name: torch.from_numpy(value.copy()) for name, value in self._layer().items()},
            since={"seen": torch.from_numpy(self._seen.copy()), "labels": torch.from_numpy(self._labels.copy())},
            windows={
                "softmax": torch.from_numpy(self._softmax.scores()),
                "detector": torch.from_numpy(self._detector.scores()),
            },
            counts={name: torch.tensor(count) for name, count in self._counts().items()},
        )

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        layer, since, windows, counts = split(tensors, "layer", "since", "windows", "counts")
        require_names(layer, self._layer())
        require_names(since, ("seen", "labels"))
        require_names(windows, ("softmax", "detector"))
        require_names(counts, self._counts())
        values = [stored(layer, name, torch.float64, (2, self._width + 1)).numpy().copy() for name in self._layer()]
        waiting = stored_length(since, "labels", self.options.detector_batch)
        seen = stored(since, "seen", torch.float64, (waiting, self._width)).numpy().copy()
        labels = stored(since, "labels", torch.float64, (waiting,), 0, 1).numpy().copy()
        scores = [self._softmax.stored(windows, name) for name in ("softmax", "detector")]
        items, images, steps = (stored_count(counts, name) for name in self._counts())
        self._weights, self._mean, self._square = values
        self._seen, self._labels = seen, labels
        self._items, self._images, self._steps = items, images, steps
        self._softmax.load(scores[0])
        self._detector.load(scores[1])

    def _layer(self) -> dict[str, Floats]:
        return {"weights": self._weights, "mean": self._mean, "square": self._square}

    def _counts(self) -> dict[str, int]:
        return {"items": self._items, "images": self._images, "steps": self._steps}

    def _unknown(self, features: Floats) -> float:
        output = self._weights[:, :-1] @ (self.options.length * features) + self._weights[:, -1]
        return float(0.5 * (1 + np.tanh(0.5 * (output[0] - output[1]))))

    def _noise_of(self, number: int) -> tuple[Floats, float]:
        features, doubt = self._noise[number % len(self._noise), :-1], self._noise[number % len(self._noise), -1]
        return features, float(doubt)

    def _learn_from(self, features: Floats, doubt: float, noise: bool) -> None:
        """Label an image, real or noise, by the current softmax threshold, and train when a batch is full.

        Labels are never revised.
        """
        self._softmax.push(doubt)
        unknown = noise or doubt > _threshold(np.sort(self._softmax.scores()))
        if self._items > self.options.blind:
            self._detector.push(self._unknown(features))
        batch = self.options.detector_batch
        self._seen = np.concatenate([self._seen, features[None]])[-batch:]
        self._labels = np.append(self._labels, float(unknown))[-batch:]
        if self._items and self._items % batch == 0:
            self._learn()
        self._items += 1

    def _learn(self) -> None:
        """Take one step of Adam on the mean cross-entropy. The weights are those with which the images were seen."""
        rows = np.concatenate([self.options.length * self._seen, np.ones((len(self._seen), 1))], 1)
        output = rows @ self._weights.T
        unknown = 0.5 * (1 + np.tanh(0.5 * (output[:, 0] - output[:, 1])))
        slope = ((unknown - self._labels)[:, None] * rows).mean(0)
        gradient = np.stack([slope, -slope])
        self._steps += 1
        self._mean = FIRST * self._mean + (1 - FIRST) * gradient
        self._square = SECOND * self._square + (1 - SECOND) * gradient**2
        mean, square = self._mean / (1 - FIRST**self._steps), self._square / (1 - SECOND**self._steps)
        self._weights = self._weights - self.options.detector_lr * mean / (np.sqrt(square) + TINY)


def _threshold(scores: Floats) -> float:
    """Return Otsu's threshold on the grid for sorted `scores`, which are high for unknown images.

    If no candidate has scores on both sides, the threshold is 0 and every image is unknown, as published. LDA does the
    opposite.
    """
    split = grid_split(scores, GRID, equal_counts="below")
    return 0.0 if split is None else split.threshold


def _noise_features(setting: Setting) -> Floats:
    """Return the features of noise images, each followed by its 1 - max softmax."""
    size = setting.preprocessing.image_size
    drawn = np.random.default_rng(NOISE_SEED).standard_normal((NOISES, 3, size, size), dtype=np.float32)
    # As published, the images are stretched to 0..255 and rounded.
    low, high = drawn.min((1, 2, 3), keepdims=True), drawn.max((1, 2, 3), keepdims=True)
    images = torch.from_numpy(np.round(255 * (drawn - low) / (high - low)) / np.float32(255))
    # In small batches, because the tower may be large.
    few = (images[start : start + 8] for start in range(0, NOISES, 8))
    try:
        features = torch.cat([setting.encode(_normalised(some, setting.preprocessing)) for some in few])
    except Error as problem:
        if problem.code != "image-tower-missing":
            raise
        raise Error(
            "The score `detector` is trained on noise images, and this backbone has no image tower to encode them: "
            "use `noise_every=0` or another score.",
            code=problem.code,
        ) from None
    doubts = [1 - max_softmax_score(row @ setting.classifier.T, setting.logit_scale) for row in features]
    return np.concatenate([features.double().cpu().numpy(), np.array(doubts)[:, None]], 1)


def _normalised(images: torch.Tensor, preprocessing: Preprocessing) -> torch.Tensor:
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    return (images - mean) / std


# --- identifier -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AdaNDOptions(Options):
    """`adand` has no options; the options of AdaND belong to the score `detector`.

    >>> AdaND(AdaNDOptions()).observe(0.6, {"threshold": 0.5}).desired
    True
    """


class AdaND(Identifier):
    """Accept images whose score reaches the threshold in the evidence of the score.

    No image is reliable, so methods do not learn from any image.

    >>> AdaND().observe(0.4, {"threshold": 0.5}).verdict.value
    'unreliable_undesired'
    """

    Options = AdaNDOptions
    about = "AdaND: the threshold of the score `detector`, which includes noise images"
    needs: str | None = "detector"

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        threshold = evidence.get("threshold", 0.5)
        verdict = Verdict.UNRELIABLE_DESIRED if score >= threshold else Verdict.UNRELIABLE_UNDESIRED
        return Decision(verdict, threshold, None, None)
