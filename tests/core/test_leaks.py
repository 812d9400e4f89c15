"""The measure of leaks itself.

It sees one object, one tensor or one graph node a step, and nothing where nothing is kept.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from helpers.cases import adapter
from ostta.testing.leaks import growth, leak


@pytest.fixture
def all_objects() -> Iterator[None]:
    """What tests/conftest.py leaves out of the counts is in them."""
    gc.unfreeze()
    yield
    gc.freeze()


class Planted:
    """Leaks of every kind, one a step."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.names: dict[int, None] = {}
        self.array = np.zeros(1)
        self.weight = torch.ones(1, requires_grad=True)
        self.total = torch.zeros(1)

    def number(self) -> None:
        self.kept.append(0)

    def key(self) -> None:
        self.names[len(self.names)] = None

    def tensor(self) -> None:
        self.kept.append(torch.zeros(1))

    def longer_array(self) -> None:
        self.array = np.append(self.array, 0.0)

    def uncut_graph(self) -> None:
        """A running total that was never detached: the graph grows behind one small tensor."""
        self.total = self.total + self.weight


KINDS = {
    "number": "references",
    "key": "references",
    "tensor": "data_bytes",
    "longer_array": "data_bytes",
    "uncut_graph": "graph_nodes",
}


@pytest.mark.parametrize("leak", KINDS)
def test_a_planted_leak_is_seen(leak: str) -> None:
    # Many steps: threads that other tests of the process left behind come and go with some fifty references.
    found = growth(getattr(Planted(), leak), warm=2, steps=400)
    assert found.leaks(400), found
    assert getattr(found, KINDS[leak]) > 200


def turn_of(one: Any) -> Callable[[], object]:
    views = itertools.cycle(torch.rand(7, one.method.views, 3, 32, 32))
    return lambda: one.step_views(next(views))


@pytest.mark.usefixtures("all_objects")
def test_the_steps_of_rosita_and_tda_keep_nothing_in_any_object_of_the_process() -> None:
    turns = [turn_of(adapter(method)) for method in ("rosita", "tda")]
    assert leak(lambda: [turn() for turn in turns], warm=200, steps=150) is None


def test_a_leak_in_a_real_step_is_seen_and_its_absence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    one, planted = adapter("rosita"), Planted()
    turn, remember = turn_of(one), one.identifier.remember
    # Many steps, here and below: what comes and goes may have some fifty references with it.
    assert leak(turn, warm=200, steps=150) is None
    monkeypatch.setattr(
        one.identifier, "remember", lambda score, evidence: (remember(score, evidence), planted.kept.append(score))
    )
    assert growth(turn, warm=2, steps=150).references > 75


def test_what_comes_and_goes_is_no_leak() -> None:
    """Something that is there after every odd number of windows, and not after the others."""
    kept, calls = [], itertools.count(1)

    def now_and_then() -> None:
        kept[:] = [torch.zeros(640)] if next(calls) == 402 else kept

    assert growth(now_and_then, warm=2, steps=400).leaks(400)
    kept, calls = [], itertools.count(1)
    assert leak(now_and_then, warm=2, steps=400) is None


def test_rubbish_that_the_collector_takes_is_no_leak() -> None:
    def cycle() -> None:
        ring: list[Any] = [torch.zeros(1000)]
        ring.append(ring)

    assert not growth(cycle, warm=2, steps=400).leaks(400)


def test_another_thread_that_keeps_more_is_not_a_leak_of_the_step() -> None:
    kept: list[object] = []
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(0.001):
            kept.append(object())

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        assert growth(lambda: time.sleep(0.01), warm=2, steps=30).leaks(30)
        assert leak(lambda: time.sleep(0.01), warm=2, steps=30) is None
    finally:
        ended.set()
        thread.join()
