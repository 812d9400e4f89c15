"""Comparison of two results or two folders: settings, figures with paired intervals, and answers image by image."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Error
from ..evaluation.intervals import Outcomes, Resampling
from ..evaluation.metrics import mean
from .folder import ResultFolder, StoredResult
from .naming import method_name, short, stream_name
from .records import PAIRED, Evidence, answers, are_significant, evidence_of_resamples, read_records
from .result import Result, metric_value, read_result
from .spec import RunSpec, method_key, stream_key


@dataclass(frozen=True)
class Pair:
    """A method of A and a method of B on one stream, with one run of each for every seed."""

    first: tuple[StoredResult, ...]
    second: tuple[StoredResult, ...]

    @property
    def stream(self) -> str:
        one, other = (stream_name(side[0].result.spec) for side in (self.first, self.second))
        return one if one == other else f"{one} | {other}"

    @property
    def name(self) -> str:
        one, other = (run_name(side[0].result.spec) for side in (self.first, self.second))
        return one if one == other else f"{one} | {other}"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(stored.result.spec.seed for stored in self.first)


@dataclass(frozen=True)
class Sides:
    """The pairs, and the runs that exist on one side only."""

    first: Path
    second: Path
    pairs: tuple[Pair, ...]
    only_first: tuple[StoredResult, ...] = ()
    only_second: tuple[StoredResult, ...] = ()


def open_sides(first: Path, second: Path) -> Sides:
    """Return the pairs of two result files or of two folders.

    Two files are one pair. In two folders, runs with equal specs are pairs. Of the remaining runs, the only run of A
    and the only run of B with the same stream, backbone and seed are a pair.
    """
    if first.is_dir() != second.is_dir():
        raise Error(
            f"Compare two result files or two folders, not a file and a folder: {first} and {second}.",
            code="comparison-invalid",
        )
    if not first.is_dir():
        pair = Pair((StoredResult(first, read_result(first)),), (StoredResult(second, read_result(second)),))
        return Sides(first, second, (pair,))
    ours, theirs = _stored(first), _stored(second)
    found = _matched(ours, theirs, lambda spec: (_place(spec), method_key(spec)))
    found += _matched(*_left(ours, theirs, found), _place)
    left = _left(ours, theirs, found)
    if not found:
        raise Error(
            f"No run of {first} can be paired with a run of {second}: their streams, backbones or seeds differ.",
            code="comparison-empty",
        )
    return Sides(first, second, tuple(_by_seed(found)), tuple(left[0]), tuple(left[1]))


def _stored(folder: Path) -> list[StoredResult]:
    return list(ResultFolder(folder).require_results().newest.values())


def run_name(spec: RunSpec) -> str:
    """Return the name of a run in a comparison: its method, and the backbone if it is not the embedded one."""
    return method_name(spec) if spec.backbone == "embedded" else f"{method_name(spec)}, {short(spec.backbone)}"


def _place(spec: RunSpec) -> tuple[str, ...]:
    return stream_key(spec), str(spec.seed), spec.backbone


def _matched(
    ours: list[StoredResult], theirs: list[StoredResult], key: Callable[[RunSpec], object]
) -> list[tuple[StoredResult, StoredResult]]:
    """Return the pairs of runs that are the only ones with their key on both sides."""
    both: list[dict[object, list[StoredResult]]] = [{}, {}]
    for side, found in zip((ours, theirs), both, strict=True):
        for stored in side:
            found.setdefault(key(stored.result.spec), []).append(stored)
    first, second = both
    return [(first[k][0], second[k][0]) for k in first if len(first[k]) == 1 and len(second.get(k, ())) == 1]


def _left(
    ours: list[StoredResult], theirs: list[StoredResult], pairs: list[tuple[StoredResult, StoredResult]]
) -> tuple[list[StoredResult], list[StoredResult]]:
    """Return the runs of each side without a partner."""
    taken = {stored.path for pair in pairs for stored in pair}
    return [one for one in ours if one.path not in taken], [other for other in theirs if other.path not in taken]


def _by_seed(pairs: Iterable[tuple[StoredResult, StoredResult]]) -> list[Pair]:
    """Join pairs that differ only in their seed."""
    grouped: dict[object, list[tuple[StoredResult, StoredResult]]] = {}
    for pair in pairs:
        specs = [side.result.spec for side in pair]
        key = tuple((stream_key(spec), method_key(spec), spec.backbone) for spec in specs)
        grouped.setdefault(key, []).append(pair)
    by_seed = [sorted(group, key=lambda pair: pair[0].result.spec.seed) for group in grouped.values()]
    joined = [Pair(*zip(*group, strict=True)) for group in by_seed]
    return sorted(joined, key=lambda pair: (pair.stream, pair.name))


# Fields of a result that are settings, not figures or times.
_PARTS = ("spec", "options", "stream", "weight_hash", "class_names_hash", "versions", "hardware", "threads")


@dataclass(frozen=True)
class Setting:
    """A field that differs, by its dotted name, with both values as text; a dash if one side does not have it."""

    field: str
    first: str
    second: str


def settings(pair: Pair) -> list[Setting]:
    """Return the settings that differ, over all seeds."""
    found: dict[Setting, None] = {}
    for one, other in zip(pair.first, pair.second, strict=True):
        found.update(dict.fromkeys(_differing(one.result, other.result)))
    return list(found)


def common(pairs: Iterable[list[Setting]]) -> list[Setting]:
    """Return the settings that differ in the same way in all pairs."""
    listed = list(pairs)
    return [each for each in listed[0] if all(each in other for other in listed[1:])] if listed else []


def _differing(first: Result, second: Result) -> Iterator[Setting]:
    one, other = (flat(result.model_dump(mode="json", include=set(_PARTS))) for result in (first, second))
    for field in sorted({*one, *other}, key=lambda name: (_PARTS.index(name.partition(".")[0]), name)):
        texts = [_text(side[field]) if field in side else "–" for side in (one, other)]
        if texts[0] != texts[1] and not _is_redundant(field, one, other):
            yield Setting(field, *texts)


def _is_redundant(field: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether a difference is redundant: options of the spec, options of another method, and notes."""
    part, _, name = field.partition(".")
    if part == "spec" and name.startswith("options"):
        return True
    alone = (field in one) != (field in other)
    was_set = any(f"spec.options.{name.rpartition('.')[2]}" in side for side in (one, other))
    return field.endswith(".note") or (part == "options" and alone and not was_set)


