"""DAF: a mixture of two Gaussians over the recent scores; known images belong to the component with the higher mean.

The mixture is fitted by scikit-learn on the raw scores. Its variance floor of 1e-6 has no effect on scores with a
spread of about 0.02. A fit of 512 scores takes a few milliseconds; the option `refit` reduces the number of fits, and
between fits new scores are judged by the last mixture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..config.declare import Options, option
from ..core.banks import WINDOWS, ScoreBank
from ..core.checks import require_intact, require_names, stored, stored_count
from ..core.types import NO_EVIDENCE, Decision, Evidence, Verdict
from .base import Identifier


@dataclass(frozen=True)
class DAFOptions(Options):
    """Options of `daf`. By default the mixture is fitted again for every score.

    >>> DAFOptions(refit=8).window
    512
    """

    window: int = option(512, bounds=WINDOWS, about="number of recent scores that are used")
    refit: int = option(1, bounds=(1, 10**9), about="number of scores between two fits of the mixture")
    fit_seed: int = option(0, bounds=(0, 2**32 - 1), about="random seed of the initialisation of the fit")


@dataclass(frozen=True, slots=True)
class Mixture:
    """Two Gaussian components, the undesired one first."""

    means: tuple[float, float]
    variances: tuple[float, float]
    weights: tuple[float, float]

    def desired_posterior(self, score: float) -> float:
        logs = [
            np.log(w) - 0.5 * (np.log(v) + (score - m) ** 2 / v)
            for m, v, w in zip(self.means, self.variances, self.weights, strict=True)
        ]
        # The logistic function of the difference, in a form that cannot overflow.
        return float(0.5 * (1 + np.tanh(0.5 * (logs[1] - logs[0]))))


class DAF(Identifier):
    """A two-component mixture over the last scores.

    >>> identifier = DAF()
    >>> for score in (0.18, 0.19, 0.31, 0.33):
    ...     decision = identifier.observe(score)
    >>> decision.verdict.value, round(decision.mu_desired, 2), round(decision.mu_undesired, 3)
    ('reliable_desired', 0.32, 0.185)
    """

    Options = DAFOptions
    options: DAFOptions
    about = (
        "a mixture of two Gaussians over the last 512 scores, fitted again at every score unless `refit` says otherwise"
    )

    def __init__(self, options: DAFOptions | None = None, *, scale: float | None = 1.0) -> None:
        super().__init__(options)
        self.scale = 1.0 if scale is None else scale
        self.bank = ScoreBank(self.options.window)
        self._mixture: Mixture | None = None
        self._since = 0
        self._latest: tuple[float, Mixture | None] | None = None

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        mixture = self._mixture_with(score)
        if mixture is None:
            return Decision(Verdict.UNRELIABLE_DESIRED, None, None, None)
        low, high = mixture.means
        verdict = Verdict.of(mixture.desired_posterior(score) >= 0.5, score, low, high)
        # There is no single threshold: with unequal variances the posterior may cross one half twice.
        return Decision(verdict, None, high, low)

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        self._mixture = self._mixture_with(score)
        self._latest = None
        self.bank.push(score)
        self._since = (self._since + 1) % self.options.refit

    def memories(self) -> dict[str, ScoreBank]:
        return {"scores": self.bank}

    def reset(self) -> None:
        self.bank = ScoreBank(self.options.window)
        self._mixture = self._latest = None
        self._since = 0

    def tensors(self) -> dict[str, torch.Tensor]:
        fitted = (
            () if self._mixture is None else (*self._mixture.means, *self._mixture.variances, *self._mixture.weights)
        )
        return {
            "scores": torch.from_numpy(self.bank.scores()),
            "mixture": torch.tensor(fitted, dtype=torch.float64),
            "since": torch.tensor(self._since),
        }

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        require_names(tensors, ("scores", "mixture", "since"))
        scores = self.bank.stored(tensors)
        fitted = stored(tensors, "mixture", torch.float64, (6 if tensors["mixture"].numel() else 0,)).tolist()
        since = stored_count(tensors, "since", self.options.refit - 1)
        mixture = Mixture(tuple(fitted[:2]), tuple(fitted[2:4]), tuple(fitted[4:])) if fitted else None
        valid = not fitted or (fitted[0] <= fitted[1] and min(fitted[2:]) > 0 and max(fitted[4:]) <= 1)
        require_intact(valid, "mixture", "its means must rise, variances exceed 0, and weights lie in [0, 1]")
        self.reset()
        self.bank.load(scores)
        self._mixture, self._since = mixture, since

    def _mixture_with(self, score: float) -> Mixture | None:
        """Return the mixture as it would be after `remember(score)`."""
        if self._since and self._mixture is not None:
            return self._mixture
        # A step calls `peek` and then `remember` with the same score, so both use one fit. `remember` clears the fit,
        # because the bank changes.
        if self._latest is None or self._latest[0] != score:
            self._latest = (score, self._fit(self.bank.sorted_with(score)))
        return self._latest[1]

    def _fit(self, scores: NDArray[np.float64]) -> Mixture | None:
        if scores[0] == scores[-1]:
            return None
        from sklearn.mixture import GaussianMixture

        model = GaussianMixture(2, random_state=self.options.fit_seed, reg_covar=1e-6 * self.scale**2)
        model.fit(scores[:, None])
        order = np.argsort(model.means_[:, 0], kind="stable")
        means, variances, weights = (
            values[order] for values in (model.means_[:, 0], model.covariances_[:, 0, 0], model.weights_)
        )
        return Mixture(tuple(means.tolist()), tuple(variances.tolist()), tuple(weights.tolist()))
