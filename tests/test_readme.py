"""The README: short, its three lines are three and run as they stand, and what it says of commands and figures is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ostta.data import open_dataset
from pages import ROOT, blocks, links

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_three_lines_are_three_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    lines = [line for line in example.splitlines() if line]
    assert len(lines) == 3
    for word, line in zip(("import ostta", "ostta.load(", "adapter.step("), lines, strict=True):
        assert word in line
    photos = open_dataset("sample:cifar10")
    photos.image(photos.labels.tolist().index(photos.classes.index("cat"))).save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    (said,) = re.findall(r"^print\(.*?\)  # (.*)$", example, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == [said]


def test_it_fits_a_screen_or_two() -> None:
    assert len(README.split()) < 800


def test_the_commands_of_make_exist_and_do_what_is_said() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", rules, flags=re.MULTILINE), target
    assert "VENV := .venv" in rules  # where the README says that `ostta` is


def test_the_picture_and_the_links_are_there() -> None:
    assert "docs/demo.png" in links(ROOT / "README.md")
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


def test_samples_that_it_names_ship() -> None:
    named = set(re.findall(r"`(sample:\w+)`", README))
    assert {"sample:cifar10", "sample:mnist", "sample:photos"} <= named
    clean = sum(len(open_dataset(name)) for name in named if name != "sample:cifar10c")
    assert f"{clean:,} sample images" in README


def test_the_table_of_the_demo_is_consistent() -> None:
    found = re.findall(r"^\| (\w+) \|((?: [\d.]+ \|){5})$", README, flags=re.MULTILINE)
    rows = {name: [float(cell) for cell in cells.split("|")[:-1]] for name, cells in found}
    assert list(rows) == ["zero_shot", "rosita", "field"]
    for _, _, desired, undesired, hm in rows.values():
        assert hm == pytest.approx(2 * desired * undesired / (desired + undesired), abs=0.01)
