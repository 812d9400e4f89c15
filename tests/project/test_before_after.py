"""The comparison of two benchmark runs: what counts as worse."""

from __future__ import annotations

import pytest
from benchmarks.before_after import changes, rounds_of_rows


def run(**rounds: list[float]) -> list[dict[str, object]]:
    return [{"shape": "embedded", "classes": 10, "what": what, "rounds": own} for what, own in rounds.items()]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([1.0, 1.01, 1.02], [1.02, 1.03, 1.03], "same"),  # slower, by less than is allowed
        ([1.0, 1.01, 1.02], [1.1, 1.11, 1.12], "worse"),
        ([0.9, 1.0, 1.2], [0.95, 1.05, 1.1], "within spread"),
        ([1.0, 1.01, 1.02], [0.8, 0.81, 0.82], "better"),
        ([1.0], [1.1], "worse"),  # prompts are measured once a run
    ],
)
def test_a_row_is_worse_only_beyond_its_spread(before: list[float], after: list[float], verdict: str) -> None:
    found = changes(rounds_of_rows([run(rosita=before)]), rounds_of_rows([run(rosita=after)]))
    assert found["embedded", 10, "rosita"].verdict == verdict


def test_rounds_of_several_runs_count_together_and_rows_of_one_side_are_left_out() -> None:
    before = rounds_of_rows([run(F=[1.0], rosita=[2.0], gone=[1.0]), run(F=[1.0], rosita=[4.0])])
    found = changes(before, rounds_of_rows([run(F=[1.0], rosita=[3.0], new=[1.0])]))
    assert list(found) == [("embedded", 10, "rosita")]
    assert found["embedded", 10, "rosita"].before == 3.0
