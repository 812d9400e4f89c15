"""Several threads: adapters on one backbone, callers of one adapter, and callbacks of a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import ostta
from helpers.cases import CLASSES, SmallTower, adapter, backbone, content, images, same
from helpers.errors import raises
from ostta import Error, InUseError
from ostta.core.overlay import Overlay, lock_of
from ostta.live import StreamPool


def meanwhile(action: Callable[[], Any]) -> Any:
    """What `action` gives in another thread, which must not wait for this one for long."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(action())
        except BaseException as problem:
            found.append(problem)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the thread hangs"
    return found[0]


class Waiting:
    """A thread that has swapped an overlay of its own into a backbone, and holds it there until it is let go."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay, self.inside, self.let_go = overlay, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        with self.overlay.applied():
            self.inside.set()
            self.let_go.wait(60)

    def __enter__(self) -> Waiting:
        self.thread.start()
        assert self.inside.wait(60)
        # Whoever does not wait for the lock would be done before this.
        threading.Timer(0.3, self.let_go.set).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self.thread.join()


def strange(one: ostta.Adapter) -> Overlay:
    """The overlay of an adapter with values that change every feature."""
    overlay = one.state.overlay
    return overlay.moved(value.detach() + torch.randn_like(value) for value in overlay.parameters())


@pytest.mark.parametrize("method", ["zero_shot", "tda", "dpe", "rosita"])
def test_no_look_sees_the_values_of_another_thread(method: str) -> None:
    one, image = adapter(method, kind="embedded"), images(1)[0]
    expected = one.predict(image).score
    with Waiting(strange(adapter("rosita", kind="embedded"))):
        assert one.predict(image).score == expected


@pytest.mark.parametrize("group", ["layernorm", "full"])
def test_what_is_made_beside_a_busy_stream_starts_from_the_weights(group: str) -> None:
    busy = strange(adapter("rosita", kind="embedded", group=group, lr=1.0))
    fresh = content(adapter("rosita", kind="embedded"))
    weights = backbone("embedded").classifier(CLASSES)
    with Waiting(busy):
        made = adapter("rosita", kind="embedded")
    assert same(content(made), fresh)
    assert made.classifier.equal(weights)
    with Waiting(busy):
        made.reset()
    assert same(content(made), fresh)
    pool = StreamPool(backbone("embedded"))
    with Waiting(busy):
        added = pool.add("one", CLASSES, method="rosita")
    assert same(content(added), fresh)
    with Waiting(busy):
        StreamPool(backbone("embedded"))


def test_a_second_caller_of_one_adapter_is_refused_and_nothing_is_lost() -> None:
    one, other = adapter("rosita"), adapter("rosita")
    for image in images(20):
        one.step(image)
        other.step(image)
    held = lock_of(one.backbone.vision)
    done = threading.Event()
    with held:  # the first caller waits for the tower
        first = threading.Thread(target=lambda: (one.step(images(1)[0]), done.set()), daemon=True)
        first.start()
        while not one.pipeline._lock.locked():
            assert not done.wait(0.01)
        for call in (lambda: one.step(images(1)[0]), lambda: one.predict(images(1)[0]), one.reset):
            refused = meanwhile(call)
            assert isinstance(refused, Error)
            assert "in use by another call" in str(refused)
    first.join(60)
    other.step(images(1)[0])
    assert same(content(one), content(other))


def test_four_threads_on_one_adapter_raise_nothing_but_the_sentence() -> None:
    one, steps, problems = adapter("rosita"), [], []

    def work() -> None:
        for image in images(40):
            try:
                steps.append(one.step(image))
            except Exception as problem:
                problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.steps == len(steps)
    assert {type(problem) for problem in problems} <= {InUseError}


# --- the pool ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("started", [True, False])
def test_a_callback_may_ask_the_pool_for_more(started: bool) -> None:
    pool, told, done = StreamPool(backbone("wrapped")), [], threading.Event()
    for name in "ab":
        pool.add(name, CLASSES, method="rosita")
    if started:
        pool.start()

    def more(future: Any) -> None:
        told.append(pool.step({"b": images(2)[1]})["b"].score)
        with pool.held("a") as one:
            told.append(one.steps)
        done.set()

    def ask() -> list[Any]:
        future = pool.submit("a", images(1)[0])
        future.add_done_callback(more)
        if not started:
            pool.run_once()
        assert done.wait(30)
        pool.close()
        return told

    score, steps = meanwhile(ask)
    assert steps == 1
    assert score == pytest.approx(adapter("rosita").step(images(2)[1]).score, abs=1e-5)


class Leaving(nn.Module):
    """A tower that tries to end the process once it is told to."""

    leave: type[BaseException] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.tower = SmallTower()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if Leaving.leave is not None:
            raise Leaving.leave
        return self.tower(x)


@pytest.mark.parametrize("method", ["zero_shot", "rosita"])
def test_a_tower_that_exits_ends_neither_the_pool_nor_a_future(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    own = ostta.backbones.wrap(Leaving(), torch.randn(len(CLASSES), 16), image_size=32)
    pool = StreamPool(own)
    one = pool.add("a", CLASSES, method=method)
    with pool:
        pool.submit("a", images(1)[0]).result(30)
        before = content(one)
        monkeypatch.setattr(Leaving, "leave", SystemExit)
        with raises("batch-ended"):
            pool.submit("a", images(1)[0]).result(30)
        assert same(before, content(one))
        monkeypatch.setattr(Leaving, "leave", None)
        assert pool.submit("a", images(1)[0]).result(30).index in range(10)


def test_a_key_press_ends_the_step_but_no_future_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ostta.backbones.wrap(Leaving(), torch.randn(len(CLASSES), 16), image_size=32)
    pool = StreamPool(own)
    pool.add("a", CLASSES, method="rosita")
    future = pool.submit("a", images(1)[0])
    monkeypatch.setattr(Leaving, "leave", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        pool.run_once()
    with raises("batch-ended"):
        future.result(0)
