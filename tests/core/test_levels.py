"""The levels of the classes against their formulas, and the answer that they lead to."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

import ostta
from helpers.cases import CLASSES, backbone, images, subject
from helpers.errors import raises
from ostta import Error
from ostta.core.levels import EVEN, MEMORY, OWN, PULL, Levels
from ostta.testing import methods
from ostta.testing.subject import Subject

C = 4


def stream(
    count: int, shares: list[float] | None = None, seed: int = 0, raised: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logits in which the right class stands out, and class 0 is raised on all images; and the classes."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(C, count, p=shares)
    logits = rng.normal(0, 0.5, (count, C)) + np.eye(C)[labels]
    logits[:, 0] += raised
    return logits, labels


def answers(logits: np.ndarray, levels: Levels) -> np.ndarray:
    found = []
    for row in logits:
        found.append(int(levels.without(torch.from_numpy(row)).argmax()))
        levels.remember(torch.from_numpy(row), True)
    return np.array(found)


def test_the_level_is_the_mean_of_the_rows_with_half_of_the_own() -> None:
    levels, rows, counts = Levels(C), np.zeros((C, C)), np.zeros(C)
    margin, steps = 0.0, 0
    for z in stream(300, raised=0.5)[0]:
        z = z - z.mean()
        trust = counts / (counts + PULL)
        level = np.array(
            [sum(trust[k] * (OWN if k == c else 1) * rows[k, c] for k in range(C)) / (C - 1 + OWN) for c in range(C)]
        )
        level -= level.mean()
        np.testing.assert_allclose(levels.level(), level, atol=1e-12)
        left = z - level
        best, second = np.sort(left)[::-1][:2]
        sure, steps = best - second > margin, steps + 1
        margin += (best - second - margin) / min(steps, 256)
        if sure:
            k = int(left.argmax())
            counts[k] = min(counts[k] + 1, MEMORY)
            rows[k] += (z - rows[k]) / counts[k]
        levels.remember(torch.from_numpy(z), True)


def test_a_raised_class_is_answered_less_often_and_more_is_right() -> None:
    logits, labels = stream(1500, raised=0.8)
    plain, levels = logits.argmax(1), Levels(C)
    levelled = answers(logits, levels)
    late = slice(300, None)
    assert (plain[late] == 0).mean() > 0.45
    assert (levelled[late] == 0).mean() < 0.35
    assert (levelled[late] == labels[late]).mean() > (plain[late] == labels[late]).mean() + 0.05


def test_classes_that_are_uneven_themselves_are_left_alone() -> None:
    logits, labels = stream(1500, shares=[0.91, 0.03, 0.03, 0.03])
    levels = Levels(C)
    levelled = answers(logits, levels)
    assert levels.strength() == 0
    assert (levelled == labels).mean() > (logits.argmax(1) == labels).mean() - 0.01


@pytest.mark.parametrize(("factor", "offset"), [(0.1, 0.2), (100.0, -3.0)])
def test_scale_and_offset_change_nothing(factor: float, offset: float) -> None:
    logits, _ = stream(400, raised=0.5)
    assert (answers(logits, Levels(C)) == answers(factor * logits + offset, Levels(C))).all()


def test_only_classes_that_were_seen_have_a_row() -> None:
    many = 20_000
    tracemalloc.start()
    levels = Levels(many)
    for number, label in enumerate((7, 3, 7, 19_000)):  # each image is clearer than the ones before
        levels.remember(10.0**number * torch.nn.functional.one_hot(torch.tensor(label), many).double(), True)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 100 * 8 * many
    assert levels.tensors()["rows"].shape == (3, many)
    again = Levels(many)
    again.load(levels.tensors())
    np.testing.assert_array_equal(again.level(), levels.level())
    assert (levels.level()[[3, 7, 19_000]] > 0).all()


def test_one_class_has_no_level() -> None:
    levels = Levels(1)
    levels.remember(torch.tensor([0.3]), True)
    assert levels.without(torch.tensor([0.3])).item() == pytest.approx(0.3)


def test_what_is_stored_comes_back_and_anything_else_is_refused() -> None:
    one, other = Levels(C), Levels(C)
    answers(stream(200)[0], one)
    other.load(one.tensors())
    logits = torch.from_numpy(stream(1, seed=5)[0][0])
    assert torch.equal(one.without(logits), other.without(logits))
    for name, value in {
        "rows": torch.full((C, C), torch.nan, dtype=torch.float64),
        "count": torch.full((C,), MEMORY + 1.0, dtype=torch.float64),
        "share": -torch.ones(C, dtype=torch.float64),
        "steps": torch.tensor(-1),
        "margin": torch.zeros(2, dtype=torch.float64),
    }.items():
        with pytest.raises(Error):
            other.load({**one.tensors(), name: value})
    with pytest.raises(Error, match=r"'rows' is float64 of shape \[3, 4\]"):  # a class with a count and no row
        other.load({**one.tensors(), "rows": one.tensors()["rows"][1:]})
    with raises("state-mismatch", match="strange"):
        other.load({**one.tensors(), "strange": torch.zeros(1)})
    other.reset()
    assert other.strength() == min(1, max(0, (1 - EVEN[0]) / (EVEN[1] - EVEN[0])))


@pytest.mark.parametrize("method", ["zero_shot", "rosita", "tda"])
def test_an_adapter_with_levels_keeps_the_promises(method: str) -> None:
    one = subject(method)
    levelled = Subject(one.method, one.identifier, one.backbone, {**one.options, "answer": "levelled"})
    for promise in (
        methods.repeatable_and_restorable,
        methods.resets,
        methods.survives_bad_input,
        methods.works_in_a_pool,
    ):
        promise(levelled)


def test_only_the_answer_differs() -> None:
    """Scores, verdicts and updates are the method's own."""
    plain = ostta.load(backbone("wrapped"), CLASSES, "rosita")
    levelled = ostta.load(backbone("wrapped"), CLASSES, "rosita", answer="levelled", class_scores=True)
    for image in images(40):
        first, second = plain.step(image), levelled.step(image)
        assert (first.score, first.verdict, first.loss, first.pseudo_label) == (
            second.score, second.verdict, second.loss, second.pseudo_label,
        )  # fmt: skip
        assert second.class_scores[second.best] == max(second.class_scores.values())
