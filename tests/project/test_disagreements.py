"""docs/disagreements.md against the code: every number has its row, and every option and value it names exists."""

from __future__ import annotations

import re
from typing import Any

import pytest

import ostta
from helpers.paths import ROOT
from ostta.config.declare import UNCHANGED, Option, list_options, profile_values, types_of
from ostta.config.resolve import list_options_classes, read_value
from ostta.data.class_names import class_list, parse_classes, prompts_of

TEXT = (ROOT / "docs" / "disagreements.md").read_text(encoding="utf-8")
ROWS = {row[0]: row for row in re.findall(r"^\| (D\d+) \| (.+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", TEXT, re.M)}
HERE, OTHER = 4, 5
OPTIONS = [(owner, option) for owner, options in list_options_classes().items() for option in list_options(options)]
NUMBERED = [(owner, option) for owner, option in OPTIONS if option.number is not None]
# What was read out of text and code once, against a slip in a declaration: number, default, and what the paper's text
# has.
SAID = {
    "lda": {"search": "D1", "objective": "D1", "groups": "D8"},
    "rosita": {
        "contrast_weight": "D2",
        "normaliser": "D3",
        "temperature": "D4",
        "entropy_scale": "D5",
        "neighbours": "D6",
        "undesired_bank": "D7",
        "desired_bank": "D31",
    },
    "tpt": {"lr": "D9", "maple_lr": "D9"},
    "tpt_c": {"update": "D16"},
    "palign": {"maple_lr": "D10", "over": "D11", "blocks": "D11"},
    "palign_c": {"momentum": "D17", "update": "D16", "over": "D11", "blocks": "D11"},
    "prototypes": {"store": "D18", "wait": "D18", "scale": "D18", "unreliable": "D18", "group": "D18"},
    "tda": {
        "alpha": "D15",
        "beta": "D15",
        "negative_shots": "D12",
        "entropy_window": "D15",
        "insert": "D12",
        "score_of": "D29",
    },
    "dpe": {"alpha": "D14", "beta": "D14", "align": "D14", "gate": "D13", "score_of": "D29"},
    "unient": {"scale": "D19", "undesired_weight": "D19"},
    "entropy": {"loss": "D21", "named_from": "D21"},
    "adapter": {"answer_from": "D30", "templates": "D28", "precision": "D32"},
}
PAPER = {
    "lda": {"objective": "unweighted", "groups": "strict"},
    "rosita": {"contrast_weight": 1.0, "normaliser": "matches"},
    "tpt": {"lr": 5e-4, "maple_lr": 5e-4},
    "tpt_c": {"update": "reliable"},
    "palign": {"maple_lr": 5e-4, "over": "all"},
    "palign_c": {"update": "reliable", "momentum": 0.0, "over": "all"},
    "prototypes": {"store": "reliable"},
    "tda": {"insert": "desired", "score_of": "cosine"},
    "dpe": {"score_of": "cosine"},
    "entropy": {"loss": "entropy"},
}
MENDED = {"dpe: gate", "palign: blocks", "palign_c: blocks", "entropy: named_from", "prototypes: unreliable"}


def setting(option: Option, value: Any) -> str:
    """As the page writes it, and as --set takes it."""
    return f"`{option.name}={option.text(value)}`"


def test_the_declarations_say_what_was_found() -> None:
    numbers: dict[str, dict[str, str | None]] = {}
    for owner, option in NUMBERED:
        numbers.setdefault(owner, {})[option.name] = option.number
    assert numbers == SAID
    paper = {owner: profile_values(options, "paper") for owner, options in list_options_classes().items()}
    assert {owner: values for owner, values in paper.items() if values} == PAPER
    assert not any(profile_values(options, "reference") for options in list_options_classes().values())
    assert {f"{owner}: {option.name}" for owner, option in OPTIONS if option.bug} == MENDED


def test_every_number_has_one_row() -> None:
    numbers = re.findall(r"^\| (D\d+) ", TEXT, re.M)
    assert sorted(numbers, key=lambda number: int(number[1:])) == [f"D{number}" for number in range(1, 37)]
    assert set(ROWS) == set(numbers)  # five cells in each


@pytest.mark.parametrize("option", [pytest.param(option, id=f"{owner}-{option.name}") for owner, option in NUMBERED])
def test_a_row_names_the_default_and_what_the_paper_profile_sets(option: Option) -> None:
    row = ROWS[str(option.number)]
    assert setting(option, option.default) in row[HERE]
    if option.paper is not UNCHANGED:
        assert f"{setting(option, option.paper)} **p**" in row[OTHER]
    else:
        others = set(re.findall(rf"`{option.name}=[^`]+`", row[OTHER]))
        assert others - {setting(option, option.default)}


def test_every_option_that_a_row_is_about_has_its_number() -> None:
    known = {(option.name, option.number) for _, option in NUMBERED}
    named = {(option, row[0]) for row in ROWS.values() for option in re.findall(r"`(\w+)=[^`]+`", row[HERE])}
    assert named == known


def test_the_marked_values_are_those_of_the_paper_profile() -> None:
    marked = set(re.findall(r"(`\w+=[^`]+`) \*\*p\*\*", TEXT))
    assert marked == {setting(option, option.paper) for _, option in OPTIONS if option.paper is not UNCHANGED}


def test_every_departure_from_the_published_code_is_in_its_row() -> None:
    for owner, option in OPTIONS:
        if option.bug is not None:
            assert "reference" in str(option.hint), (owner, option.name)
            assert f"`{option.name}=reference`" in ROWS[str(option.number)][OTHER], (owner, option.name)
        if option.published is not UNCHANGED:
            row = ROWS[str(option.number)]
            assert row[HERE].startswith("not the code: "), (owner, option.name)
            assert f"the code: {setting(option, option.published)}" in row[OTHER], (owner, option.name)


def test_every_setting_on_the_page_can_be_made() -> None:
    for row in ROWS.values():
        for option, text in re.findall(r"`(\w+)=([^`]+)`", " ".join(row)):
            having = [options for options in list_options_classes().values() if option in types_of(options)]
            assert having, f"{row[0]}: no option {option}"
            assert any(readable(option, text, types_of(options)[option]) for options in having), (option, text)


def readable(option: str, text: str, hint: Any) -> bool:
    try:
        read_value(option, text, hint)
    except ostta.Error:
        return False
    return True


def test_the_names_of_imagenet_are_the_published_ones_but_for_what_the_page_says() -> None:
    published, newer = (class_list(name) for name in ("imagenet_r", "imagenet_r_newer"))
    assert published.folders == newer.folders
    other = [pair for pair in zip(published.names, newer.names, strict=True) if pair[0] != pair[1]]
    assert len(other) == 9
    assert ("common newt", "smooth newt") in other
    row = ROWS["D34"]
    assert all(ours in row[3] and theirs in row[OTHER] for ours, theirs in other)
    assert parse_classes("names:imagenet_r_newer") == list(newer.names)
    # Class names must be distinct, so that the two names that the published list has twice are not here.
    names = dict(zip(class_list("imagenet").folders, class_list("imagenet").names, strict=True))
    assert (names["n04008634"], names["n04355933"]) == ("projectile", "sunglass")
    assert prompts_of(["projectile: a photo of a missile.", "sunglass: a photo of a sunglasses."], list(names.values()))
