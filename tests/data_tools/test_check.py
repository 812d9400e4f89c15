"""`ostta data`, the counts of the paper, the documentation, and class names that meet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from helpers.command import output
from helpers.errors import raises
from helpers.paths import ROOT
from ostta.data.catalogue import CATALOGUE
from ostta.data.class_names import class_list
from ostta.data.names import parse_name
from ostta.data.overlap import Overlap, overlap, overlap_sentence
from ostta.data_tools.check import check_dataset, expected_of

# The paper's table of data sets (desired side), read off by eye.
PAPER_TABLE = {
    "cifar10c": 10_000,
    "cifar100c": 10_000,
    "imagenetc": 50_000,
    "imagenetr": 30_000,
    "visda": 50_000,
    "domainnet_clipart": 29_208,
    "domainnet_painting": 43_700,
    "domainnet_sketch": 41_832,
}


def make_visda(root: Path) -> Path:
    lines = []
    for label, name in enumerate(class_list("visda").names[:11]):
        folder = root / "visda" / "validation" / name
        folder.mkdir(parents=True)
        Image.new("RGB", (40, 30), (label, 0, 0)).save(folder / "a.png")
        lines.append(f"{name}/a.png {label}")
    (root / "visda" / "validation" / "image_list.txt").write_text("\n".join(lines))
    return root


def test_check(tmp_path: Path) -> None:
    make_visda(tmp_path)
    code, text = output("data", "check", "visda", "--data", str(tmp_path))
    assert code == 0
    for line in (
        r"images +11 \(official 55,388; in the paper 50,000\)",
        r"classes +12: aeroplane, bicycle, bus, car, horse, \.\.\.",
        r"origin +list",
        r"layout +.*visda/validation/image_list\.txt",
        r"first +40 x 30 pixels, class \w+",
        r"paper +the paper takes 50,000 of the 55,388",
        r"Warning: There are 11 images instead of the expected 55,388\.",
        r"Warning: 1 of the 12 classes have no image, such as truck\.",
    ):
        assert re.search(line, text.replace("\n", " ") if "layout" in line else text), line
    (tmp_path / "visda" / "validation" / "bus" / "a.png").unlink()
    code, text = output("data", "check", "visda", "--data", str(tmp_path))
    assert code == 1
    assert re.search(r"'visda' cannot be used: 1 of its 11 image files are missing, the first is '.*bus/a\.png'", text)


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    for name, words in (
        ("imagenetr", "ROOT/imagenet-r"),
        ("nonsense", "no data set 'nonsense'"),
        ("mnist:extra", "no split 'extra'"),
    ):
        code, text = output("data", "check", name, "--data", str(tmp_path))
        assert code == 1
        assert words in text
    code, text = output("data", "check", "sample:cifar10c", "--corruption", "fog", "--severity", "3")
    assert code == 0
    assert "fog, severity 3" in text
    assert "Warning" not in text


def test_a_damaged_image_is_found(tmp_path: Path) -> None:
    make_visda(tmp_path)
    for path in (tmp_path / "visda").rglob("a.png"):
        path.write_bytes(b"no image")
    with raises("image-unreadable"):
        check_dataset("visda", tmp_path)


def test_get_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSTTA_DATA", raising=False)
    code, text = output("data", "get", "mnist")
    assert code == 1
    assert "There is no folder to write to" in text


def test_get_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "imagenet-r").mkdir()
    code, text = output("data", "get", "imagenetr", "--data", str(tmp_path))
    assert code == 0
    assert "already" in text


def test_the_counts_of_the_paper() -> None:
    for name, images in PAPER_TABLE.items():
        expected = expected_of(parse_name(name))
        assert expected is not None
        assert expected.paper == images
        # Wherever the two numbers differ, somebody says why.
        assert expected.remark or expected.paper == expected.official, name
    for domain in ("clipart", "painting", "sketch"):
        expected = CATALOGUE[f"domainnet_{domain}"].splits["test"].expected
        assert expected.paper == 2 * expected.official
    svhn = CATALOGUE["svhn"].splits
    assert (svhn["train"].expected.official, svhn["test"].expected.official) == (73_257, 26_032)
    assert (svhn["train"].expected.paper, svhn["test"].expected.paper) == (50_000, 10_000)
    assert "50,000 once" in CATALOGUE["imagenetr"].splits["test"].expected.remark
    assert expected_of(parse_name("mnistc:train")) == CATALOGUE["mnist"].splits["train"].expected
    assert expected_of(parse_name("folder:x")) is None


def test_the_documentation_has_the_same_numbers() -> None:
    text = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = cells
    published = {f"{name}c" for name, entry in CATALOGUE.items() if entry.published}
    assert set(rows) == set(CATALOGUE) | published
    for name, (_, splits, classes, places) in rows.items():
        parsed = parse_name(name)
        entry, expected = CATALOGUE[parsed.base], expected_of(parsed)
        assert expected is not None
        assert classes == f"{len(class_list(entry.classes).names):,}"
        if name == "ccc":
            assert splits == f"{len(entry.splits)} sequences of 7,500,000 each"
        elif parsed.corrupted:
            assert splits == f"{next(iter(entry.splits))} {expected.official:,}"
        else:
            assert splits == " · ".join(f"{split} {part.expected.official:,}" for split, part in entry.splits.items())
            assert entry.splits[next(iter(entry.splits))].layouts[0].path.rstrip("/") in places


def test_class_lists() -> None:
    for name in {entry.classes for entry in CATALOGUE.values()}:
        names, folders = class_list(name)
        assert len(names) == len(folders) == len({spoken.lower() for spoken in names})
    # A few that everybody knows, by their official label.
    imagenet = class_list("imagenet").names
    assert (imagenet[207], imagenet[281], imagenet[388]) == ("Golden Retriever", "tabby cat", "giant panda")
    assert class_list("cifar100").names[47] == "maple tree"


def test_names_that_meet() -> None:
    found = overlap(
        ["cat", "Fire_Truck", "glass", "bus", "t-shirt", "berry"],
        ["cats", "tiger cat", "firetruck", "glasses", "buses", "T_shirts", "berries", "caterpillar", "truck"],
    )
    assert found == [
        Overlap("cat", "cats", "exact"),
        Overlap("cat", "tiger cat", "similar"),
        Overlap("Fire_Truck", "firetruck", "exact"),
        Overlap("Fire_Truck", "truck", "similar"),
        Overlap("glass", "glasses", "exact"),
        Overlap("bus", "buses", "exact"),
        Overlap("t-shirt", "T_shirts", "exact"),
        Overlap("berry", "berries", "exact"),
    ]
    assert overlap(["dog", "bus"], ["hot", "us", "doge", "bu"]) == []
    assert overlap(["0", "1"], ["0", "10"]) == [Overlap("0", "0", "exact")]


def test_the_papers_own_pairs_of_sets() -> None:
    # CIFAR-10 against CIFAR-100: the one pair that the two lists' makers did not keep apart.
    assert overlap(class_list("cifar10").names, class_list("cifar100").names) == [
        Overlap("truck", "pickup truck", "similar")
    ]
    assert overlap(class_list("cifar10").names, class_list("tiny_imagenet20").names) == []
    assert overlap(class_list("cifar100").names, class_list("digits").names) == []


def test_the_sentence_about_them() -> None:
    assert overlap_sentence([]) == ""
    many = [Overlap("a", str(number), "similar") for number in range(9)]
    text = overlap_sentence([Overlap("cat", "cats", "exact"), *many])
    assert text.endswith(": exact cat = cats; similar a ~ 0, a ~ 1, a ~ 2, a ~ 3, a ~ 4 and 4 more.")
    assert text.count(".") == 1
