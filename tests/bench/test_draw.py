"""Seeds that draw which images come, and not only their order."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from helpers.command import ostta as command
from helpers.errors import raises
from helpers.image_sets import NumberedImages
from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.spec import RunSpec, run_key
from ostta.bench.stream import compose
from ostta.bench.suite import expand, read_suite
from ostta.data import by_name
from ostta.data.by_name import open_dataset
from ostta.data.corruptions import corrupt
from ostta.streams import SingleDomain, Stream, draw


def spec(**fields) -> RunSpec:
    given = {"method": "zero_shot", "desired": "sample:cifar10c", "undesired": "sample:mnist", "limit": 40, **fields}
    return RunSpec(**{"draw": "images", **given})


def stream(**fields) -> Stream:
    return compose(spec(**fields), None).stream


def unread(domain: int, known: bool, number: int) -> bool:
    return False


def numbers(made: Stream, desired: bool) -> list[int]:
    return [sample.index for sample in made.starting_at(0, unread) if (sample.label >= 0) == desired]


# --- drawing ----------------------------------------------------------------------------------------------------------
def test_classes_are_balanced_as_far_as_they_reach() -> None:
    source = NumberedImages("known", 31)  # labels 0, 1, 2, 0, ...: eleven of class 0, ten each of the others
    for wanted in (3, 7, 12, 30):
        taken = draw(source, wanted, 5, desired=True)
        assert len(set(taken.numbers)) == wanted == len(taken)
        assert list(taken.numbers) == sorted(taken.numbers)
        counts = Counter(taken.labels.tolist()).values()
        assert max(counts) - min(counts) <= 1
    assert draw(source, 100, 5, desired=True).numbers.tolist() == list(range(31))
    assert len(draw(source, 0, 5, desired=False)) == 0


def test_a_class_with_few_images_gives_all_it_has() -> None:
    source = NumberedImages("known", 20)
    source.__class__ = type(
        "Uneven", (NumberedImages,), {"labels": property(lambda self: np.array([0] * 17 + [1] * 3))}
    )
    taken = draw(source, 10, 0, desired=True)
    assert Counter(taken.labels.tolist()) == {0: 7, 1: 3}


def test_a_smaller_draw_is_part_of_a_larger_one_and_other_seeds_draw_others() -> None:
    source = NumberedImages("known", 90)
    small, large = (set(draw(source, count, 3, desired=True).numbers) for count in (20, 50))
    assert small < large
    assert set(draw(source, 50, 4, desired=True).numbers) != large
    assert set(draw(source, 50, 3, desired=False).numbers) != large


def test_numbers_and_pixels_are_those_of_the_whole_set() -> None:
    source = NumberedImages("known", 90)
    taken = draw(source, 10, 1, desired=True)
    made = SingleDomain(taken, draw(NumberedImages("unknown", 50, 7), 5, 1, desired=False), ratio=0.5, seed=1)
    for sample in made:
        assert sample.image.getpixel((0, 0))[1] == sample.index
        assert sample.label in (-1, sample.index % 3)
    assert sorted(source.reads) == taken.numbers.tolist()
    assert made.hash != SingleDomain(NumberedImages("known", 10), NumberedImages("unknown", 5), ratio=0.5, seed=1).hash


# --- as a run asks for it ---------------------------------------------------------------------------------------------
def test_keys_and_files_of_runs_that_draw_the_order_stay_as_they_were() -> None:
    plain = RunSpec(method="zero_shot", limit=40)
    assert "draw" not in plain.model_dump()
    assert "score" not in plain.model_dump()
    assert run_key(plain) == run_key(RunSpec(method="zero_shot", limit=40, draw="order"))
    # As it was before there was a choice.
    assert run_key(RunSpec()) == "36cf60c21ceb"
    assert run_key(plain) != run_key(RunSpec(method="zero_shot", limit=40, draw="images"))
    assert json.loads(spec().model_dump_json())["draw"] == "images"


def test_seeds_share_some_images_and_not_their_order() -> None:
    made = [stream(seed=seed) for seed in (0, 1, 0)]
    assert made[0].hash == made[2].hash != made[1].hash
    for desired in (True, False):
        drawn = [numbers(each, desired) for each in made]
        assert drawn[0] == drawn[2] != sorted(drawn[0])
        assert len(set(drawn[0])) == 40
        assert set(drawn[0]) != set(drawn[1])
    ordered = stream(draw="order")
    assert sorted(numbers(ordered, True)) == list(range(40))
    assert ordered.hash != made[0].hash


def test_the_pixels_are_those_of_the_numbered_image_under_the_corruption() -> None:
    clean = open_dataset("sample:cifar10")
    for sample in list(stream(limit=5, ratio=0.0, undesired=None)):
        expected = corrupt(np.asarray(clean.image(sample.index)), "snow", 5, seed=0, index=sample.index)
        assert np.array_equal(np.asarray(sample.image), expected)
        assert sample.label == clean.labels[sample.index]


def test_every_corruption_has_the_same_images() -> None:
    assert numbers(stream(corruption="fog"), True) == numbers(stream(corruption="snow"), True)
    made = stream(scenario={"kind": "continual", "corruptions": ["snow", "fog"]}, limit=6)
    by_domain = [{s.index for s in made.starting_at(0, unread) if s.domain == d and s.label >= 0} for d in (0, 1)]
    assert by_domain[0] == by_domain[1]
    assert by_domain[0] != set(range(6))


@pytest.mark.parametrize(
    "scenario",
    [
        {"kind": "frequent", "images": 3, "corruptions": ["snow", "fog"]},
        {"kind": "smooth", "speed": 2, "corruptions": ["snow", "fog"]},
        {"kind": "smooth", "speed": 2, "cells": 6, "corruptions": ["snow", "fog"]},
    ],
)
def test_other_scenarios_draw_too(scenario: dict) -> None:
    made, other = (stream(scenario=scenario, limit=8, seed=seed) for seed in (0, 1))
    assert set(numbers(made, True)) != set(numbers(other, True))
    assert len(set(numbers(made, True))) == 8
    assert made.short_of == 0


def test_a_set_with_an_order_of_its_own_is_not_drawn_from() -> None:
    with raises("scenario-invalid"):
        stream(scenario={"kind": "ordered"})


def test_too_few_unknown_images_are_all_taken() -> None:
    made = stream(limit=600, ratio=2.0)
    assert (made.desired_count, made.undesired_count, made.short_of) == (600, 1000, 200)


def test_the_result_says_so(tmp_path: Path) -> None:
    result = read_result(run(spec(limit=6), None, tmp_path, keep_records=True))
    assert (result.stream.draw, result.spec.draw) == ("images", "images")
    assert (
        "sample:cifar10c: 6 of 1,000 images, drawn by seed 0, as many of each class as there can be." in result.remarks
    )
    assert '"draw": "images"' in next(tmp_path.glob("*.json")).read_text()
    before = read_result(run(spec(limit=6, draw="order"), None, tmp_path))
    assert before.stream.draw == "order"
    assert "draw" not in before.model_dump()["stream"]


def test_the_command_takes_it(tmp_path: Path) -> None:
    given = [
        "run",
        "--method",
        "zero_shot",
        "--desired",
        "sample:cifar10c",
        "--undesired",
        "sample:mnist",
        "--limit",
        "4",
    ]
    done = command(*given, "--draw", "images", "--out", str(tmp_path))
    assert done.returncode == 0
    assert "4 of 1,000 images, drawn by seed 0" in done.stdout
    done = command(*given, "--draw", "some", "--out", str(tmp_path))
    assert done.returncode != 0
    assert "draw" in done.stderr


def test_two_sides_of_one_set_have_each_what_they_ask_for() -> None:
    """The first images of the desired side must not become all that the other one has."""
    both = compose(spec(undesired="sample:cifar10c", draw="order", limit=10, ratio=3.0), None).stream
    assert len(set(numbers(both, desired=True))) == 10
    assert len(set(numbers(both, desired=False))) == 30


# --- orders -----------------------------------------------------------------------------------------------------------
def test_orders_show_the_same_images_in_another_order(tmp_path: Path) -> None:
    first, second = (compose(spec(draw="orders", seed=seed), None).stream for seed in (0, 1))
    for side in (True, False):
        assert sorted(numbers(first, side)) == sorted(numbers(second, side))
        assert numbers(first, side) != numbers(second, side)
    # The corruption is that of seed 0 in every order.
    pixels = [
        {sample.index: np.asarray(sample.image) for sample in made if sample.label >= 0} for made in (first, second)
    ]
    assert all((pixels[0][number] == pixels[1][number]).all() for number in pixels[0])
    plain = {sample.index: np.asarray(sample.image) for sample in stream(draw="order", seed=1) if sample.label >= 0}
    assert any((pixels[1][number] != plain[number]).any() for number in plain)
    # A set of one's own is drawn from all classes, by seed 0, as it is without `draw`.
    own = f"parquet:{Path(by_name.__file__).parent / 'sample' / 'cifar10.parquet'}"
    drawn, again = (numbers(stream(desired=own, draw=how, seed=s), True) for how, s in (("images", 0), ("orders", 3)))
    assert sorted(drawn) == sorted(again) != list(range(40))


def test_a_suite_and_a_command_ask_for_orders(tmp_path: Path) -> None:
    text = 'orders = 3\nlimit = 5\n[base]\ndesired = "sample:cifar10c"\n[axes]\nmethod = ["zero_shot"]\n'
    (tmp_path / "orders.toml").write_text(text)
    cells = expand(read_suite(tmp_path / "orders.toml", "orders.toml"))
    assert [(cell.spec.seed, cell.spec.draw) for cell in cells] == [(0, "orders"), (1, "orders"), (2, "orders")]
    (tmp_path / "both.toml").write_text(f"seeds = [4]\n{text}")
    with raises("suite-invalid"):
        read_suite(tmp_path / "both.toml", "both.toml")
    done = command("run", "--orders", "2", "--seeds", "1,2")
    assert done.returncode == 1
    assert "leave out --seed, --seeds and --draw" in done.stderr
