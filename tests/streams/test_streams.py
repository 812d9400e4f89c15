"""Scenarios: what comes, in what order, and what is said about it.

Sources are made here, so that everything can be counted.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.errors import raises
from helpers.image_sets import NumberedImages
from ostta import Error
from ostta.streams import (
    Arranged,
    Continual,
    Domain,
    Frequent,
    Ordered,
    Sample,
    SingleDomain,
    Smooth,
    Stream,
    prefetched,
)
from ostta.streams.arranged import in_runs
from ostta.streams.mixing import cycled, generator, interleaved, shuffled, visit_orders
from ostta.streams.smooth import leg, walk


def note_pair(image: np.ndarray, first, first_severity, second, second_severity, *, seed: int, index: int):
    """A stand-in for two corruptions: the pixels say which they were and how severe."""
    values = [ord(first[0]), int(first_severity * 4), ord(second[0]), int(second_severity * 4)]
    return np.array([values * 3], np.uint8).reshape(2, 2, 3)


def domains(count: int, desired: int = 12, undesired: int | None = 30, shade: int = 0) -> list[Domain]:
    unknown = None if undesired is None else NumberedImages("unknown", undesired, shade)
    return [
        Domain(f"d{n}", NumberedImages("known", desired, shade + n), unknown, {"corruption": f"c{n}"})
        for n in range(count)
    ]


def smooth(desired: int = 20, undesired: int = 7, **options) -> Smooth:
    given = {"speed": 3, "budget": 0.5, **options}
    return Smooth(
        NumberedImages("known", desired), NumberedImages("unknown", undesired), ["a", "b", "c"], note_pair, **given
    )


def arranged(arrangement: str = "bursts", lengths: tuple[int, int] = (2, 4), **options) -> Arranged:
    stream = SingleDomain(NumberedImages("known", 12), NumberedImages("unknown", 30), **options)
    return Arranged(stream, arrangement, lengths, seed=options.get("seed", 0))


SCENARIOS: dict[str, Callable[..., Stream]] = {
    "single": lambda **o: SingleDomain(NumberedImages("known", 12), NumberedImages("unknown", 30), **o),
    "continual": lambda **o: Continual(domains(3), **o),
    "frequent": lambda **o: Frequent(domains(3), 5, **o),
    "ordered": lambda **o: Ordered(domains(1)[0], **o),
    "smooth": lambda **o: smooth(**o),
    "arranged": arranged,
}
each_scenario = pytest.mark.parametrize("make", SCENARIOS.values(), ids=SCENARIOS)


def places(samples: Iterator[Sample] | Stream) -> list[tuple[str, int, int, int]]:
    return [(sample.source, sample.index, sample.label, sample.domain) for sample in samples]


# --- what comes -------------------------------------------------------------------------------------------------------
def test_single_domain_is_one_permutation_of_both_sides() -> None:
    stream = SingleDomain(NumberedImages("known", 10), NumberedImages("unknown", 30), ratio=0.5, seed=4)
    expected = np.random.default_rng(4).permutation(15)
    assert [s.index if s.label >= 0 else s.index + 10 for s in stream] == expected.tolist()
    # As recorded before there were other scenarios.
    assert stream.hash == "4654417ce5e1d6a30ba65c8091c9ef0c99c8922848eb8f522ddcb5d74c0b5024"


@pytest.mark.parametrize(("ratio", "undesired"), [(0.0, 0), (0.2, 2), (0.6, 7), (0.8, 9), (1.0, 12), (3.0, 30)])
def test_ratio_keeps_all_desired_and_takes_the_first_undesired(ratio: float, undesired: int) -> None:
    for stream, rounds in ((SCENARIOS["single"](ratio=ratio), 1), (SCENARIOS["continual"](ratio=ratio), 3)):
        found = Counter((sample.label >= 0, sample.index) for sample in stream)
        assert found == {(True, i): rounds for i in range(12)} | {(False, i): rounds for i in range(undesired)}
        assert (stream.desired_count, stream.undesired_count) == (12 * rounds, undesired * rounds)
        assert stream.short_of == (6 * rounds if ratio == 3.0 else 0)
        assert bool(stream.notes) == (ratio == 3.0)


def test_continual_shows_each_domain_in_full_with_the_same_undesired_images() -> None:
    stream = Continual(domains(3), ratio=0.5)
    assert stream.domains == ("d0", "d1", "d2")
    samples = list(stream)
    assert [sample.domain for sample in samples] == [0] * 18 + [1] * 18 + [2] * 18
    orders = []
    for number in range(3):
        here = samples[18 * number : 18 * number + 18]
        assert sorted(s.index for s in here if s.label >= 0) == list(range(12))
        assert sorted(s.index for s in here if s.label < 0) == list(range(6))
        # The image is the one under this domain's condition: `domains` gives each its own shade.
        assert {s.image.getpixel((0, 0))[0] for s in here if s.label >= 0} == {number}
        orders.append([(s.label, s.index) for s in here])
    assert orders[0] != orders[1] != orders[2] != orders[0]
    # The first domain is mixed as a single one.
    assert orders[0] == [
        (s.label, s.index) for s in SingleDomain(NumberedImages("known", 12), NumberedImages("unknown", 30), ratio=0.5)
    ]


def test_a_domain_listed_twice_counts_as_two() -> None:
    first, second, _ = domains(3)
    stream = Continual([first, second, first])
    assert stream.domains == ("d0", "d1", "d0 (2)")
    assert Counter(sample.domain for sample in stream) == {0: 24, 1: 24, 2: 24}


def test_frequent_shows_every_desired_image_once_and_goes_round() -> None:
    stream = Frequent(domains(3), 5, ratio=0.5)
    samples = list(stream)
    # 12 desired images at 5 a visit: 5, 5, 2; undesired ones up to half of those so far: 2, then 5, then 6.
    assert [sample.domain for sample in samples] == [0] * 7 + [1] * 8 + [2] * 3
    assert sorted(s.index for s in samples if s.label >= 0) == list(range(12))
    assert sorted(s.index for s in samples if s.label < 0) == list(range(6))
    assert {(s.image.getpixel((0, 0))[0], s.domain) for s in samples if s.label >= 0} == {(0, 0), (1, 1), (2, 2)}
    again = Frequent(domains(2), 3)
    assert [domain for domain, _ in itertools.groupby(sample.domain for sample in again)] == [0, 1, 0, 1]
    assert again.domains == ("d0", "d1")
    few = Frequent(domains(9), 5)
    assert few.domains == ("d0", "d1", "d2")
    assert few.notes == ("The stream reaches only 3 of the 9 domains.",)


def test_frequent_spreads_too_few_undesired_images() -> None:
    stream = Frequent(domains(2, desired=12, undesired=6), 4)
    assert [sum(s.label < 0 for s in visit) for _, visit in itertools.groupby(stream, lambda s: s.domain)] == [2, 2, 2]
    assert stream.short_of == 6


def test_ordered_keeps_the_order_and_repeats_undesired_images_in_rounds() -> None:
    stream = Ordered(domains(1, desired=50, undesired=20)[0], seed=1)
    samples = list(stream)
    assert [s.index for s in samples if s.label >= 0] == list(range(50))
    unknown = [s.index for s in samples if s.label < 0]
    assert sorted(unknown[:20]) == sorted(unknown[20:40]) == list(range(20))
    assert len(set(unknown[40:])) == 10
    assert stream.short_of == 0
    assert stream.notes == ("The unknown set has 20 images, and 50 are shown: each is shown about 2.5 times.",)
    sides = "".join("d" if s.label >= 0 else "u" for s in samples)
    assert "uu" in sides
    assert "dd" in sides
    assert sides != "".join("d" if s.label >= 0 else "u" for s in Ordered(domains(1, 50, 20)[0], seed=2))


def test_an_arrangement_shows_the_same_images_in_runs_of_one_class() -> None:
    for ratio, unknown in ((0.0, 0), (0.5, 6), (9.0, 30)):
        plain = SingleDomain(NumberedImages("known", 12), NumberedImages("unknown", 30), ratio=ratio)
        for arrangement in ("ordered", "bursts"):
            stream = arranged(arrangement, ratio=ratio)
            assert sorted(places(stream)) == sorted(places(plain))
            assert (stream.undesired_count, stream.short_of, stream.notes) == (unknown, plain.short_of, plain.notes)
        shown = [(s.label >= 0, s.index % 3) for s in arranged("ordered", ratio=ratio)]
        assert len([*itertools.groupby(shown)]) == len(set(shown))

    class Unlabelled(NumberedImages):
        labels = np.full(30, -1)

    stream = Arranged(SingleDomain(NumberedImages("known", 12), Unlabelled("unknown", 30)), "ordered", (5, 40))
    assert len([*itertools.groupby(s.label for s in stream)]) == 4


@given(
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    lengths=st.tuples(st.integers(1, 9), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair))),
    seed=st.integers(0, 1000),
)
def test_runs_have_the_lengths(sizes: list[int], lengths: tuple[int, int], seed: int) -> None:
    classes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    for bounds in (None, lengths):
        order = in_runs(classes, bounds, np.random.default_rng(seed))
        assert order.tolist() == in_runs(classes, bounds, np.random.default_rng(seed)).tolist()
        assert sorted(order) == list(range(len(classes)))
        runs = [(kind, len([*run])) for kind, run in itertools.groupby(classes[order].tolist())]
        if bounds is None:
            assert len(runs) == len(sizes)
        # The last run of a class may be shorter, and two runs of one class may be neighbours.
        for number, (kind, length) in enumerate(runs):
            if bounds is not None and kind in (later for later, _ in runs[number + 1 :]):
                assert any(count * bounds[0] <= length <= count * bounds[1] for count in range(1, length + 1))


def test_smooth_walks_its_path_with_speed_images_a_cell() -> None:
    stream = smooth(desired=20, undesired=7, ratio=0.5)
    samples = list(stream)
    assert sorted(s.index for s in samples if s.label >= 0) == list(range(20))
    known = [s for s in samples if s.label >= 0]
    for number, cell in enumerate(stream.cells):
        here = known[3 * number : 3 * number + 3]
        shown = {tuple(np.asarray(s.image).ravel()[:4]) for s in here}
        assert shown == {
            (ord(cell.first), int(cell.first_severity * 4), ord(cell.second), int(cell.second_severity * 4))
        }
        assert {s.domain for s in here} == {cell.leg}
    # A leg at a budget of 0.5 has four cells, so 20 images at 3 a cell reach into the second leg.
    assert [(cell.first_severity, cell.second_severity) for cell in stream.cells] == [
        (0.5, 0), (0.25, 0), (0.25, 0.25), (0, 0.25), (0.5, 0), (0.25, 0), (0.25, 0.25),
    ]  # fmt: skip
    assert len(stream.domains) == 2
    # Undesired images stay as they are, unless they are to follow, and come again in rounds.
    unknown = [s for s in samples if s.label < 0]
    assert len(unknown) == 10
    assert sorted(s.index for s in unknown[:7]) == list(range(7))
    assert all(s.image.getpixel((0, 0)) == (0, s.index, 0) for s in unknown)
    following = [s for s in smooth(corrupt_undesired=True) if s.label < 0]
    assert all(s.image.getpixel((0, 0))[0] in map(ord, "abc") for s in following)
    longer = smooth(desired=4, cells=6)
    assert sorted(Counter(s.index for s in longer if s.label >= 0).values()) == [4, 4, 5, 5]


# --- the same everywhere ----------------------------------------------------------------------------------------------
def test_orders_are_the_same_on_every_machine() -> None:
    stored = {
        "single": "57a0f3a4d1e65e16",
        "continual": "30bb17b78a190875",
        "frequent": "c6a75b4a1e4828b4",
        "ordered": "3f27defab69e42a7",
        "smooth": "d7c763e2f573e5b4",
        "arranged": "7b1087ce3c6478e2",
    }
    assert {name: make(seed=7).hash[:16] for name, make in SCENARIOS.items()} == stored


@each_scenario
def test_same_seed_same_stream(make) -> None:
    assert places(make(seed=3)) == places(make(seed=3))
    assert make(seed=3).hash == make(seed=3).hash
    assert places(make(seed=3)) != places(make(seed=4))


@each_scenario
def test_starting_in_the_middle_is_skipping_without_reading(make) -> None:
    whole = places(make())
    for position in range(len(whole) + 1):
        stream = make()
        assert places(stream.starting_at(position)) == whole[position:]
        sources = {id(side): side for visit in stream.visits for side in (visit.desired, visit.undesired)}.values()
        clean = {id(s): s for s in (getattr(side, "clean", side) for side in sources)}.values()
        assert sum(len(source.reads) for source in clean) == len(whole) - position
    assert len(make()) == len(whole)
    for wrong in (-1, len(whole) + 1):
        with raises("stream-invalid", match=f"cannot start at position {wrong}"):
            make().starting_at(wrong)


HASHED = {
    "single": [{"ratio": 0.5}, {"seed": 1}],
    "continual": [{"ratio": 0.5}, {"seed": 1}],
    "frequent": [{"ratio": 0.5}, {"seed": 1}],
    "ordered": [{"ratio": 0.5}, {"seed": 1}],
    "arranged": [{"ratio": 0.5}, {"seed": 1}, {"arrangement": "ordered"}, {"lengths": (2, 5)}],
    "smooth": [
        {"ratio": 0.5},
        {"seed": 1},
        {"speed": 4},
        {"budget": 0.75},
        {"cells": 9},
        {"corrupt_undesired": True},
        {"desired": 21},
    ],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_hash_tells_options_apart(name: str) -> None:
    variants = [{}, *HASHED[name]]
    assert len({SCENARIOS[name](**options).hash for options in variants}) == len(variants)


def test_the_hash_tells_domains_apart_but_not_pixels() -> None:
    plain = domains(2)
    other = [plain[0], Domain("d1", plain[1].desired, plain[1].undesired, {"corruption": "c9"})]
    renamed = [plain[0], Domain("dx", plain[1].desired, plain[1].undesired, {"corruption": "c1"})]
    for make in (Continual, lambda listed: Frequent(listed, 4), lambda listed: Ordered(listed[1])):
        hashes = {make(listed).hash for listed in (plain, other, renamed)}
        assert len(hashes) == 3
        assert make(domains(2)).hash == make(domains(2, shade=90)).hash == make(plain).hash
    assert Frequent(plain, 4).hash != Frequent(plain, 5).hash
    assert Continual(plain).hash != Continual(plain[::-1]).hash


# --- mixing -----------------------------------------------------------------------------------------------------------
@given(desired=st.integers(0, 40), undesired=st.integers(0, 40), seed=st.integers(0, 1000))
def test_mixing_loses_and_invents_nothing(desired: int, undesired: int, seed: int) -> None:
    both = sorted([*range(desired), *(~n for n in range(undesired))])
    for mix in (shuffled, interleaved):
        assert sorted(mix(np.arange(desired), np.arange(undesired), generator(seed)).tolist()) == both
    kept = interleaved(np.arange(desired), np.arange(undesired), generator(seed))
    assert kept[kept >= 0].tolist() == list(range(desired))
    assert (~kept[kept < 0]).tolist() == list(range(undesired))


def test_interleaving_is_uniform() -> None:
    """Two of each side: all six patterns, about as often."""
    found = Counter(
        "".join("d" if n >= 0 else "u" for n in interleaved(np.arange(2), np.arange(2), generator(seed)))
        for seed in range(3000)
    )
    assert len(found) == 6
    assert all(400 < count < 600 for count in found.values())


@given(count=st.integers(1, 20), wanted=st.integers(0, 70), seed=st.integers(0, 100))
def test_cycling_shows_all_before_any_again(count: int, wanted: int, seed: int) -> None:
    numbers = cycled(count, wanted, generator(seed))
    assert len(numbers) == wanted
    for start in range(0, wanted, count):
        part = numbers[start : start + count].tolist()
        assert len(set(part)) == len(part)
        assert set(part) <= set(range(min(count, wanted)))
    assert len(cycled(0, wanted, generator(seed))) == 0


@given(total=st.integers(0, 100), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_shares_follow_the_sizes(total: int, sizes: list[int]) -> None:
    orders = visit_orders(np.arange(sum(sizes)), np.arange(total), sizes, 0)
    assert [int((order >= 0).sum()) for order in orders] == sizes
    bounds = np.cumsum([0, *((order < 0).sum() for order in orders)])
    assert (bounds[0], bounds[-1]) == (0, total)
    exact = total * np.concatenate([[0], np.cumsum(sizes)]) / sum(sizes)
    assert (bounds <= exact + 1e-9).all()
    assert (bounds > exact - 1).all()


# --- the path ---------------------------------------------------------------------------------------------------------
@given(budget=st.integers(1, 40).map(lambda quarters: quarters / 4))
def test_a_leg_moves_one_severity_by_a_quarter(budget: float) -> None:
    cells = leg(budget)
    assert cells[0] == (min(budget, 5.0), 0.0)
    assert cells[-1][0] == 0.0
    assert all(first > 0 for first, _ in cells[:-1])
    for (first, second), (next_first, next_second) in itertools.pairwise(cells):
        assert (next_first - first, next_second - second) in ((-0.25, 0.0), (0.0, 0.25))
    assert all(0 <= severity <= 5 for cell in cells for severity in cell)
    assert all(sum(cell) <= budget for cell in cells)
    if budget <= 5:
        assert {sum(cell) for cell in cells} == {budget, budget - 0.25}
        assert len(cells) == 8 * budget
    else:
        assert max(map(sum, cells)) == budget
        assert cells[-1] == (0.0, 5.0)


@settings(max_examples=30)
@given(budget=st.sampled_from([0.25, 1.0, 5.0, 7.5, 10.0]), seed=st.integers(0, 50), names=st.integers(2, 6))
def test_the_path_is_continuous_over_its_junctions(budget: float, seed: int, names: int) -> None:
    pool = "abcdef"[:names]
    cells = list(itertools.islice(walk(pool, budget, seed), 5 * len(leg(budget)) + 1))
    for before, after in itertools.pairwise(cells):
        assert before.first != before.second
        if after.leg == before.leg:
            assert (before.first, before.second) == (after.first, after.second)
            continue
        assert after.leg == before.leg + 1
        assert (before.first_severity, after.second_severity) == (0.0, 0.0)
        assert after.first == before.second
        assert after.first_severity - before.second_severity == (0.25 if budget <= 5 else 0.0)
    assert {cell.first for cell in cells} <= set(pool)


# --- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Continual([]), "the list of domains is empty"),
        (lambda: Frequent([], 5), "the list of domains is empty"),
        (lambda: Continual([*domains(1), *domains(1, desired=0)]), "known has no images"),
        (lambda: SingleDomain(NumberedImages("known", 0), None), "known has no images"),
        (lambda: Ordered(domains(1, desired=0)[0]), "known has no images"),
        (lambda: smooth(desired=0), "known has no images"),
        (lambda: Frequent(domains(2), 0), "`images` must be an integer of at least 1, not 0"),
        (lambda: Frequent([*domains(1), *domains(2, desired=5)[1:]], 2), "must have the same images, but d1 has 5"),
        (lambda: Frequent(domains(1) * 2, 2), "list d0 only once"),
        (lambda: Frequent([*domains(1), *domains(2, undesired=None)[1:]], 2), "or none of them"),
        (lambda: smooth(speed=-1), "`speed` must be an integer of at least 1, not -1"),
        (lambda: smooth(cells=0), "`cells` must be an integer of at least 1, not 0"),
        (lambda: smooth(budget=0), "from 0.25 to 10 in steps of 0.25, not 0"),
        (lambda: smooth(budget=10.25), "not 10.25"),
        (lambda: smooth(budget=0.3), "not 0.3"),
        (lambda: smooth(budget=float("nan")), "not nan"),
        (
            lambda: Smooth(NumberedImages("known", 3), None, ["a", "a"], note_pair, speed=1),
            "at least 2 corruptions, not a, a",
        ),
        (lambda: Smooth(NumberedImages("known", 3), None, [], note_pair, speed=1), "at least 2 corruptions, not none"),
        *((lambda make=make: make(ratio=-0.1), "at least 0, not -0.1") for make in SCENARIOS.values()),
        *((lambda make=make: make(ratio=float("nan")), "at least 0, not nan") for make in SCENARIOS.values()),
        *((lambda make=make: make(seed=-1), "`seed` must be an integer of at least 0") for make in SCENARIOS.values()),
    ],
)
def test_bad_input_is_a_sentence(make, words: str) -> None:
    with raises("stream-invalid") as problem:
        make()
    assert words in str(problem.value)
    assert str(problem.value)[0] in "`AkDT"
    assert str(problem.value).endswith(".")


# --- memory and making ahead ------------------------------------------------------------------------------------------
@each_scenario
def test_no_image_is_kept(make) -> None:
    for reader, most in ((iter, 1), (lambda stream: prefetched(stream, depth=3), 4)):
        alive: list[weakref.ref] = []
        for sample in reader(make()):
            alive.append(weakref.ref(sample.image))
        del sample
        gc.collect()
        assert sum(image() is not None for image in alive) == 0
        taken = reader(make())
        held = [weakref.ref(next(taken).image) for _ in range(10)]
        gc.collect()
        assert sum(image() is not None for image in held) <= most
        taken.close()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ostta-prefetch"]


@each_scenario
def test_ahead_changes_nothing(make) -> None:
    assert places(prefetched(make())) == places(make())
    assert [np.asarray(s.image).tolist() for s in prefetched(make())] == [np.asarray(s.image).tolist() for s in make()]
    assert not workers()


def test_ahead_raises_in_the_place_of_the_item() -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)
        raise Error("Image 5 cannot be read.", code="image-unreadable")

    items = prefetched(numbers())
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    with raises("image-unreadable"):
        next(items)
    assert not workers()


@pytest.mark.parametrize("depth", [1, 3])
def test_ahead_is_bounded_and_stops_when_left(depth: int) -> None:
    made: list[int] = []
    reached = threading.Event()

    def endless() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            if number == depth + 1:
                reached.set()
            yield number

    items = prefetched(endless(), depth)
    assert [next(items), next(items)] == [0, 1]
    # Two are taken, so `depth` more may be made: the thread gets that far and waits there.
    assert reached.wait(30)
    assert made == list(range(depth + 2))
    items.close()
    assert not workers()
    assert made == list(range(depth + 2))
    # Left without a word, as by an exception in the loop's body.
    items = prefetched(endless(), depth)
    next(items)
    del items
    gc.collect()
    assert not workers()


def test_ahead_that_is_never_read_starts_nothing() -> None:
    items = prefetched(iter(range(3)))
    assert not workers()
    del items
