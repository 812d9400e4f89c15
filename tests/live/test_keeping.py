"""A stream's state: how often it is saved, and what a request to stop may interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.cases import adapter
from ostta import Adapter, Error
from ostta.live.signals import Stoppable
from ostta.live.state_keeper import IMAGES, SECONDS, SHARE, Keeper


class Clocked:
    """An adapter whose clock moves by hand, and whose saves take as long as they are told."""

    def __init__(self, adapter: Adapter, save_takes: float, path: Path | None) -> None:
        self.now, self.saved = 100.0, list[int]()
        self._adapter, self._takes = adapter, save_takes
        adapter.save = self._save  # type: ignore[method-assign, assignment]
        self.keeper = Keeper(adapter, path, clock=lambda: self.now)

    def _save(self, path: Path) -> None:
        self.now += self._takes
        self.saved.append(self._adapter.steps)

    def step(self, images: int, takes: float) -> None:
        for _ in range(images):
            self.now += takes
            self._adapter.memory.steps += 1
            self.keeper.stepped()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "s.ostta"


def test_the_first_image_is_saved_and_then_every_minute(state: Path) -> None:
    assert SECONDS == 60
    clocked = Clocked(adapter("zero_shot"), 0.01, state)
    clocked.step(99, 0.11 * SECONDS)
    assert clocked.saved[0] == 1
    assert max(after - before for before, after in zip(clocked.saved, clocked.saved[1:], strict=False)) <= 10
    # What a kill at image 99 would lose.
    assert 99 - clocked.saved[-1] <= 10


def test_images_that_come_fast_are_saved_by_their_number(state: Path) -> None:
    clocked = Clocked(adapter("zero_shot"), 0.0, state)
    clocked.step(1 + 3 * IMAGES, 1e-6)
    assert clocked.saved == [1, 1 + IMAGES, 1 + 2 * IMAGES, 1 + 3 * IMAGES]


def test_rare_images_are_saved_one_by_one(state: Path) -> None:
    clocked = Clocked(adapter("zero_shot"), 0.05, state)
    clocked.step(5, 61.0)
    assert clocked.saved == [1, 2, 3, 4, 5]


def test_slow_saves_take_their_share_and_no_more(state: Path) -> None:
    clocked = Clocked(adapter("zero_shot"), 30.0, state)
    began = clocked.now
    clocked.step(IMAGES - 1, 10.0)
    spent = 30.0 * len(clocked.saved)
    assert len(clocked.saved) > 1
    assert spent - 30.0 <= SHARE * (clocked.now - began)


def test_the_end_saves_what_is_new_and_nothing_twice(state: Path) -> None:
    clocked = Clocked(adapter("zero_shot"), 0.0, state)
    clocked.keeper.save()
    assert clocked.saved == []
    clocked.step(3, 1e-6)
    clocked.keeper.save()
    clocked.keeper.save()
    assert clocked.saved == [1, 3]
    without = Clocked(adapter("zero_shot"), 0.0, None)
    without.step(3, 60.0)
    without.keeper.save()
    assert without.saved == []


def test_a_save_that_fails_is_tried_again(state: Path) -> None:
    one = adapter("zero_shot")
    clocked = Clocked(one, 0.0, state)

    def fail(path: Path) -> None:
        raise Error("The disk is full.")

    one.save, works = fail, one.save  # type: ignore[method-assign, assignment]
    with pytest.raises(Error):
        clocked.step(1, 1.0)
    one.save = works  # type: ignore[method-assign]
    clocked.keeper.save()
    assert clocked.saved == [1]


def numbers() -> Iterator[int]:
    """As paths from a pipe: the third never comes."""
    yield from (1, 2)
    signal.raise_signal(signal.SIGTERM)
    pytest.fail("somebody asked to stop while this was waited for")


def test_a_request_ends_waiting_at_once() -> None:
    with Stoppable(numbers()) as waiting:
        assert list(waiting) == [1, 2]
    assert waiting.stop_requested


def test_a_request_lets_work_be_finished_and_takes_no_further_item() -> None:
    done = []
    with Stoppable(iter(range(10))) as waiting:
        for item in waiting:
            if item == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
            done.append(item)
    assert (done, waiting.stop_requested) == ([0, 1, 2, 3], True)


def test_handlers_are_put_back_whatever_happens() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(ZeroDivisionError), Stoppable([0]) as waiting:
        next(1 / item for item in waiting)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
