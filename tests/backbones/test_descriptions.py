"""Descriptions of classes.

Files and dictionaries of them, what becomes of them in a classifier, states, results and commands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import normalize
from typer.testing import CliRunner

import ostta
from helpers.cases import backbone
from helpers.errors import raises
from ostta.backbones import ReadsPrompts
from ostta.bench.result import read_result
from ostta.cli.app import app
from ostta.data.class_names import described, parse_classes
from ostta.live.state_keeper import AdapterSettings, open_adapter
from ostta.state import read_state

PROMPTS = {"cat": ["a photo of a house cat", "a photo of a small cat"], "dog": [], "ship": ["a photo of a ship."]}
LINES = ("cat: a photo of a house cat; a photo of a small cat", "ship: a photo of a ship.")
TEMPLATES = ("a photo of a {}.", "a {} in the snow.")


def load(classes: Any, **options: Any) -> ostta.Adapter:
    return ostta.load(backbone("embedded"), classes, method=options.pop("method", "zero_shot"), **options)


# --- reading them ---------------------------------------------------------------------------------------------------
def test_files_and_texts(tmp_path: Path) -> None:
    text, listed = tmp_path / "classes.txt", tmp_path / "classes.json"
    text.write_text(
        "cat: a photo of a house cat;a photo of a small cat ;\n\n dog\nship:  a photo of a ship.\n",
        encoding="utf-8-sig",
    )
    listed.write_text(json.dumps(PROMPTS))
    for source in (text, listed, json.dumps(PROMPTS)):
        assert parse_classes(source) == PROMPTS
    assert described(PROMPTS) == (("cat", "dog", "ship"), LINES)
    assert described({"cat": "a kitten", "dog": ()}) == (("cat", "dog"), ("cat: a kitten",))
    assert described(["cat", "dog"]) == (("cat", "dog"), ())
    # Colons without a space, in a file without descriptions, and any colon in a JSON list, are part of a name.
    text.write_text("16:9\n4:3\n")
    assert parse_classes(text) == ["16:9", "4:3"]
    assert parse_classes('["cat: the pet", "dog"]') == ["cat: the pet", "dog"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("cat:\ndog", "'cat' has a colon but no description"),
        ("cat: ;;\ndog", "'cat' has a colon but no description"),
        ("cat: a kitten\ndog:a puppy", "'dog:a puppy'"),
        ("cat: a kitten\ncat: a cat", "'cat' is listed twice"),
        ("cat: a kitten\nCat: a cat", "are the same"),
        (": a kitten\ndog", "not empty"),
        ("cat: a pet\ndog: A  pet", "'cat' and 'dog' have the same descriptions"),
        ("cat: a pet; A pet\ndog", "the same description twice"),
        ("cat: " + "a kitten " * 2_000, "at most 10,000"),
        ('{"cat": ["a"], "cat": ["b"]}', "'cat' is listed twice"),
        ('{"cat": 5}', "an object from names to lists of descriptions"),
        ('{"cat": [5]}', "an object from names to lists of descriptions"),
        ('{"cat": [""]}', "that is not empty"),
        ('{"cat": ["a; b"]}', "a semicolon"),
        ('{"cat": ["a\\nb"]}', "line break"),
        ('{"cat": ["\\ud800"]}', "must be valid Unicode"),
        ('{"a: b": ["c"]}', "remove the colon"),
        ("{}", "at least one name"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / ("c.json" if content.startswith("{") else "c.txt")
    file.write_text(content, encoding="utf-8")
    with raises("classes-invalid") as caught:
        parse_classes(file)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_too_many_classes_for_a_state_are_refused_at_once() -> None:
    with raises("classes-invalid", match="at most 1,000"):
        described({f"class {number}": f"thing number {number}" for number in range(1_001)})


# --- the classifier -------------------------------------------------------------------------------------------------
def test_the_mean_of_the_descriptions_and_names_in_the_templates() -> None:
    tower = backbone("embedded")
    assert isinstance(tower, ReadsPrompts)
    adapter = load(PROMPTS, templates=TEMPLATES)
    # Worked out with the public model: every prompt alone, unit length, mean, unit length.
    one, other, ship = (tower.classifier([prompt], ("{}",))[0] for prompt in (*PROMPTS["cat"], *PROMPTS["ship"]))
    torch.testing.assert_close(adapter.classifier[0], normalize((one + other) / 2, dim=0))
    torch.testing.assert_close(adapter.classifier[1:2], tower.classifier(["dog"], TEMPLATES))
    torch.testing.assert_close(adapter.classifier[2], ship)
    # What a template says can be said as a description.
    torch.testing.assert_close(ship, tower.classifier(["ship"])[0])
    assert adapter.classes == ("cat", "dog", "ship")
    assert adapter.resolved.adapter.descriptions == LINES


def test_a_described_class_need_not_be_known_by_its_name() -> None:
    adapter = load({"moggy": ["a photo of a cat."], "dog": []})  # pytest makes an error of a warning
    assert adapter.unfamiliar == []
    with pytest.warns(UserWarning, match="not trained on 1 class \\(moggy\\)"):
        load(["moggy", "dog"])


def test_training_methods_go_on_from_it() -> None:
    from PIL import Image

    adapter = load(PROMPTS, method="rosita")
    before = adapter.classifier.clone()
    for grey in (0, 90, 200):
        adapter.step(Image.new("RGB", (32, 32), (grey, 90, 200)))
    assert adapter.classifier.equal(before)


@pytest.mark.parametrize(
    ("method", "options"),
    [("tpt", {}), ("rosita", {"group": "full"}), ("rosita", {"group": "prompts", "losses": "re"})],
)
def test_what_trains_the_text_side_takes_names_alone(method: str, options: dict[str, Any]) -> None:
    with raises("option-conflict", match=r"leave out .* the descriptions of classes"):
        load(PROMPTS, method=method, **options)


@pytest.mark.parametrize(
    ("tower", "code"),
    [
        (lambda: ostta.backbones.wrap(None, torch.eye(3)), "backbone-unsupported"),
        (lambda: backbone("embedded+maple"), "backbone-unsupported"),
    ],
)
def test_backbones_that_cannot_read_them(tower: Any, code: str) -> None:
    with raises(code):
        ostta.load(tower(), {"cat": ["a kitten"], "dog": ["a puppy"], "ship": ["a boat"]}, method="zero_shot")


@pytest.mark.parametrize(
    ("classes", "options", "words"),
    [
        (["cat", "dog"], {"descriptions": ["ship: a boat"]}, "descriptions of 'ship', which is not one of the classes"),
        (["cat", "dog"], {"descriptions": ["cat"]}, "no descriptions"),
        (["cat", "dog"], {"descriptions": ["cat: a", "cat: b"]}, "two lines"),
        (PROMPTS, {"descriptions": LINES}, "given twice"),
        ({"cat": 5}, {}, "must be a list of texts, not 5"),
        ({5: ["a"]}, {}, "Class 0 is 5"),
        ({"cat": ["a <|endoftext|> b"]}, {}, "<|endoftext|>"),
        ({"cat": ["word " * 300]}, {}, "too long"),
    ],
)
def test_load_refuses_in_one_sentence(classes: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ostta.Error) as caught:
        load(classes, **options)
    assert words in str(caught.value)


# --- states, results, commands --------------------------------------------------------------------------------------
def test_a_state_has_them(tmp_path: Path) -> None:
    path = tmp_path / "pets.ostta"
    adapter = load(PROMPTS)
    adapter.save(path)
    assert json.loads(json.dumps(read_state(path)[1].options.adapter.descriptions)) == list(LINES)
    again = ostta.Adapter.restore(path)
    assert again.classifier.equal(adapter.classifier)
    # Named again they must be the same; not named, they come from the file.
    for classes in (None, PROMPTS, list(PROMPTS)):
        assert open_adapter(AdapterSettings(classes=classes), path).classifier.equal(adapter.classifier)
    with raises("state-mismatch", match="was made with other descriptions"):
        open_adapter(AdapterSettings(classes={**PROMPTS, "dog": ["a puppy"]}), path)


def test_commands_take_a_file_of_them(tmp_path: Path) -> None:
    from ostta.data import open_dataset

    image, file, state = tmp_path / "one.png", tmp_path / "classes.txt", tmp_path / "pets.ostta"
    open_dataset("sample:cifar10").image(0).save(image)
    file.write_text("cat: a photo of a house cat; a photo of a small cat\ndog\nship: a photo of a ship.\n")
    done = CliRunner().invoke(
        app, ["stream", str(image), "--classes", str(file), "--state", str(state), "--backbone", "embedded"]
    )
    assert done.exit_code == 0, done.output
    assert ostta.Adapter.restore(state).classifier.equal(load(PROMPTS).classifier)
    names = tmp_path / "ten.json"
    classes = open_dataset("sample:cifar10").classes
    names.write_text(
        json.dumps({name: [f"a photo of a {name}.", f"a small {name}."] if name == "cat" else [] for name in classes})
    )
    command = ["run", "--method", "zero_shot", "--desired", "sample:cifar10", "--ratio", "0", "--limit", "3"]
    done = CliRunner().invoke(app, [*command, "--classes", str(names), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    spec = read_result(next((tmp_path / "out").glob("*.json"))).spec
    assert (spec.classes, spec.options) == (list(classes), {"descriptions": ["cat: a photo of a cat.; a small cat."]})
    done = CliRunner().invoke(
        app, ["backbone", "export", "--backbone", "embedded", "--classes", str(file), "--to", str(tmp_path / "x")]
    )
    assert isinstance(done.exception, ostta.Error)
    assert "without descriptions" in str(done.exception)
