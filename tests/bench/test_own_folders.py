"""Runs on user folders: balanced samples of them, and unknown classes from the same set."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.command import output
from helpers.image_sets import fill
from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.spec import RunSpec, checked_spec, default_draw, run_key
from ostta.bench.stream import compose
from ostta.bench.suite import expand, read_suite
from ostta.core.types import Error
from ostta.data import open_dataset


# --- a limit on one's own set -----------------------------------------------------------------------------------------
def shown(**fields: Any) -> list[Any]:
    stream = compose(RunSpec(**{"undesired": None, "ratio": 0.0, **fields}), None).stream
    return list(stream.starting_at(0, lambda domain, known, number: False))


def test_what_is_drawn_where_nobody_says_so() -> None:
    ordered = {"kind": "ordered"}
    domains = {"kind": "domains", "domains": [{"desired": "folder:x"}]}
    for fields, wanted in (
        ({"desired": "folder:x", "limit": 5}, "images"),
        ({"desired": "folderc:x", "limit": 5}, "images"),
        ({"desired": "parquet:x", "limit": 5}, "images"),
        ({"scenario": domains, "limit": 5}, "images"),
        ({"desired": "folder:x"}, "order"),
        ({"desired": "folder:x", "limit": 5, "scenario": ordered}, "order"),
        ({"desired": "cifar10c", "undesired": "folder:x", "limit": 5}, "order"),
        ({"desired": "sample:cifar10", "limit": 5}, "order"),
    ):
        assert default_draw(fields) == wanted, fields


def test_a_limited_run_on_a_folder_has_all_classes(tmp_path: Path) -> None:
    root = fill(tmp_path / "pets", cat=10, dog=10, ship=10)
    command = ("run", "--method", "zero_shot", "--desired", f"folder:{root}", "--ratio", "0", "--limit", "6")
    code, text = output(*command, "--out", str(tmp_path / "out"), "--records")
    assert code == 0
    assert "pets: 6 of 30 images, drawn by seed 0, as many of each class as there can be." in text
    spec = read_result(next((tmp_path / "out").glob("*.json"))).spec
    assert Counter(sample.label for sample in shown(**spec.model_dump())) == {0: 2, 1: 2, 2: 2}
    # What such a run meant before is still there, as another run, and says what it is.
    code, text = output(*command, "--draw", "order", "--out", str(tmp_path / "out"))
    assert "the first 6 images are of 1 of its 3 classes; --draw images takes some of each." in text
    first = RunSpec(desired=f"folder:{root}", limit=6)
    assert run_key(first) != run_key(RunSpec(desired=f"folder:{root}", limit=6, draw="images"))
    assert {sample.label for sample in shown(desired=f"folder:{root}", limit=6)} == {0}


def test_suites_draw_too_unless_they_say_otherwise(tmp_path: Path) -> None:
    text = """title = "t"
