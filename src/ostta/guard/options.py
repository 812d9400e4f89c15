"""Options of the guard."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.declare import Options, option


@dataclass(frozen=True)
class GuardOptions(Options):
    """Options of the guard, chosen on ordinary and hostile streams of held-out training images (docs/guard.md).

    >>> GuardOptions().check_every
    20
    """

    check_every: int = option(
        20,
        bounds=(1, 10_000),
        about="number of images between two comparisons with the frozen model; every image is compared "
        "if the image tower is not trained, because the comparison is then free",
    )
    min_evenness: float = option(
        0.3,
        bounds=(0, 1),
        about="smallest effective number of predicted classes among accepted images, relative to that "
        "of the frozen model on the same images",
    )
    min_diversity: float = option(
        0.3,
        bounds=(0, 1),
        about="smallest effective number of classes among accepted images, relative to equally frequent"
        " classes, at which the method is updated",
    )
    max_disagreement: float = option(
        0.7, bounds=(0, 1), about="largest share of images that the adapter and the frozen model judge differently"
    )
    max_gap: float = option(
        0.5,
        bounds=(0, 1),
        about="largest difference between the share of images that the adapter accepts and the share "
        "that the frozen model accepts; computed from probabilities if available",
    )
    min_estimate: float = option(
        0.2, bounds=(0, 1), about="smallest accuracy, estimated from disagreement and evenness (after AETTA)"
    )
    max_step: float = option(
        1.5e-3,
        above=0,
        about="largest mean change of the parameters by recent updates, relative to the norm of the parameters",
    )
    max_drift: float = option(
        0.2,
        above=0,
        about="largest distance of the parameters from their initial values, relative to the norm of "
        "the initial values",
    )
    min_separation: float = option(
        0.25,
        bounds=(0, 1),
        about="smallest distance between the two mean scores, relative to its usual value; a smaller "
        "distance only causes a warning",
    )
    patience: int = option(
        8,
        bounds=(1, 10_000),
        about="number of images between two checks of the signals; each check with a signal out of its "
        "band escalates the response of the guard by one level",
    )
    cool_down: int = option(
        512,
        bounds=(1, 10**9),
        about="number of consecutive images with all signals in their bands before a frozen adapter is "
        "thawed; doubled after each further freeze, up to eight times the value",
    )
    snapshot_every: int = option(
        128,
        bounds=(1, 1_000_000),
        about="number of images between two snapshots, which are taken only while no warning is active",
    )
    snapshots: int = option(3, bounds=(1, 16), about="largest number of snapshots that are kept")
