"""A person's own data: folders looked over, fair samples of them, unknown classes out of the same set, idx files."""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ostta.bench.result import read_result
from ostta.bench.run import run
from ostta.bench.spec import RunSpec, checked_spec, run_key, usual_draw
from ostta.bench.stream import compose
from ostta.bench.suite import expand, read_suite
from ostta.cli.app import app
from ostta.cli.data_check import check_folder, similar_spellings
from ostta.cli.folder_report import lines
from ostta.core.types import Error
from ostta.data import images, open_dataset


def ostta(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    if isinstance(done.exception, Error):
        return 1, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def fill(root: Path, **counts: int) -> Path:
    """A folder with so many images of each class, all different."""
    for number, (name, count) in enumerate(counts.items()):
        folder = root / name
        folder.mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (8 + number, 8), (i % 256, i // 256, number)).save(folder / f"{i:04}.png")
    return root


# --- looking a folder over ------------------------------------------------------------------------------------------
def test_a_good_folder(tmp_path: Path) -> None:
    found = check_folder(fill(tmp_path / "pets", cat=3, sea_cow=2))
    assert [(each.name, each.folder, each.images) for each in found.classes] == [
        ("cat", "cat", 3),
        ("sea cow", "sea_cow", 2),
    ]
    assert (found.images, found.checked, found.problems, found.warnings, found.duplicates) == (5, 5, (), (), ())
    code, text = ostta("data", "check", f"folder:{tmp_path / 'pets'}")
    assert code == 0
    assert "         3 cat\n         2 sea cow\n" in text
    assert f"--desired folder:{tmp_path / 'pets'} --undesired sample:mnist\n" in text.replace("'", "")


def test_everything_that_can_be_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fill(tmp_path / "pets", labrador=12, labrodor=1, cat=2, empty=0)
    (root / "cat" / "bad.png").write_bytes(b"no image")
    (root / "cat" / "notes.doc").write_bytes(b"")
    (root / "cat" / "more").mkdir()
    (root / "cat" / ".hidden").write_bytes(b"")
    (root / "loose.jpg").write_bytes(b"")
    Image.new("RGB", (1100, 1000)).save(root / "cat" / "large.png")
    monkeypatch.setattr(images, "MAX_MEGAPIXELS", 1.0)
    (root / "labrador" / "copy.png").write_bytes((root / "cat" / "0001.png").read_bytes())
    # Of the same size as another file, and not the same.
    one = bytearray((root / "cat" / "0001.png").read_bytes())
    (root / "cat" / "other.png").write_bytes(bytes(one) + b"x")
    (root / "cat" / "third.png").write_bytes(bytes(one) + b"y")
    found = check_folder(root)
    assert [path.name for path, _ in found.unreadable.files] == ["bad.png"]
    assert [path.name for path, _ in found.too_large.files] == ["large.png"]
    assert [[path.name for path in group] for group in found.duplicates] == [["0001.png", "copy.png"]]
    assert found.problems == (
        "The class folder empty has no images.",
        "1 image cannot be read.",
        "1 image over the limit: make them smaller.",
    )
    for words in (
        "1 image beside the class folders",
        "1 folder and 1 file inside class folders",
        "1 image is the same as another one, 1 of the originals in more than one class",
        "imbalanced: 13 images of labrador, 1 of labrodor",
        "'labrador' and 'labrodor' look like two spellings",
    ):
        assert any(words in warning for warning in found.warnings), (words, found.warnings)
    code, text = ostta("data", "check", f"folder:{root}")
    assert code == 1
    assert "bad.png" in text
    assert "look again: ostta data check" in text
    assert "has 1100 x 1000 pixels" in text


def test_many_empty_folders_are_one_sentence_with_a_whole_name(tmp_path: Path) -> None:
    for tree in ("maple tree", "oak tree", "palm tree", "pine tree", "willow tree", "ash_tree"):
        (tmp_path / tree).mkdir()
    (problem,) = check_folder(tmp_path).problems
    assert problem == "6 class folders have no images, such as ash_tree."
    (tmp_path / "ash_tree").rename(tmp_path / "zelkova")
    assert check_folder(tmp_path).problems == ("6 class folders have no images, such as maple tree.",)


def test_names_that_are_one_class(tmp_path: Path) -> None:
    problems = check_folder(fill(tmp_path / "pets", sea_cow=1, **{"sea cow": 1})).problems
    assert len(problems) == 1
    assert "are the same" in problems[0]


def test_the_limit_draws_from_every_class_and_says_so(tmp_path: Path) -> None:
    root = fill(tmp_path / "pets", a=30, b=30, c=2)
    seen: list[tuple[int, int]] = []
    found = check_folder(root, 12, lambda done, total: seen.append((done, total)))
    assert (found.images, found.checked) == (62, 12)
    assert seen == [(number, 12) for number in range(1, 13)]
    # A damaged image of a small class is found, although the first twelve by name are all of another.
    (root / "c" / "0000.png").write_bytes(b"")
    assert check_folder(root, 12).unreadable.count == 1
    assert any("12, drawn evenly over the classes; --limit 62 looks at all" in line for line in lines(found))


def test_a_folder_of_images_alone(tmp_path: Path) -> None:
    fill(tmp_path, photos=2)
    code, text = ostta("data", "check", f"folder:{tmp_path / 'photos'}")
    assert code == 0
    assert "none: images alone" in text
    assert "ostta stream" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["folder:{}/nowhere"], "There is no folder"),
        (["folder:{}"], "has neither images nor folders"),
        (["folder:{}", "--limit", "0"], "it must be 1 or more"),
        (["sample:mnist", "--limit", "5"], "--limit is for a folder of your own"),
    ],
)
def test_a_check_that_cannot_be(tmp_path: Path, arguments: list[str], words: str) -> None:
    code, text = ostta("data", "check", *(each.format(tmp_path) for each in arguments))
    assert code == 1
    assert words in text