what = "w"
labels = []
rows = ["method"]
metrics = ["hm"]
limit = 5
[base]
desired = "{}"
{}
[axes]
method = ["zero_shot"]
"""
    path = tmp_path / "mine.toml"
    for desired, more, draw in (
        ("folder:pets", "", "images"),
        ("folder:pets", 'draw = "order"', "order"),
        ("cifar10c", "", "order"),
    ):
        path.write_text(text.format(desired, more))
        assert [cell.spec.draw for cell in expand(read_suite(path, str(path)))] == [draw]


# --- unknown classes out of the same set ------------------------------------------------------------------------------
@pytest.fixture
def pets(tmp_path: Path) -> str:
    return f"folder:{fill(tmp_path / 'pets', bird=4, cat=4, dog=4, sea_cow=4)}"


def split(name: str, unknown: list[str], **fields: Any) -> Any:
    return compose(RunSpec(desired=name, undesired=name, undesired_classes=unknown, **fields), None)


def test_the_rest_is_desired(pets: str) -> None:
    made = split(pets, ["cat", "sea cow"])
    assert made.classes == ("bird", "dog")
    assert (made.stream.desired_count, made.stream.undesired_count) == (8, 8)
    whole = open_dataset(pets)
    for sample in made.stream:
        # An image is named by its number in the whole folder, and is the image of that number.
        name = whole.classes[whole.labels[sample.index]]
        assert (name in ("cat", "sea cow")) == (sample.label < 0)
        assert sample.label < 0 or made.classes[sample.label] == name
        assert np.array_equal(np.asarray(sample.image), np.asarray(whole.image(sample.index)))


def test_with_classes_only_those_are_desired_in_their_order(pets: str) -> None:
    made = split(pets, ["bird"], classes=["sea_cow", "cat"])
    assert made.classes == ("sea_cow", "cat")
    assert (made.stream.desired_count, made.stream.undesired_count) == (8, 4)
    assert {sample.image.size for sample in made.stream if sample.label == 0} == {(11, 8)}


@pytest.mark.parametrize("draw", ["order", "images"])
def test_a_limit_counts_the_desired_ones(pets: str, draw: str) -> None:
    made = split(pets, ["bird"], limit=3, draw=draw)
    assert (made.stream.desired_count, made.stream.undesired_count) == (3, 3)
    labels = {sample.label for sample in made.stream if sample.label >= 0}
    assert labels == ({0} if draw == "order" else {0, 1, 2})


@pytest.mark.parametrize("kind", ["continual", "smooth", "ordered"])
def test_in_other_scenarios_and_under_corruption(pets: str, kind: str) -> None:
    name = pets if kind == "ordered" else pets.replace("folder:", "folderc:")
    some = {} if kind == "ordered" else {"corruptions": ["brightness", "contrast"]}
    made = split(name, ["dog"], scenario={"kind": kind, **some})
    assert made.classes == ("bird", "cat", "sea cow")
    samples = list(made.stream.starting_at(0, lambda domain, known, number: False))
    assert {sample.index // 4 for sample in samples if sample.label < 0} == {2}
    assert {sample.index // 4 for sample in samples if sample.label >= 0} == {0, 1, 3}


def test_a_named_set_can_be_split_too() -> None:
    made = split("sample:cifar10", ["cat", "dog"], limit=20)
    assert len(made.classes) == 8
    assert made.stream.desired_count == 20


def test_the_command_and_its_result(pets: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text = output(
        "run",
        "--method",
        "zero_shot",
        "--desired",
        pets,
        "--undesired-classes",
        "bird, sea cow",
        "--score",
        "msp",
        "--limit",
        "4",
        "--out",
        str(out),
    )
    assert code == 0, text
    assert "pets, undesired classes: 4 of 8 images" in text
    result = read_result(next(out.glob("*.json")))
    assert result.spec.undesired_classes == ["bird", "sea cow"]
    assert (result.stream.desired.classes, result.stream.undesired.classes) == (2, 2)
    assert run(result.spec, None, out) == next(out.glob("*.json"))


def test_a_run_without_them_has_the_key_that_it_always_had() -> None:
    assert run_key(RunSpec(undesired_classes=None)) == run_key(RunSpec())
    assert "undesired_classes" not in RunSpec().model_dump()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"undesired_classes": ["ferret"]},
            "has no class 'ferret' for the undesired side: it has 4 classes (bird, cat, dog, ...)",
        ),
        ({"undesired_classes": ["bird", "cat", "dog", "sea cow"]}, "leave at least one known class"),
        ({"undesired_classes": ["cat"], "classes": ["cat", "dog"]}, "named for both sides"),
        ({"undesired_classes": []}, "at least one name"),
        ({"undesired_classes": ["cat"], "undesired": "sample:mnist"}, "give no other undesired set"),
    ],
)
def test_unknown_classes_that_cannot_be(pets: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Error) as caught:
        compose(checked_spec(**{"desired": pets, "undesired": pets, **fields}), None)
    assert words in str(caught.value)


def test_two_ways_to_name_unknown_images(pets: str) -> None:
    code, text = output("run", "--desired", pets, "--undesired", "sample:mnist", "--undesired-classes", "cat")
    assert code == 1
    assert "Give either --undesired" in text
