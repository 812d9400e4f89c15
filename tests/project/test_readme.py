"""README.md: short, its example runs and prints what is shown, and its commands and figures are right."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from helpers.documentation import ROOT, blocks, links
from ostta.data import open_dataset

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_three_statements_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    assert len(ast.parse(example).body) == 3
    (tmp_path / "holiday").mkdir()
    for photos in (open_dataset("sample:photos"), open_dataset("sample:photos_unknown")):
        for number in range(30):
            name = photos.classes[photos.labels[number]]
            photos.image(number).save(tmp_path / "holiday" / f"{number:02}-{name}.png")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    (shown,) = (text for text in blocks(ROOT / "README.md", "") if text.startswith("holiday/"))
    assert shown in capsys.readouterr().out


def test_it_is_one_screen_with_few_links() -> None:
    assert len(README.split()) < 600
    assert len([link for link in links(ROOT / "README.md") if link.startswith("docs/") and link.endswith(".md")]) == 6


def test_the_extras_are_enough_for_the_commands() -> None:
    match = re.search(r"ostta\[([a-z,]+)\]", README)
    assert match is not None
    assert {"serve", "stream", "video"} <= set(match[1].split(","))


def test_the_commands_of_make_exist_and_do_what_is_said() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", rules, flags=re.MULTILINE), target
    assert "VENV := .venv" in rules  # where the README says that `ostta` is


def test_the_picture_and_the_links_are_there() -> None:
    assert "docs/demo.jpg" in links(ROOT / "README.md")
    # Every page is reached from here, directly or through other pages.
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            waiting += [
                page.parent / link.partition("#")[0] for link in links(page) if not re.match(r"https?:|#", link)
            ]
    assert {page.resolve() for page in (ROOT / "docs").glob("*.md")} - seen == set()


def test_the_table_of_the_demo_is_consistent() -> None:
    rows = re.findall(r"^\|[^|]+\|((?: [\d.]+ \|){5})$", README, flags=re.MULTILINE)
    assert len(rows) == 3
    for row in rows:
        _, _, desired, undesired, hm = (float(cell) for cell in row.split("|")[:-1])
        assert hm == pytest.approx(2 * desired * undesired / (desired + undesired), abs=0.01)