def test_spellings() -> None:
    assert similar_spellings(
        ["cat", "cow", "boat", "goat", "class 10", "class 11", "Jack-o-lantern", "jack o lantern"]
    ) == [("Jack-o-lantern", "jack o lantern")]
    assert similar_spellings(["aeroplane", "airplane", "giraffe", "girafe"]) == [("giraffe", "girafe")]
    assert similar_spellings([f"thing number {number}" for number in range(2_000)]) == []


# --- a limit on one's own set ------------------------------------------------------------------------------------------
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
        assert usual_draw(fields) == wanted, fields


def test_a_limited_run_on_a_folder_has_all_classes(tmp_path: Path) -> None:
    root = fill(tmp_path / "pets", cat=10, dog=10, ship=10)
    command = ("run", "--method", "zero_shot", "--desired", f"folder:{root}", "--ratio", "0", "--limit", "6")
    code, text = ostta(*command, "--out", str(tmp_path / "out"), "--records")
    assert code == 0
    assert "pets: 6 of 30 images, drawn by seed 0, as many of each class as there can be." in text
    spec = read_result(next((tmp_path / "out").glob("*.json"))).spec
    assert Counter(sample.label for sample in shown(**spec.model_dump())) == {0: 2, 1: 2, 2: 2}
    # What such a run meant before is still there, as another run, and says what it is.
    code, text = ostta(*command, "--draw", "order", "--out", str(tmp_path / "out"))
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


# --- unknown classes out of the same set ----------------------------------------------------------------------------------
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
    code, text = ostta(
        "run", "--method", "zero_shot", "--desired", pets, "--undesired-classes", "bird, sea cow", "--score", "msp", "--limit", "4", "--out", str(out)
    )  # fmt: skip
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
            "has no class 'ferret' for the undesired side: it has bird, cat, dog, sea cow (4)",
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
    code, text = ostta("run", "--desired", pets, "--undesired", "sample:mnist", "--undesired-classes", "cat")
    assert code == 1
    assert "not both" in text


# --- idx files ---------------------------------------------------------------------------------------------------------
def write_idx(folder: Path, pixels: np.ndarray, labels: list[int], name: str = "mine-images-idx3-ubyte") -> Path:
    path = folder / name
    path.write_bytes(struct.pack(">IIII", 2051, *pixels.shape) + pixels.astype(np.uint8).tobytes())
    beside = name.replace("images", "labels").replace("idx3", "idx1")
    (folder / beside).write_bytes(struct.pack(">II", 2049, len(labels)) + bytes(labels))
    return path


def test_an_idx_file_of_ones_own(tmp_path: Path) -> None:
    pixels = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    path = write_idx(tmp_path, pixels, [1, 0, 1])
    dataset = open_dataset(f"idx:{path}", classes=["ring", "star"])
    assert (dataset.origin, dataset.labels.tolist(), dataset.classes) == ("idx", [1, 0, 1], ("ring", "star"))
    assert np.array_equal(np.asarray(dataset.image(2))[..., 0], pixels[2])
    assert open_dataset(f"idx:{path}", named=False).classes == ("0", "1")
    assert open_dataset(f"idxc:{path}", named=False, corruption="contrast").origin == "generated"
    code, text = ostta("data", "check", f"idx:{path}")
    assert code == 0
    assert "5 x 4 pixels" in text
    assert RunSpec(desired=f"idx:{path.parent / '.' / path.name}").desired == f"idx:{path}"
    assert any(row.startswith("idx:PATH") for row in ostta("ls", "datasets")[1].splitlines())


def test_idx_files_that_cannot_be_read(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 4))
    good = write_idx(tmp_path, pixels, [0, 1])
    write_idx(tmp_path, pixels[:0], [], "none-images-idx3-ubyte")
    write_idx(tmp_path, pixels, [0], "few-images-idx3-ubyte")
    (tmp_path / "plain").write_bytes(good.read_bytes())
    huge = tmp_path / "huge-images-idx3-ubyte"
    huge.write_bytes(struct.pack(">IIII", 2051, *[2**32 - 1] * 3))
    (tmp_path / "huge-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 0))
    for name, words in (
        ("idx:nowhere-images-idx3-ubyte", "There is no idx file 'nowhere-images-idx3-ubyte'"),
        (f"idx:{tmp_path}", "mine-images-idx3-ubyte"),
        (f"idx:{tmp_path / 'plain'}", "The file of labels of"),
        (f"idx:{tmp_path / 'few-images-idx3-ubyte'}", "has 2 images, but 'few-labels-idx1-ubyte' has 1 labels"),
        (f"idx:{tmp_path / 'none-images-idx3-ubyte'}", "none-images-idx3-ubyte' "),
        (f"idx:{huge}", "its header promises"),
        (f"idx:{good}", "The class names of"),
    ):
        with pytest.raises(Error) as caught:
            open_dataset(name)
        assert words in str(caught.value), name
    assert json.dumps(str(caught.value))
