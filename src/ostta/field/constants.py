"""The constants of the rule."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.options import Options, option


@dataclass(frozen=True)
class Constants(Options):
    """Chosen on development streams of four backbones; `tools/choose_field.py` repeats the choice (docs/deciding.md)."""

    recent_images: int = option(512, bounds=(32, 65_536), about="how many recent images the model is fitted to")
    fit_every: int = option(32, bounds=(1, 65_536), about="images between two fits; fewer while the window is young")
    neighbours: int = option(20, bounds=(1, 200), about="nearest recent images that vote on an image")
    votes: float = option(3.0, bounds=(0, 100), about="independent votes that the neighbours are worth together")
    unknown_spread: float = option(
        1.1,
        bounds=(0.1, 10),
        about="standard deviation of the fit of unknown images, in units of the second-best class",
    )
    known_spread: float = option(1.5, bounds=(0.1, 10), about="smallest standard deviation of the fit of known images")
    known_distance: float = option(1.5, bounds=(0, 10), about="smallest mean fit of the known images of a class")
    prior_images: float = option(8.0, bounds=(0.5, 1000), about="weight of every prior, in images")
    rounds: int = option(1, bounds=(1, 10), about="how often centre and neighbours are found anew in a fit")
