"""All sentences of errors are in one file, so that a change of a sentence or of a code is seen."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from helpers.paths import ROOT, TESTS


def tool() -> ModuleType:
    found = importlib.util.spec_from_file_location("sentences", ROOT / "tools" / "sentences.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_sentences_are_those_of_the_snapshot() -> None:
    stored = (TESTS / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert tool().sentences() == stored, (
        "update the file with `python tools/sentences.py --write` and read the difference"
    )


def test_codes_and_templates_are_extracted(tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text(
        "class OwnError(Error):\n    code = 'own'\n\n\ndef act(name):\n"
        "    raise Error(f'There is no {name}.', code='name-unknown')\n    raise Error('Plain.')\n"
        "    raise OwnError(f'{name} is own.')\n    message = f'{name}: {{reason}}.'\n"
        "    with translate_errors('file-unreadable', message, OSError):\n        pass\n"
    )
    assert tool().sentences(tmp_path) == [
        "error: Plain.",
        "file-unreadable: {…}: {reason}.",
        "name-unknown: There is no {…}.",
        "own: {…} is own.",
    ]