def flat(value: Any, name: str = "", *, lists: bool = False) -> dict[str, Any]:
    """Return the single values of nested objects by dotted names. Lists stay whole unless `lists` is set.

    >>> flat({"a": {"b": 1}, "c": [2]}), flat({"c": [2]}, lists=True)
    ({'a.b': 1, 'c': [2]}, {'c.0': 2})
    """
    if isinstance(value, dict):
        inside: Iterable[tuple[Any, Any]] = value.items()
    elif lists and isinstance(value, list):
        inside = enumerate(value)
    else:
        return {name: value}
    return {
        field: single
        for key, part in inside
        for field, single in flat(part, f"{name}.{key}" if name else str(key), lists=lists).items()
    }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


COMPARED = ("hm", "acc_desired", "acc_undesired", "auroc", "fpr95", "accuracy")


@dataclass(frozen=True)
class Compared:
    """A metric of A and of B, the difference, and its paired 95 % interval; `marked` if significant after Holm."""

    metric: str
    first: float | None
    second: float | None
    difference: float | None
    low: float | None = None
    high: float | None = None
    marked: bool = False


@dataclass(frozen=True)
class Changes:
    """Numbers of images whose answers changed, over all seeds. `shown`: number of images shown."""

    shown: int
    wrong_to_right: int
    right_to_wrong: int
    accepted_to_rejected: int
    rejected_to_accepted: int
    other_class: int


@dataclass(frozen=True)
class ComparedPair:
    """One pair. `why_not` explains why there are no intervals and no `changes`."""

    pair: Pair
    settings: tuple[Setting, ...]
    figures: tuple[Compared, ...]
    changes: Changes | None
    images: int
    why_not: str = ""


@dataclass(frozen=True)
class Comparison:
    """All pairs of two results or folders. `common`: settings that differ in all pairs alike."""

    sides: Sides
    common: tuple[Setting, ...]
    pairs: tuple[ComparedPair, ...]

    @property
    def intervals(self) -> int:
        return sum(figure.low is not None for each in self.pairs for figure in each.figures)


