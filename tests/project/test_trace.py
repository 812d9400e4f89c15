"""One image passes through few files of the library and returns to none; a suite reaches its page through few files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import trace_run
import trace_step


# The embedded backbone has two files of its own: its tower and its stem.
@pytest.mark.parametrize(("backbone", "most"), [("tiny", 15), ("embedded", 17)])
def test_one_image_passes_through_few_files(backbone: str, most: int) -> None:
    calls = trace_step.trace(backbone)
    files = trace_step.files_of(calls)
    assert files[:2] == ["adapter.py", "step.py"]
    assert "methods/rosita.py" in files
    assert len(files) <= most
    assert trace_step.reentries_of(calls) == []


def test_a_suite_reaches_its_page_through_few_files(tmp_path: Path) -> None:
    files = trace_run.of_benchmark(trace_run.trace(tmp_path))
    assert files[0] == "cli/app.py"
    assert {"bench/run.py", "evaluation/loop.py", "bench/tables.py", "pages/templates/page.html"} <= set(files)
    assert len(files) <= 35
