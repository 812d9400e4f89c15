"""Text embeddings that somebody else made, for `wrap`: rows in the order of the classes, by name, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from numpy.typing import ArrayLike
from torch.nn import functional

from ..core.types import Error

# One embedding or several, as a tensor or as anything that numpy takes for numbers.
Numbers = torch.Tensor | ArrayLike
TextFeatures = Numbers | Mapping[str, Numbers] | Callable[[list[str]], Numbers]
# What a function of class names is asked about where its width must be known before there are classes.
ANY_CLASS = "thing"


class Texts(Protocol):
    """Where the embeddings of classes come from.

    width:    of an embedding; None where it is not known yet.
    weights:  what of them belongs to the hash of the backbone.
    """

    width: int | None
    weights: dict[str, torch.Tensor]

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        """Unit embeddings, one row a class, as a new tensor."""

    def known(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are not classes by position, and have an embedding."""


def texts_of(given: TextFeatures) -> Texts:
    """An Error where one of the embeddings cannot be used, as far as they are known already."""
    if isinstance(given, Mapping):
        return ByName(given)
    return ByFunction(given) if callable(given) else InOrder(given)


def words_by_name(given: object) -> Texts | None:
    """The embeddings of words, where `given` is a dictionary of them."""
    return ByName(given, "words") if isinstance(given, Mapping) and given else None


class InOrder:
    """One row for each class that there will be."""

    def __init__(self, given: Numbers) -> None:
        self._rows = _unit_rows(_tensor(given, "text_features"), "text_features")
        self.width: int | None = self._rows.shape[1]
        self.weights = {"text_features": self._rows}

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        if len(classes) != len(self._rows):
            raise Error(
                f"There are {len(classes)} classes, but {len(self._rows)} rows of text features were given to `wrap`."
            )
        return self._rows.clone()

    def known(self, names: Sequence[str]) -> list[str]:
        return []


class ByName:
    """The embeddings of some classes, of which any may be asked for."""

    def __init__(self, given: Mapping[str, Numbers], title: str = "text_features") -> None:
        if not given:
            raise Error("There are no text features: the dictionary given to `wrap` is empty.")
        self._rows: dict[str, torch.Tensor] = {}
        for name, numbers in given.items():
            what = f"{title}[{name!r}]"
            row = _tensor(numbers, what)
            if row.ndim != 1:
                raise Error(f"{what} must be one embedding, [D], not of shape {list(row.shape)}.")
            self._rows[name] = _unit_rows(row[None], what)[0]
        widths = {len(row): name for name, row in self._rows.items()}
        if len(widths) > 1:
            listed = " and ".join(f"that of {name!r} {width}" for width, name in sorted(widths.items())[:2])
            raise Error(f"All text features have one width, but {listed}.")
        self.width: int | None = next(iter(widths))
        self.weights = {f"text_features.{name}": row for name, row in self._rows.items()}

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        missing = [name for name in classes if name not in self._rows]
        if missing:
            few = ", ".join(map(repr, list(self._rows)[:5])) + (", ..." if len(self._rows) > 5 else "")
            raise Error(f"There are no text features of the class {missing[0]!r} among those given to `wrap`: {few}.")
        return torch.stack([self._rows[name] for name in classes])

    def known(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._rows]


class ByFunction:
    """A function from class names to their embeddings, asked whenever a classifier is made."""

    def __init__(self, function: Callable[[list[str]], Numbers]) -> None:
        self._function = function
        self.width: int | None = None
        # Nothing of a function can be hashed: whoever restores a state gives the same one again.
        self.weights: dict[str, torch.Tensor] = {}

    def rows(self, classes: Sequence[str]) -> torch.Tensor:
        what = "The function of class names given to `wrap`"
        try:
            given = self._function(list(classes))
        except Exception as problem:  # somebody else's function: anything may come
            raise Error(f"{what} does not take {len(classes)} names: {_line(problem)}.") from problem
        found = _tensor(given, f"what {what[0].lower()}{what[1:]} returns")
        wanted = f"[{len(classes)}, {'D' if self.width is None else self.width}]"
        if found.ndim != 2 or len(found) != len(classes) or self.width not in (None, found.shape[1]):
            raise Error(f"{what} gives {list(found.shape)} for {len(classes)} classes: it must give {wanted}.")
        return _unit_rows(found, "what it returns")

    def known(self, names: Sequence[str]) -> list[str]:
        return list(names)


def _tensor(given: Numbers, what: str) -> torch.Tensor:
    try:
        # A copy: what is given may change later, and a backbone must not.
        return torch.as_tensor(given).detach().to(torch.float32, copy=True)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise Error(f"{what} must be numbers, such as a tensor: {_line(problem)}.") from problem


def _unit_rows(text: torch.Tensor, what: str) -> torch.Tensor:
    if text.ndim != 2 or not text.numel():
        raise Error(f"{what} must have one row a class, [C, D], not the shape {list(text.shape)}.")
    norms = text.norm(dim=1)
    odd = (~torch.isfinite(norms) | (norms == 0)).nonzero().flatten().tolist()
    if odd:
        place = f"Row {odd[0]} of {what}" if len(text) > 1 else what
        raise Error(f"{place} is zero or not finite: each class needs an embedding.")
    return functional.normalize(text, dim=1)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200].rstrip(".") or type(problem).__name__