def compare(sides: Sides) -> Comparison:
    """Compute the comparison. Records are read as far as they exist."""
    compared, found = [], list[tuple[int, int, Evidence]]()
    for number, pair in enumerate(sides.pairs):
        outcomes, why_not = _outcomes(pair)
        figures = [_figure(pair, metric) for metric in COMPARED]
        images, changes = 0, None
        if outcomes is not None:
            images, changes = len({image for run in outcomes[0] for image in run.images}), changes_of(*outcomes)
            drawn = Resampling(outcomes[0])
            for place, figure in enumerate(figures):
                if figure.difference is None:
                    continue
                evidence = _evidence(pair, drawn, outcomes, figure.metric, images)
                if evidence is not None:
                    found.append((number, place, evidence))
        compared.append(ComparedPair(pair, tuple(settings(pair)), tuple(figures), changes, images, why_not))
    for (number, place, evidence), marked in zip(found, are_significant([each for _, _, each in found]), strict=True):
        figures = list(compared[number].figures)
        low, high = evidence.interval.low, evidence.interval.high
        figures[place] = replace(figures[place], low=low, high=high, marked=marked)
        compared[number] = replace(compared[number], figures=tuple(figures))
    return Comparison(sides, tuple(common(list(each.settings) for each in compared)), tuple(compared))


def changes_of(first: Sequence[Outcomes], second: Sequence[Outcomes]) -> Changes:
    """Count changed answers, with one run a seed on each side."""
    counts = np.zeros(6, np.int64)
    for one, other in zip(first, second, strict=True):
        before, after = one.right, other.right
        both = one.accepted & other.accepted
        counts += [
            len(one.labels),
            (~before & after).sum(),
            (before & ~after).sum(),
            (one.accepted & ~other.accepted).sum(),
            (~one.accepted & other.accepted).sum(),
            (both & (one.index != other.index)).sum(),
        ]
    return Changes(*map(int, counts))


def _figure(pair: Pair, metric: str) -> Compared:
    first, second = (mean([metric_value(each.result, metric) for each in side]) for side in (pair.first, pair.second))
    return Compared(metric, first, second, None if first is None or second is None else second - first)


def _outcomes(pair: Pair) -> tuple[tuple[list[Outcomes], list[Outcomes]] | None, str]:
    """Return the outcomes of both sides, or why they cannot be compared."""
    for one, other in zip(pair.first, pair.second, strict=True):
        if one.result.stream_identity != other.result.stream_identity:
            return None, "The two runs were on different streams, so there are no paired intervals and no images."
        without = next((stored for stored in (one, other) if stored.records is None), None)
        if without is not None:
            return None, f"{without.path.name} has no records, so there are no paired intervals and no images."
    try:
        first, second = ([_read(stored) for stored in side] for side in (pair.first, pair.second))
    except Error as problem:
        return None, str(problem)
    if any(one.images != other.images for one, other in zip(first, second, strict=True)):
        return None, "The records of the two sides have different images, although the hashes of the streams are equal."
    return (first, second), ""


def _read(stored: StoredResult) -> Outcomes:
    assert stored.records is not None
    return read_records(stored.records, PAIRED).outcomes


def _evidence(
    pair: Pair, drawn: Resampling, outcomes: tuple[list[Outcomes], list[Outcomes]], metric: str, images: int
) -> Evidence | None:
    # The HM of a continual stream is the mean over its domains.
    by_domain = metric == "hm" and pair.first[0].result.spec.scenario.kind == "continual"
    first, second = (drawn.values_by_run(side, metric, by_domain=by_domain) for side in outcomes)
    changed = {
        image
        for one, other in zip(*outcomes, strict=True)
        for image, differs in zip(one.images, answers(one, metric) != answers(other, metric), strict=True)
        if differs
    }
    return evidence_of_resamples(second - first, len(changed), images)


def as_json(comparison: Comparison) -> str:
    """Return the comparison as JSON."""
    sides = comparison.sides
    content = {
        "first": str(sides.first),
        "second": str(sides.second),
        "common": [asdict(each) for each in comparison.common],
        "pairs": [
            {
                "name": each.pair.name,
                "stream": each.pair.stream,
                "seeds": each.pair.seeds,
                "files": [[stored.path.name for stored in side] for side in (each.pair.first, each.pair.second)],
                "settings": [asdict(one) for one in each.settings],
                "figures": [asdict(figure) for figure in each.figures],
                "changes": None if each.changes is None else asdict(each.changes),
                "images": each.images,
                "why_not": each.why_not or None,
            }
            for each in comparison.pairs
        ],
        "only_first": [stored.path.name for stored in sides.only_first],
        "only_second": [stored.path.name for stored in sides.only_second],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
