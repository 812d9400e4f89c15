"""The scripts of examples/ are short, run as they are, and say what they are said to say."""

from __future__ import annotations

import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

import ostta
import ostta.testing
from helpers.paths import ROOT
from ostta.backbones.embedded import load_embedded

FOLDER = ROOT / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))
# A backbone never changes, so that the scripts can share one.
shared = cache(load_embedded)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs a script with arguments; the lines that it printed."""
    monkeypatch.setattr("ostta.backbones.load_embedded", shared)
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(FOLDER / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def test_each_fits_a_screen() -> None:
    assert SCRIPTS
    for name in SCRIPTS:
        assert len((FOLDER / name).read_text(encoding="utf-8").splitlines()) <= 40, name


def test_classify_folder(said) -> None:
    counts = dict(reversed(line.split(maxsplit=1)) for line in said("classify_folder.py"))
    assert sum(map(int, counts.values())) == 80
    # Half of the images are digits.
    assert 20 < int(counts["unknown"]) < 60


def test_classify_folder_of_one_s_own_says_what_cannot_be_read(said, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "broken.png").write_bytes(b"no image")
    (line,) = said("classify_folder.py", "photos", "cat,dog")
    assert line.startswith("photos/broken.png: ")


def test_watch_and_resume_goes_on_where_it_stopped(said) -> None:
    text, figures = said("watch_and_resume.py")[-2:]
    assert text.endswith("method rosita, identifier lda, profile reference, 40 steps)")
    steps, updates, size = map(int, re.findall(r"\d+", figures))
    assert (steps, size) == (60, pytest.approx(80, rel=0.5))
    assert updates > 0


def test_own_encoder(said) -> None:
    answer, adapter = said("own_encoder.py")
    assert answer.startswith("Prediction(")
    assert adapter == (
        "Adapter(wrapped, 3 classes (cat, dog, ship), method rosita, identifier lda, profile reference, 50 steps)"
    )


def test_own_method(said) -> None:
    (line,) = said("own_method.py")
    right, words = line.split(maxsplit=1)
    assert words == "of 50 right"
    assert int(right) > 25


@pytest.mark.slow
def test_own_method_keeps_the_promises() -> None:
    """Slow: it is stepped through everything that is asked of ostta's own methods."""
    ostta.testing.check_method(ostta.plugins.from_file(f"{FOLDER / 'own_method.py'}:Centred"))


def test_compare_methods_has_figures_and_intervals(said) -> None:
    first, second, auroc, hm = said("compare_methods.py")
    assert (first.split()[0], second.split()[0]) == ("zero_shot", "field")
    figures = [float(line.split()[-1]) for line in (first, second)]
    assert auroc.startswith("field minus zero_shot, auroc: Interval(")
    difference = re.search(r"Interval\(([-+.\d]+) \[", hm)
    assert difference is not None
    # Both are rounded to a tenth.
    assert float(difference[1]) == pytest.approx(figures[1] - figures[0], abs=0.11)


def test_many_streams(said) -> None:
    door, harbour, adapter = said("many_streams.py")
    assert door.startswith("door: Prediction(")
    assert harbour.startswith("harbour: Prediction(")
    assert adapter.startswith("Adapter(embedded, 3 classes (cat, dog, horse)")
    assert adapter.endswith("40 steps)")


def test_name_unknown(said) -> None:
    lines = said("name_unknown.py")
    assert len(lines) >= 4
    assert all(re.fullmatch(r"unknown \(0\.\d\d\), most like .+", line) for line in lines)


def test_use_server(said) -> None:
    answer, state = said("use_server.py")
    assert re.fullmatch(r".+, probability [01]\.\d\d", answer)
    assert state.startswith("20 steps, state of ")


def test_stored_features(said) -> None:
    size, *methods = said("stored_features.py")
    assert size.startswith("200 images, 128 numbers each")
    assert [line.split()[0] for line in methods] == ["zero_shot", "tda", "dpe"]
    assert all(100 < int(line.split()[1]) <= 200 for line in methods)


def test_export_onnx(said) -> None:
    difference, same = said("export_onnx.py")
    assert float(difference.split()[-1]) < 1e-4
    assert same == "40 of 40 answers are the same"
