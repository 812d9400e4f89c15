"""What users and files rely on is as it was recorded.

`tools/record_behaviour.py` records it again after a change that is meant.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

import pytest

from helpers.paths import ROOT, TESTS

sys.path.insert(0, str(ROOT / "tools"))

import record_behaviour

# Another processor or another version of torch rounds differently; digests hold only where they were recorded.
TOLERANCE = 1e-4


def recorded(part: str) -> dict[str, Any]:
    return json.loads((TESTS / "recorded" / f"{part}.json").read_text(encoding="utf-8"))


@cache
def computed() -> dict[str, Any]:
    return record_behaviour.predictions()


@pytest.mark.parametrize("part", ["keys", "names", "cli", "http"])
def test_names_keys_and_addresses_are_as_recorded(part: str) -> None:
    found = json.loads(json.dumps(record_behaviour.PARTS[part]()))
    for name, value in recorded(part).items():
        assert found.get(name) == value, name
    assert set(found) == set(recorded(part))


def test_every_method_score_and_identifier_is_recorded() -> None:
    assert set(recorded("predictions")["cases"]) == {*record_behaviour.cases(), "pool"}


@pytest.mark.parametrize("case", recorded("predictions")["cases"])
def test_predictions_and_states_are_as_recorded(case: str) -> None:
    before, after = recorded("predictions"), computed()
    expected, found = before["cases"][case], after["cases"][case]
    if before["environment"] == after["environment"]:
        assert found == expected
        return
    for name in ("index", "known", "adapted"):
        assert found[name] == expected[name]
    for name in ("mean_score", "mean_loss", "last_threshold"):
        assert found[name] == pytest.approx(expected[name], abs=TOLERANCE)
