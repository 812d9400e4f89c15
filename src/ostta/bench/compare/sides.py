"""What is compared: two result files, or two folders whose runs are paired."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...core.types import Error
from ..result import Result, read_result
from ..spec import RunSpec
from ..tables.folder_results import read_folder
from ..tables.run_names import method_key, method_name, short, stream_key, stream_name


@dataclass(frozen=True)
class Filed:
    """A result and where it lies; the records are beside it."""

    path: Path
    result: Result

    @property
    def records(self) -> Path | None:
        """The file of records, if it is there."""
        kept = self.result.records
        return self.path.parent / kept if kept is not None and (self.path.parent / kept).is_file() else None

    @property
    def name(self) -> str:
        spec = self.result.spec
        return method_name(spec) if spec.backbone == "embedded" else f"{method_name(spec)}, {short(spec.backbone)}"


@dataclass(frozen=True)
class Pair:
    """One method of A against one of B, on one stream: a run of each for every seed, in the same order."""

    first: tuple[Filed, ...]
    second: tuple[Filed, ...]

    @property
    def stream(self) -> str:
        one, other = (stream_name(side[0].result.spec) for side in (self.first, self.second))
        return one if one == other else f"{one} | {other}"

    @property
    def name(self) -> str:
        one, other = self.first[0].name, self.second[0].name
        return one if one == other else f"{one} | {other}"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(filed.result.spec.seed for filed in self.first)


@dataclass(frozen=True)
class Sides:
    """The pairs, and the runs that only one side has."""

    first: Path
    second: Path
    pairs: tuple[Pair, ...]
    only_first: tuple[Filed, ...] = ()
    only_second: tuple[Filed, ...] = ()


def open_sides(first: Path, second: Path) -> Sides:
    """Two files are one pair, whatever they are. Of two folders, runs that were asked for the same are pairs, and then what is left:
    the only run of A and the only one of B on a stream, with one backbone and seed."""
    if first.is_dir() != second.is_dir():
        raise Error(f"Two results or two folders can be compared, not the one and the other: {first} and {second}.")
    if not first.is_dir():
        pair = Pair((Filed(first, read_result(first)),), (Filed(second, read_result(second)),))
        return Sides(first, second, (pair,))
    ours, theirs = _filed(first), _filed(second)
    found = _matched(ours, theirs, lambda spec: (_place(spec), method_key(spec)))
    found += _matched(*_left(ours, theirs, found), _place)
    left = _left(ours, theirs, found)
    if not found:
        raise Error(
            f"No run of {first} has one in {second} to be compared with: streams, backbones or seeds are others."
        )
    return Sides(first, second, tuple(_by_seed(found)), tuple(left[0]), tuple(left[1]))


def _filed(folder: Path) -> list[Filed]:
    files = read_folder(folder)
    if not files.results:
        raise Error(f"There are no results in {folder}.")
    return [Filed(files.paths[key], result) for key, result in files.results.items()]


def _place(spec: RunSpec) -> tuple[str, ...]:
    return stream_key(spec), str(spec.seed), spec.backbone


def _matched(ours: list[Filed], theirs: list[Filed], key: Callable[[RunSpec], object]) -> list[tuple[Filed, Filed]]:
    """Those that are alone with their key on both sides."""
    both: list[dict[object, list[Filed]]] = [{}, {}]
    for side, found in zip((ours, theirs), both, strict=True):
        for filed in side:
            found.setdefault(key(filed.result.spec), []).append(filed)
    first, second = both
    return [(first[k][0], second[k][0]) for k in first if len(first[k]) == 1 and len(second.get(k, ())) == 1]


def _left(ours: list[Filed], theirs: list[Filed], pairs: list[tuple[Filed, Filed]]) -> tuple[list[Filed], list[Filed]]:
    """What of each side has no partner yet."""
    taken = {filed.path for pair in pairs for filed in pair}
    return [one for one in ours if one.path not in taken], [other for other in theirs if other.path not in taken]


def _by_seed(pairs: Iterable[tuple[Filed, Filed]]) -> list[Pair]:
    """Pairs that differ in their seed alone are one."""
    grouped: dict[object, list[tuple[Filed, Filed]]] = {}
    for one, other in pairs:
        specs = one.result.spec, other.result.spec
        key = tuple((stream_key(spec), method_key(spec), spec.backbone) for spec in specs)
        grouped.setdefault(key, []).append((one, other))
    made = []
    for group in grouped.values():
        group.sort(key=lambda pair: pair[0].result.spec.seed)
        made.append(Pair(tuple(one for one, _ in group), tuple(other for _, other in group)))
    return sorted(made, key=lambda pair: (pair.stream, pair.name))
