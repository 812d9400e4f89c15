"""docs/disagreements.md against the code: every number has its row, and every option and value it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import ostta
from ostta.identifiers import IDENTIFIERS
from ostta.methods import METHODS
from ostta.options import DISAGREEMENTS, MENDED_BUGS, PROFILES, options_class, read_value

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "disagreements.md").read_text(encoding="utf-8")
ROWS = {
    row[0]: row for row in re.findall(r"^\| (D\d+) \| (.+) \| (.+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", TEXT, re.M)
}
HERE, OTHER = 4, 5
ENTRIES = [
    (owner, option, number) for owner, options in DISAGREEMENTS.items() for option, (number, _) in options.items()
]


def setting(option: str, value: Any) -> str:
    """As the page writes it, and as --set takes it."""
    return f"`{option}={','.join(map(str, value)) if isinstance(value, tuple) else value}`"


def test_every_number_has_one_row() -> None:
    numbers = re.findall(r"^\| (D\d+) ", TEXT, re.M)
    assert sorted(numbers, key=lambda number: int(number[1:])) == [f"D{number}" for number in range(1, 34)]
    assert set(ROWS) == set(numbers)  # six cells in each


@pytest.mark.parametrize(("owner", "option", "number"), ENTRIES)
def test_a_row_names_the_default_and_what_the_paper_profile_sets(owner: str, option: str, number: str) -> None:
    default = getattr(options_class(owner)(), option)
    assert setting(option, default) in ROWS[number][HERE]
    paper = PROFILES["paper"].get(owner, {})
    if option in paper:
        assert f"{setting(option, paper[option])} **p**" in ROWS[number][OTHER]
    else:
        others = set(re.findall(rf"`{option}=[^`]+`", ROWS[number][OTHER]))
        assert others - {setting(option, default)}


def test_the_marked_values_are_those_of_the_paper_profile() -> None:
    marked = set(re.findall(r"(`\w+=[^`]+`) \*\*p\*\*", TEXT))
    assert marked == {
        setting(option, value) for options in PROFILES["paper"].values() for option, value in options.items()
    }


def test_every_mended_bug_is_in_its_row() -> None:
    for place, bug in MENDED_BUGS.items():
        option = place.partition(": ")[2]
        for number in re.findall(r"D\d+", bug):
            assert f"`{option}=reference`" in ROWS[number][OTHER], place


def test_every_setting_on_the_page_can_be_made() -> None:
    owners = [options_class(owner) for owner in (*METHODS, *IDENTIFIERS, "adapter")]
    for row in ROWS.values():
        for option, text in re.findall(r"`(\w+)=([^`]+)`", " ".join(row)):
            having = [owner for owner in owners if option in get_type_hints(owner)]
            assert having, f"{row[0]}: no option {option}"
            assert any(readable(option, text, get_type_hints(owner)[option]) for owner in having), (option, text)


def readable(option: str, text: str, hint: Any) -> bool:
    try:
        read_value(option, text, hint)
    except ostta.Error:
        return False
    return True
