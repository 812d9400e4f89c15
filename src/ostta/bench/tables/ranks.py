"""Average ranks of methods over streams, and which of them are told apart: Friedman's test, then Wilcoxon's for each pair, by Holm.

A stream counts as one observation: what is asked is whether a method is better over streams, and not on one. Friedman's test says
whether the methods differ at all. If so, each pair is tested by Wilcoxon's signed ranks, corrected by Holm. The older way is
Nemenyi's critical difference of the average ranks; there, whether two methods are told apart depends on which others are in the table,
which one can choose (Benavoli, Corani and Mangili, 2016). Wilcoxon's test looks at the two alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...core.types import Error
from ...evaluation.significance import ALPHA, holm
from ..suite import lower_is_better
from .places import Names
from .run_names import stream_key
from .suite_figures import SuiteFigures


@dataclass(frozen=True)
class Ranks:
    """Methods, the best first, with their average ranks over so many streams; 1 is the best, and equals share their ranks.

    differ: the chance of Friedman's test. apart: the pairs that are told apart, the better first. joined: the longest stretches of
    methods, in the order of their ranks, of which no two are told apart.
    """

    methods: tuple[str, ...]
    average: tuple[float, ...]
    streams: int
    differ: float
    apart: frozenset[tuple[str, str]]

    @property
    def joined(self) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for start in range(len(self.methods)):
            end = start + 1
            while end < len(self.methods) and not any(
                (one, self.methods[end]) in self.apart for one in self.methods[start:end]
            ):
                end += 1
            stretch = self.methods[start:end]
            # A stretch within one that began earlier says nothing more.
            if len(stretch) > 1 and not any(set(stretch) <= set(other) for other in found):
                found.append(stretch)
        return found


@dataclass(frozen=True)
class RanksOfBackbone:
    """The ranks of one backbone's rows, or one sentence that says why there are none."""

    backbone: str
    metric: str
    rows: dict[str, Names]
    ranks: Ranks | None
    why_not: str = ""


def streams_needed(methods: int) -> int:
    """The fewest streams with which any pair could be told apart, if one of the two were better on all of them.

    >>> streams_needed(2), streams_needed(4), streams_needed(10)
    (6, 8, 11)
    """
    pairs = methods * (methods - 1) // 2
    return math.ceil(1 + math.log2(max(1, pairs) / ALPHA) - 1e-9)


def average_ranks(values: Mapping[str, Sequence[float]], *, higher_is_better: bool = True) -> Ranks:
    """From the figures of each method, one a stream, in the same order for all.

    >>> figures = {"a": [9, 8, 9, 7, 8, 9, 9, 8], "b": [5, 4, 6, 3, 5, 4, 5, 6], "c": [5, 5, 5, 4, 4, 5, 4, 6]}
    >>> ranks = average_ranks(figures)
    >>> ranks.methods[0], ranks.average[0], ranks.joined
    ('a', 1.0, [('b', 'c')])
    """
    from scipy.stats import friedmanchisquare, rankdata

    streams = len(next(iter(values.values()), ()))
    if len(values) < 2 or streams < 2 or any(len(each) != streams for each in values.values()):
        raise Error("Average ranks need at least two methods with figures on the same streams, at least two of them.")
    names = list(values)
    table = np.array([values[name] for name in names], np.float64) * (1 if higher_is_better else -1)
    average = rankdata(-table, axis=0).mean(axis=1)
    order = sorted(range(len(names)), key=lambda place: (average[place], names[place]))
    if len(names) > 2:
        differ = 1.0 if np.ptp(table, axis=0).max() == 0 else float(friedmanchisquare(*table).pvalue)
    else:
        differ = _signed_ranks(table[0] - table[1])
    pairs = list(itertools.combinations(order, 2))
    chances = holm([_signed_ranks(table[one] - table[other]) for one, other in pairs])
    apart = {
        (names[one], names[other])
        for (one, other), chance in zip(pairs, chances, strict=True)
        if differ < ALPHA and chance < ALPHA
    }
    return Ranks(
        tuple(names[place] for place in order),
        tuple(float(average[place]) for place in order),
        streams,
        differ,
        frozenset(apart),
    )


def _signed_ranks(differences: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    from scipy.stats import wilcoxon

    # Streams on which both are equal count half for each side.
    return 1.0 if not differences.any() else float(wilcoxon(differences, zero_method="zsplit").pvalue)


def ranks_of(figures: SuiteFigures) -> Iterator[RanksOfBackbone]:
    """The average ranks of the headline, one list for each backbone that has several rows and streams."""
    for backbone, rows in _rows_by_backbone(figures).items():
        columns = _streams(figures, list(rows.values()))
        values = {
            name: [figure.mean for column in columns if (figure := figures.figure(row, column, figures.headline))]
            for name, row in rows.items()
        }
        whole = {
            name: [value for value in found if value is not None]
            for name, found in values.items()
            if len(found) == len(columns) and None not in found
        }
        if len(whole) < 2 or len(columns) < 2:
            continue
        needed, kept = streams_needed(len(whole)), {name: rows[name] for name in whole}
        if len(columns) < needed:
            sentence = (
                f"No average ranks over streams ({backbone}): {len(whole)} methods need at least {needed} streams to be told apart, "
                f"and there are {len(columns)}."
            )
            yield RanksOfBackbone(backbone, figures.headline, kept, None, sentence)
        else:
            higher = not lower_is_better(figures.headline)
            yield RanksOfBackbone(backbone, figures.headline, kept, average_ranks(whole, higher_is_better=higher))


def _rows_by_backbone(figures: SuiteFigures) -> dict[str, dict[str, Names]]:
    """Rows by what they are called beside their backbone; a row that shows the runs of another once more is left out."""
    found: dict[str, dict[str, Names]] = {}
    seen: set[tuple[str, ...]] = set()
    for row in figures.rows:
        results = [result for column in figures.columns for result in figures.results(row, column).values()]
        runs = tuple(figures.collected.file_of(result) for result in results)
        if not results or runs in seen:
            continue
        seen.add(runs)
        named = [name for axis, name in zip(figures.suite.rows, row, strict=True) if axis != "backbone"]
        found.setdefault(results[0].spec.backbone, {})[" / ".join(named) or row[-1]] = row
    return found


def _streams(figures: SuiteFigures, rows: Sequence[Names]) -> list[Names]:
    """The columns that at least two of the rows have figures in, each stream once: columns may differ in something else."""
    found: dict[str, Names] = {}
    for column in figures.columns:
        there = [
            row for row in rows if (figure := figures.figure(row, column, figures.headline)) and figure.mean is not None
        ]
        if len(there) > 1:
            result = next(iter(figures.results(there[0], column).values()))
            found.setdefault(stream_key(result.spec), column)
    return list(found.values())
