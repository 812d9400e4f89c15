"""Hostile streams, and tables that set a row against the frozen one along the stream."""

from __future__ import annotations

import numpy as np
from PIL import Image

from helpers.errors import raises
from ostta.bench.against_frozen import hostile_images, recovered, window_differences
from ostta.bench.request import read_scenario
from ostta.bench.run import prepare
from ostta.bench.spec import (
    CoveredScenario,
    RunSpec,
    UnknownFirstScenario,
    checked_spec,
    identity,
    is_frozen,
    name_of,
)
from ostta.bench.stream import compose
from ostta.bench.suite import expand, load_suite
from ostta.evaluation.intervals import Outcomes
from ostta.streams import Covered, Domain, Fooling, OneClassFirst, SortedClasses, Stream, UnknownFirst


class Numbered:
    """Images that are told apart by their number only."""

    def __init__(self, name: str, labels: list[int]) -> None:
        self.name, self.labels = name, np.array(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        return Image.new("RGB", (2, 2), (index % 256, 0, 0))


def domain(desired: int = 40, undesired: int = 100) -> Domain:
    known = Numbered("known", [number % 4 for number in range(desired)])
    return Domain("snow", known, Numbered("unknown", [0] * undesired), {})


def labels(stream: Stream) -> list[int]:
    return [sample.label for sample in stream]


def test_unknown_images_first_and_others_later() -> None:
    stream = UnknownFirst(domain(), 30, seed=1)
    samples = list(stream)
    assert len(samples) == 30 + 40 + 40
    assert {sample.label for sample in samples[:30]} == {-1}
    later = [sample for sample in samples[30:] if sample.label < 0]
    assert len(later) == 40
    assert not {sample.index for sample in samples[:30]} & {sample.index for sample in later}
    assert len({UnknownFirst(domain(), 30, seed=seed).hash for seed in (1, 1, 2)}) == 2


def test_one_class_first_then_all() -> None:
    stream = OneClassFirst(domain(), 25, np.arange(40), seed=3)
    found = labels(stream)
    assert len(set(found[:25])) == 1
    assert found[0] >= 0
    assert sorted(set(found[25:])) == [-1, 0, 1, 2, 3]
    assert len(found) == 25 + 80


def test_classes_one_after_the_other() -> None:
    known = [label for label in labels(SortedClasses(domain())) if label >= 0]
    assert known == sorted(known)
    assert len(known) == 40


def test_a_covered_lens_is_a_domain_for_each_cover() -> None:
    stream = Covered(domain(), [Numbered("black", [0] * 5), Numbered("noise", [0] * 6)])
    assert stream.domains == ("black", "noise", "snow")
    assert [sample.domain for sample in stream][:11] == [0] * 5 + [1] * 6
    assert labels(stream)[:11] == [-1] * 11


def test_fooling_takes_those_that_look_most_like_a_class() -> None:
    stream = Fooling(domain(20, 60), lambda source: np.arange(len(source)) % 30 * 1.0, pool=3)
    taken = sorted(sample.index for sample in stream if sample.label < 0)
    assert taken == [*range(20, 30), *range(50, 60)]


def test_every_scenario_of_the_suite_can_be_put_together() -> None:
    base = {"desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 6}
    for kind, more in (
        ("unknown_first", {"images": 8}),
        ("one_class_first", {"images": 8}),
        ("sorted", {}),
        ("covered", {"images": 3}),
    ):
        composed = compose(checked_spec(**base, scenario={"kind": kind, **more}), None)
        assert len(list(composed.stream)) == len(composed.stream) > 12 - (kind == "sorted")
    with raises("scenario-invalid"):
        compose(checked_spec(**{**base, "undesired": None}, scenario={"kind": "covered"}), None)
    assert read_scenario("covered", images=7).images == 7


def test_fooling_asks_the_frozen_model() -> None:
    spec = checked_spec(
        desired="sample:cifar10c",
        undesired="sample:mnist",
        limit=5,
        method="zero_shot",
        scenario={"kind": "fooling", "pool": 4},
    )
    prepared = prepare(spec, None)
    assert prepared.stream.undesired_count == 5
    usual = prepare(checked_spec(**{**spec.model_dump(), "scenario": {"kind": "single"}}), None)
    fooling, plain = (
        np.mean([run.adapter.predict(sample.image).score for sample in run.stream if sample.label < 0])
        for run in (prepared, usual)
    )
    assert fooling > plain


def test_a_spec_without_a_guard_is_as_before_there_was_one() -> None:
    assert "guard" not in identity(RunSpec())
    guarded = RunSpec(guard=True, method="zero_shot")
    assert identity(guarded)["guard"] is True
    assert name_of(guarded) == "zero_shot guarded"
    assert not is_frozen(guarded)


def test_the_suite_has_all_streams_with_and_without_the_guard() -> None:
    cells = expand(load_suite("embedded/hostile"))
    by_row = {
        row: {cell.column[0] for cell in cells if cell.row == (row,)}
        for row in ("rosita", "rosita guarded", "field guarded")
    }
    assert len(by_row["rosita"]) == 10
    assert by_row["rosita"] == by_row["rosita guarded"]
    assert by_row["rosita"] - by_row["field guarded"] == {"rate x 100"}
    assert all(cell.spec.guard == cell.row[0].endswith("guarded") for cell in cells)


# --- windows ----------------------------------------------------------------------------------------------------------
def outcomes(right: np.ndarray) -> Outcomes:
    """Known images of class 0, of which some are given their class."""
    count = len(right)
    return Outcomes.of(np.zeros(count), np.ones(count), np.ones(count, bool), np.where(right, 0, 1))


def test_a_window_is_below_only_where_its_whole_interval_is() -> None:
    chance = np.random.default_rng(0)
    frozen = chance.random(1500) < 0.7
    worse = frozen.copy()
    worse[500:1000] &= chance.random(500) > 0.3
    windows = window_differences([outcomes(worse)], [outcomes(frozen)], 500)
    assert [window.start for window in windows] == [0, 500, 1000]
    assert [window.below for window in windows] == [False, True, False]
    assert windows[0].value == windows[0].low == windows[0].high == 0
    assert windows[1].high < -2 < windows[1].low + 30
    # A window that is worse by hardly more than chance is not below.
    slightly = frozen.copy()
    slightly[:12] = False
    assert not any(window.below for window in window_differences([outcomes(slightly)], [outcomes(frozen)], 500))


def test_recovered_is_counted_from_where_the_stream_is_usual() -> None:
    frozen, ours = np.ones(1000, bool), np.ones(1000, bool)
    ours[:450] = False
    pair = [(outcomes(ours), outcomes(frozen))]
    assert recovered(pair, 0) == 448  # two of 200 are a point
    assert recovered(pair, 300) == 148
    assert recovered(pair, 900) is None
    assert recovered([(outcomes(frozen), outcomes(frozen))], 0) == 0
    assert hostile_images(RunSpec(scenario=UnknownFirstScenario(images=70))) == 70
    assert hostile_images(RunSpec(scenario=CoveredScenario(images=30))) == 60
    assert hostile_images(RunSpec()) == 0
