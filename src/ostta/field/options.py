"""The constants of the rule, all of them options."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.declare import Options, option
from ..core.types import Error
from .words import MOST_WORDS


@dataclass(frozen=True)
class FieldOptions(Options):
    """Constants chosen on development streams of four backbones with `tools/choose_field.py`.

    docs/experiments/deciding.md has the sensitivity of each.

    >>> FieldOptions().nearest_images
    20
    """

    memory_images: int = option(
        512, bounds=(32, 65_536), about="number of remembered images that the model is fitted to"
    )
    fit_every: int = option(
        32, bounds=(1, 65_536), about="number of images between two fits; fewer while there are few images"
    )
    nearest_images: int = option(20, bounds=(3, 200), about="number of nearest images that vote on an image")
    votes: float = option(
        3.0, bounds=(0, 100), about="number of independent votes that the votes of the neighbours count as"
    )
    known_distance: float = option(
        1.5,
        bounds=(0, 10),
        about="smallest distance of the mean fit of the known images of a class from that of unknown images",
    )
    prior_images: float = option(8.0, bounds=(0.5, 1000), about="weight of each prior, in images")
    undecided_images: int = option(
        32, bounds=(0, 32), about="number of images at the start of a stream that are marked as undecided"
    )
    words: tuple[str, ...] = option(
        (),
        about='list of names of things that are not classes, with which images are compared; "everyday"'
        " selects the list that ships with ostta. Backbones that cannot encode names ignore it",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.words) > MOST_WORDS:
            raise Error(f"`words` takes at most {MOST_WORDS:,} names, not {len(self.words):,}.", code="option-invalid")
        if not all(word.strip() for word in self.words):
            raise Error("`words` holds an empty name: remove it.", code="option-invalid")
        if len(self.words) == 1 and self.words[0].lower().endswith(".txt"):
            raise Error(
                f"{self.words[0]!r} is a file, not a word: as an option, `words` takes names or 'everyday'.",
                code="option-invalid",
            )

    def stored_shapes(self, classes: int, width: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the stored tensors whose size these options determine."""
        return {"memory/rows": (self.memory_images, width)}
