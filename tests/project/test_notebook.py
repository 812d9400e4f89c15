"""The notebook of examples/: its cells run in order, as they would in Jupyter."""

from __future__ import annotations

import json
import time

import pytest

from helpers.paths import ROOT

NOTEBOOK = ROOT / "examples" / "photographs.ipynb"
MOST_SECONDS = 60


def test_the_notebook_runs_and_says_what_it_is_said_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # Outputs are not stored: they would be those of another version.
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    names: dict[str, object] = {}
    start = time.monotonic()
    for cell in code:
        exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
    assert time.monotonic() - start < MOST_SECONDS
    said = capsys.readouterr().out
    assert "64 photographs" in said
    assert "Most like" in said
    assert said.rstrip().endswith("16 more images; same answers: True")
    rejected = names["rejected"]
    assert isinstance(rejected, dict)
    # Unknown photographs have names that end in b; most of what is rejected is unknown.
    assert sum(name.endswith("-b.png") for name in rejected) > len(rejected) / 2 > 2
