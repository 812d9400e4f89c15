"""The README's example runs as it stands, and its claims about commands are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(example.strip().splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    said = re.findall(r"^print\(.*?\)  # (.*)$", example, flags=re.MULTILINE)
    assert len(said) == 2
    assert capsys.readouterr().out.splitlines() == said
    assert (tmp_path / "camera.ostta").exists()


def test_files_that_the_readme_names_exist() -> None:
    root = Path(__file__).resolve().parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (root / target).exists(), target
