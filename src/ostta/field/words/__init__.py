"""Words: names of things that are not classes, which the rule compares an image with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.checks import shown
from ...core.errors import translate_errors
from ...core.types import Error
from ...io import read_regular

EVERYDAY = "everyday"
MOST_WORDS = 10_000
# A word whose embedding has a larger cosine to a class names that class.
SAME_AS_CLASS = 0.93
COMMENT = "#"
# What `ostta.load` takes: names, "everyday", a file with one name per line, or text embeddings by name.
WordSource = Sequence[str] | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """Names and unit text features [W, D] of the words in use."""

    names: tuple[str, ...]
    rows: NDArray[np.float32]

    @classmethod
    def of(cls, encoded: Mapping[str, torch.Tensor], classifier: NDArray[np.float32]) -> Words | None:
        """The encoded words that name none of the classes; None if no word is left.

        >>> import numpy as np, torch
        >>> encoded = {"kitten": torch.tensor([0.99, 0.14]), "teapot": torch.tensor([0.0, 1.0])}
        >>> Words.of(encoded, np.array([[1.0, 0.0]], np.float32)).names
        ('teapot',)
        """
        if not encoded:
            return None
        rows = torch.stack(list(encoded.values())).detach().float().cpu().numpy()
        if rows.shape[1] != classifier.shape[1]:
            raise Error(
                f"The embeddings of words are {rows.shape[1]} wide, and those of the classes are "
                f"{classifier.shape[1]}: encode both with "
                "the same text tower.",
                code="text-features-invalid",
            )
        used = (rows @ classifier.T).max(1) <= SAME_AS_CLASS
        names = tuple(name for name, use in zip(encoded, used, strict=True) if use)
        return cls(names, np.ascontiguousarray(rows[used])) if names else None

    def nearest(self, row: NDArray[np.float32]) -> tuple[str, float]:
        """The word with the largest cosine to the unit features [D] of an image, and that cosine."""
        cosines = self.rows @ row
        best = int(cosines.argmax())
        return self.names[best], float(cosines[best])

    def cosines(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Largest cosine [N] of unit features [N, D] to a word.

        One image at a time: in a product of matrices the last bits depend on how many images there are, and a restored
        state would answer differently from one that went on.
        """
        return np.array([(self.rows @ row).max() for row in rows], np.float64)


@cache
def everyday() -> tuple[str, ...]:
    """The list that ships.

    >>> "teapot" in everyday(), len(everyday()) > 1000
    (True, True)
    """
    return _lines(Path(__file__).with_name("everyday.txt"))


def expanded(words: Sequence[str]) -> tuple[str, ...]:
    """The names that the option `words` stands for: "everyday" is the list that ships.

    >>> len(expanded(["everyday"])) == len(everyday()), expanded(["teapot", "kite"])
    (True, ('teapot', 'kite'))
    """
    names = [name for word in words for name in (everyday() if word == EVERYDAY else (word,))]
    return tuple(dict.fromkeys(names))


def word_names(given: Any) -> tuple[str, ...]:
    """The option `words` from the argument of `ostta.load`: names, a dictionary, "everyday", or a file of names.

    >>> word_names("everyday"), word_names(["teapot", " kite "])
    (('everyday',), ('teapot', 'kite'))
    """
    if isinstance(given, str | os.PathLike):
        return (EVERYDAY,) if given == EVERYDAY else _lines(Path(given))
    if not isinstance(given, Sequence | Mapping) or not all(isinstance(name, str) for name in given):
        raise Error(
            f'`words` takes a list of names, a dictionary of embeddings by name, "everyday", or a text file, not '
            f"{shown(given)}.",
            code="option-invalid",
        )
    return tuple(dict.fromkeys(name.strip() for name in given))


def _lines(path: Path) -> tuple[str, ...]:
    content = read_regular(path, "word list")
    with translate_errors(
        "file-not-text", f"The word list '{path}' is not UTF-8 text: write one word per line.", ValueError
    ):
        text = content.decode("utf-8-sig")
    lines = (line.strip() for line in text.splitlines())
    return tuple(dict.fromkeys(line for line in lines if line and not line.startswith(COMMENT)))
