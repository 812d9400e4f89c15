"""What can be chosen of the guard."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.declare import Options, option


@dataclass(frozen=True)
class GuardOptions(Options):
    """Chosen on streams of held-out training images, usual and hostile ones; docs/guard.md says how.

    >>> GuardOptions().check_every
    20
    """

    check_every: int = option(
        20,
        bounds=(1, 10_000),
        about="one image in so many is shown to the frozen model too; every one where that costs nothing, as the image tower is "
        "not trained",
    )
    min_evenness: float = option(
        0.3,
        bounds=(0, 1),
        about="smallest number of classes that accepted images are spread over, relative to the frozen model's classes of the same images",
    )
    min_diversity: float = option(
        0.3,
        bounds=(0, 1),
        about="smallest number of classes of accepted images, relative to equally frequent classes, at which a method trains",
    )
    max_disagreement: float = option(
        0.7, bounds=(0, 1), about="the share of images of which the frozen model says something else"
    )
    max_gap: float = option(
        0.5,
        bounds=(0, 1),
        about="largest difference between the share of accepted images, by probabilities if there are any, and the frozen model's",
    )
    min_estimate: float = option(
        0.2, bounds=(0, 1), about="the accuracy that is estimated from disagreement and evenness (after AETTA)"
    )
    max_step: float = option(
        1.5e-3, above=0, about="how far an update moves the parameters, by their length; the mean of recent ones"
    )
    max_drift: float = option(0.2, above=0, about="how far the parameters are from the start, by their length there")
    min_separation: float = option(
        0.25,
        bounds=(0, 1),
        about="the two means of the scores close in to this part of their usual distance: a warning only",
    )
    patience: int = option(
        8,
        bounds=(1, 10_000),
        about="the signals are looked at after every so many images; each look at which one is out of its band is a rung of the ladder",
    )
    cool_down: int = option(
        512,
        bounds=(1, 10**9),
        about="good images in a row until a frozen adapter is thawed; twice as many after each time it was frozen, up to eight times",
    )
    snapshot_every: int = option(
        128, bounds=(1, 1_000_000), about="a state is kept after so many images, if all is well"
    )
    snapshots: int = option(3, bounds=(1, 16), about="how many states are kept")
