"""Folders of images are checked: unreadable, oversized and duplicate images, and problems with the classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from helpers.command import output
from helpers.image_sets import fill
from ostta.cli.data_check import folder_lines
from ostta.data import images
from ostta.data_tools.check import check_folder, similar_spellings


def test_a_good_folder(tmp_path: Path) -> None:
    found = check_folder(fill(tmp_path / "pets", cat=3, sea_cow=2))
    assert [(each.name, each.folder, each.images) for each in found.classes] == [
        ("cat", "cat", 3),
        ("sea cow", "sea_cow", 2),
    ]
    assert (found.images, found.checked, found.problems, found.warnings, found.duplicates) == (5, 5, (), (), ())
    code, text = output("data", "check", f"folder:{tmp_path / 'pets'}")
    assert code == 0
    assert "         3 cat\n         2 sea cow\n" in text
    assert f"--desired folder:{tmp_path / 'pets'} --undesired sample:mnist\n" in text.replace("'", "")


@pytest.mark.parametrize(
    ("classes", "backbone"),
    [
        (("dog", "grand_piano"), "photos"),
        (("dog", "Tante Erna"), "openai/clip-vit-base-patch16"),
    ],
)
def test_the_next_command_names_the_backbone_that_knows_the_classes(
    tmp_path: Path, classes: tuple[str, ...], backbone: str
) -> None:
    found = check_folder(fill(tmp_path / "mine", **dict.fromkeys(classes, 2)))
    assert f"ostta run --backbone {backbone} " in folder_lines(found)[-1]


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
    code, text = output("data", "check", f"folder:{root}")
    assert code == 1
    assert "bad.png" in text
    assert "fix the problems, then repeat: ostta data check" in text
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
    assert any("12, drawn evenly from the classes; --limit 62 checks all" in line for line in folder_lines(found))


def test_a_folder_of_images_alone(tmp_path: Path) -> None:
    fill(tmp_path, photos=2)
    code, text = output("data", "check", f"folder:{tmp_path / 'photos'}")
    assert code == 0
    assert "none, only images" in text
    assert "ostta stream" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["folder:{}/nowhere"], "There is no folder"),
        (["folder:{}"], "has neither images nor folders"),
        (["folder:{}", "--limit", "0"], "it must be 1 or more"),
        (["sample:mnist", "--limit", "5"], "--limit applies to folder:PATH only"),
    ],
)
def test_a_check_that_cannot_be(tmp_path: Path, arguments: list[str], words: str) -> None:
    code, text = output("data", "check", *(each.format(tmp_path) for each in arguments))
    assert code == 1
    assert words in text


def test_spellings() -> None:
    assert similar_spellings(
        ["cat", "cow", "boat", "goat", "class 10", "class 11", "Jack-o-lantern", "jack o lantern"]
    ) == [("Jack-o-lantern", "jack o lantern")]
    assert similar_spellings(["aeroplane", "airplane", "giraffe", "girafe"]) == [("giraffe", "girafe")]
    assert similar_spellings([f"thing number {number}" for number in range(2_000)]) == []
