"""The cells of a suite by row and column, with their results: one place has one cell for each seed."""

from __future__ import annotations

from dataclasses import dataclass

from ..result import Result
from ..spec import OF_THE_STREAM, run_key
from ..suite import Cell
from .suite_results import SuiteResults

Names = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """The cells of one row and column, one for each seed, and their results as far as they are there."""

    cells: tuple[Cell, ...]
    results: dict[int, Result]
    shortened: bool

    @property
    def plain(self) -> bool:
        """Whether the run is as published: the method's own score with LDA, and no option changed."""
        spec = self.cells[0].spec
        return (
            spec.score in (None, "max")
            and spec.identifier == "lda"
            and not spec.options
            and not spec.guard
            and spec.profile != "field"
        )

    @property
    def asked(self) -> str:
        """What its runs are asked for, whatever the seed."""
        return repr(sorted((name, repr(value)) for name, value in self.cells[0].fields.items() if name != "seed"))

    @property
    def keys(self) -> frozenset[str]:
        """Its runs."""
        return frozenset(run_key(result.spec) for result in self.results.values())


def grouped(collected: SuiteResults) -> dict[tuple[Names, Names], Place]:
    """The places by row and column, in the order of the cells."""
    cells: dict[tuple[Names, Names], list[tuple[int, Cell]]] = {}
    for number, cell in enumerate(collected.cells):
        cells.setdefault((cell.row, cell.column), []).append((number, cell))
    places = {}
    for name, numbered in cells.items():
        found = {cell.seed: collected.result(cell) for _, cell in numbered}
        places[name] = Place(
            tuple(cell for _, cell in numbered),
            {seed: result for seed, result in found.items() if result is not None},
            any(number in collected.shortened for number, _ in numbered),
        )
    return places


def other_stream(ours: Place, theirs: Place, seed: int) -> bool:
    """Whether the runs of a seed at two places are there, but saw different streams: other data, or files of an older version."""
    one, other = ours.results.get(seed), theirs.results.get(seed)
    return one is not None and other is not None and one.stream_identity != other.stream_identity


def stream_of(cell: Cell) -> str:
    """Backbone and stream of a cell: what a frozen row must share with it, whatever the method and its options."""
    return repr([getattr(cell.spec, name) for name in ("backbone", *OF_THE_STREAM) if name != "seed"])
