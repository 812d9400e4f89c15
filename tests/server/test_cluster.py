"""Sessions that move between replicas: replicas without Ray, and the engine that routes to them."""

from __future__ import annotations

import asyncio
import io
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ostta
from helpers.errors import raises
from ostta import Error
from ostta.data import open_dataset
from ostta.server.cluster.engine import RayEngine
from ostta.server.cluster.replica import ReplicaBase, ReplicaConfig
from ostta.server.problems import ProblemError
from ostta.server.sessions.store import LostError, SessionStore
from ostta.server.settings import Limits, Settings

pytestmark = pytest.mark.skipif(find_spec("fastapi") is None, reason="the extra `serve` is not installed")

CLASSES = ["airplane", "automobile", "bird", "cat"]
SAVE_EVERY = 5


@pytest.fixture(scope="module")
def backbone() -> ostta.backbones.Backbone:
    return ostta.backbones.as_backbone("embedded")


@pytest.fixture(scope="module")
def pngs() -> list[bytes]:
    data, made = open_dataset("sample:cifar10c"), []
    for number in range(12):
        buffer = io.BytesIO()
        data.image(number).save(buffer, "PNG")
        made.append(buffer.getvalue())
    return made


class DeadError(Exception):
    """Stands for what Ray raises where a replica has died."""


class Local(RayEngine):
    """The routing engine over replicas in this process. `route` chooses among them, as Ray may choose any."""

    def __init__(self, folder: Path, backbone: Any, count: int = 2, **settings: Any) -> None:
        limits = Limits(sessions=6, waiting=8)
        super().__init__(
            ReplicaConfig(
                backbone, folder, Settings(save_every=SAVE_EVERY, limits=limits, **settings), lease_seconds=30
            ),
            replicas=count,
        )
        self.patience = 5.0
        self.route: Callable[[str], int] = lambda id: int(id[:2], 16) % len(self.parts)
        self.parts: list[ReplicaBase | None] = []
        self.routed: list[tuple[str, int]] = []

    def _deploy(self) -> None:
        self._ray = SimpleNamespace(exceptions=SimpleNamespace(RayError=DeadError))
        self.parts += [ReplicaBase(self.config, f"replica {number}") for number in range(self.replicas)]
        self._handle = _Handle(self)

    def _take_down(self) -> None:
        self._store.close()

    async def stop(self) -> None:
        for part in self.parts:
            if part is not None:
                await part.close()
        await super().stop()

    async def kill(self, number: int) -> None:
        """Replica `number` is gone without a word: it stores nothing, and its lease has expired."""
        part = self.parts[number]
        assert part is not None
        self.parts[number] = None
        if part._publishing is not None:
            part._publishing.cancel()
            part.engine._ticking.cancel()
        expire(part.store)
        part.store._close()
        part.engine.pool.close()


def expire(store: SessionStore) -> None:
    """End the leases of a process that runs, as if it had been silent for too long."""
    store._stop.set()
    store._thread.join()
    store._run("UPDATE holders SET expires = 0 WHERE id = ?", store.holder)


class _Handle:
    def __init__(self, engine: Local, id: str = "") -> None:
        self._engine, self._id = engine, id

    def options(self, multiplexed_model_id: str, stream: bool = False) -> _Handle:
        return _Handle(self._engine, multiplexed_model_id)

    def __getattr__(self, name: str) -> SimpleNamespace:
        engine = self._engine

        def part() -> ReplicaBase:
            number = engine.route(self._id or "00")
            engine.routed.append((name, number))
            found = engine.parts[number]
            if found is None:
                raise DeadError
            return found

        async def call(*arguments: Any) -> Any:
            return await getattr(part(), name)(*arguments)

        return SimpleNamespace(remote=(lambda *given: _Stream(part(), given)) if name == "follow" else call)


class _Stream:
    """What Ray gives for a function that yields."""

    def __init__(self, part: ReplicaBase, given: tuple[Any, ...]) -> None:
        self._told = part.follow(*given)

    def __aiter__(self) -> AsyncIterator[Any]:
        return aiter(self._told)

    def cancel(self) -> None:
        """Nothing to do: the generator ends with its consumer."""


def running(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test of coroutines."""

    def run(tmp_path: Path, backbone: Any, pngs: list[bytes]) -> None:
        async def whole() -> None:
            engine = Local(tmp_path, backbone)
            await engine.start()
            try:
                await asyncio.wait_for(test(engine, pngs), 60)
            finally:
                await engine.stop()

        asyncio.run(whole())

    run.__name__ = test.__name__
    return run


async def sent(engine: RayEngine, id: str, *images: bytes) -> list[int]:
    return [answer["step"] for answer in await engine.images(id, images, True, False)]


# --- replicas ---------------------------------------------------------------------------------------------------------
@running
async def test_sessions_live_in_one_replica_and_answer(engine: Local, pngs: list[bytes]) -> None:
    await engine.ready()
    info = await engine.info()
    assert (info["engine"], info["replicas"], info["save_every"]) == ("ray", 2, SAVE_EVERY)
    made = [await engine.create({"classes": CLASSES, "name": f"camera {number}"}) for number in range(3)]
    tries: Counter[str] = Counter()

    def another(id: str) -> int:
        """The one that was not asked last: it is not known who has the session."""
        tries[id] += 1
        return tries[id] % 2

    engine.route = another
    for number in range(3):
        steps = await asyncio.gather(*(sent(engine, session["id"], pngs[number]) for session in made))
        assert steps == [[number + 1]] * 3
    # The same answers as an adapter alone.
    alone = ostta.load(engine.parts[0].engine.pool.backbone, CLASSES, guard=True)
    for png in pngs[:3]:
        alone.step(png)
    (answer,) = await engine.images(made[0]["id"], pngs[3:4], False, False)
    assert answer["score"] == pytest.approx(alone.predict(pngs[3]).score, abs=1e-5)
    renamed = await engine.rename(made[1]["id"], "yard")
    assert (renamed["name"], await engine.name(made[1]["id"])) == ("yard", "yard")
    assert (await engine.act(made[1]["id"], "freeze"))["session"]["frozen"]
    assert len((await engine.recent(made[0]["id"], 10))["points"]) == 3
    copied = await engine.create_from(await engine.state(made[0]["id"]), "copy")
    assert copied["steps"] == 3
    await engine.delete(made[2]["id"])
    with pytest.raises(ProblemError, match="no session") as missing:
        await engine.session(made[2]["id"])
    assert missing.value.status == 404
    with pytest.raises(ProblemError, match="no session"):
        await engine.name(made[2]["id"])
    with pytest.raises(Error, match="name of a session"):
        await engine.rename(made[0]["id"], "")
    with pytest.raises(ProblemError, match="no images"):
        await engine.kept(made[0]["id"], "most")
    with pytest.raises(ProblemError, match="no session"):
        await engine.session("../x")
    assert {session["id"] for session in await shown(engine, 3)} == {made[0]["id"], made[1]["id"], copied["id"]}


async def shown(engine: Local, wanted: int) -> list[dict[str, Any]]:
    """The overview, as soon as it has so many sessions; it is written about once a second."""
    for _ in range(100):
        if len(sessions := await engine.sessions()) == wanted:
            return sessions
        await asyncio.sleep(0.05)
    raise AssertionError(sessions)


@running
async def test_a_session_moves_when_its_replica_dies(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    session = await engine.create({"classes": CLASSES})
    id = session["id"]
    for number in range(8):
        await sent(engine, id, pngs[number])
    # Not to lose what it holds, the other one refuses while the first lives.
    engine.route, engine.patience = lambda id: 1, 0.2
    with pytest.raises(ProblemError, match="held by another replica") as held:
        await sent(engine, id, pngs[8])
    assert (held.value.status, held.value.retry_after) == (503, 5)
    engine.route, engine.patience = lambda id: 0, 5.0
    await engine.kill(0)
    with pytest.raises(ProblemError, match="may have been counted or not") as unknown:
        await sent(engine, id, pngs[8])
    assert (unknown.value.status, unknown.value.code) == (409, "maybe-counted")
    tries = iter([0, 0, 1])
    engine.route = lambda id: next(tries, 1)
    found = await engine.session(id)  # asked again until the other one answers
    assert 8 - SAVE_EVERY <= found["steps"] <= 8
    assert found["classes"] == CLASSES
    assert await sent(engine, id, pngs[8]) == [found["steps"] + 1]
    assert (await engine.counts())["replicas"] <= 1


@running
async def test_images_with_a_key_are_sent_on_when_a_replica_dies(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    id = (await engine.create({"classes": CLASSES}))["id"]
    (first,) = await engine.images(id, pngs[:1], True, False, "frame-0")
    await engine.act(id, "save")
    (lost,) = await engine.images(id, pngs[1:2], True, False, "frame-1")
    await engine.kill(0)
    tries = iter([0, 0, 1])
    engine.route = lambda id: next(tries, 1)
    # The second image was not stored, and neither was its key: it is learned from again, the first one is not.
    (again,) = await engine.images(id, pngs[1:2], True, False, "frame-1")
    assert (lost["step"], again["step"], again.get("repeated")) == (2, 2, None)
    for number, step in ((0, 1), (1, 2)):
        (known,) = await engine.images(id, pngs[number : number + 1], True, False, f"frame-{number}")
        assert (known["step"], known["repeated"]) == (step, True)
    assert known["score"] == again["score"]
    assert (await engine.session(id))["steps"] == 2
    assert first["step"] == 1


@running
async def test_a_replica_that_was_taken_for_dead_writes_nothing_more(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    id = (await engine.create({"classes": CLASSES}))["id"]
    await sent(engine, id, *pngs[:2])
    stale = engine.parts[0]
    expire(stale.store)
    engine.route = lambda id: 1
    assert await sent(engine, id, pngs[3]) == [1]  # neither of the two was stored
    # What is still under way in the first one is refused, and it forgets the session.
    registry = stale.engine.registry
    with pytest.raises(LostError):
        await registry[id].save()
    with pytest.raises(ProblemError, match="no session"):
        registry[id]
    for _ in range(150):
        if id not in registry:
            break
        await asyncio.sleep(0.02)
    assert id not in registry
    engine.route = lambda id: 0
    engine.patience = 0.2
    with pytest.raises(ProblemError, match="held by another"):
        await sent(engine, id, pngs[4])
    engine.route = lambda id: 1
    assert await sent(engine, id, pngs[4]) == [2]


@running
async def test_a_replica_closes_with_a_session_that_it_has_lost(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    id = (await engine.create({"classes": CLASSES}))["id"]
    await sent(engine, id, pngs[0])
    replica = engine.parts[0]
    expire(replica.store)
    engine.route = lambda id: 1
    await sent(engine, id, pngs[1])
    with pytest.raises(LostError):
        await replica.engine.registry[id].save()
    engine.parts[0] = None
    await replica.close()
    with raises("store-failed"):
        replica.store.ids()
    assert replica.engine.registry.stopping
    assert await sent(engine, id, pngs[2]) == [2]


@running
async def test_a_snapshot_precedes_every_eviction(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    id = (await engine.create({"classes": CLASSES}))["id"]
    await sent(engine, id, *pngs[:3])
    first, second = engine.parts
    tenant = await first.tenant(id)
    # A disk that is full: the session stays, with its lease.
    write = first.store.save
    first.store.save = lambda session: (_ for _ in ()).throw(Error("no space", code="store-failed"))
    await getattr(tenant, "__del__")()  # noqa: B009
    assert first.store.is_held(id)
    first.store.save = write
    follower = asyncio.create_task(anext(aiter(engine.follow(id, 10**9))))
    await getattr(tenant, "__del__")()  # noqa: B009
    assert (first.store.held_ids(), id in first.engine.registry) == ([], False)
    (overview,) = await engine.sessions()
    assert (overview["steps"], overview["images_per_second"]) == (3, 0.0)
    engine.route = lambda id: 1
    assert await sent(engine, id, pngs[3]) == [4]
    assert second.store.is_held(id)
    told = await asyncio.wait_for(follower, 10)
    assert told.kind == "gap"  # there is no event of that number


@running
async def test_limits_of_the_router(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    made = [await engine.create({"classes": CLASSES}) for _ in range(6)]
    with pytest.raises(ProblemError, match="There are 6 sessions") as full:
        await engine.create({"classes": CLASSES})
    assert full.value.status == 503
    answers = await asyncio.gather(*(sent(engine, made[0]["id"], pngs[0]) for _ in range(12)), return_exceptions=True)
    steps = [answer for answer in answers if not isinstance(answer, Exception)]
    assert steps == [[number + 1] for number in range(8)]  # in the order in which they came
    refused = [answer for answer in answers if isinstance(answer, ProblemError)]
    assert [problem.status for problem in refused] == [429] * 4
    assert engine._waiting == {}
    assert not engine._locks._locks
    with raises("replicas-invalid"):
        RayEngine(engine.config, replicas=0)


@running
async def test_the_overview_has_sessions_in_no_replica(engine: Local, pngs: list[bytes]) -> None:
    engine.route = lambda id: 0
    id = (await engine.create({"classes": CLASSES}))["id"]
    await sent(engine, id, pngs[0])
    for _ in range(100):
        if (await engine.counts()).get("images_judged_total") == 1:
            break
        await asyncio.sleep(0.05)
    assert (await engine.counts())["replicas"] == 1  # the other one has not been asked for anything yet
    await engine.parts[0].engine.leave(id)
    await asyncio.sleep(1.1)
    (shown,) = await engine.sessions()
    assert (shown["id"], shown["steps"], shown["images_per_second"]) == (id, 1, 0.0)
    counts = await engine.counts()
    assert (counts["sessions_open"], counts["sessions"]) == (0, 1)


def test_the_command_line_says_what_the_engine_ray_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from ostta.cli.app import app

    refused = CliRunner().invoke(app, ["serve", "--engine", "ray"])
    assert refused.exception.code == "store-missing"
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = CliRunner().invoke(app, ["serve", "--engine", "ray", "--state-dir", str(tmp_path)])
    assert 'pip install "ostta[ray]"' in str(refused.exception)
    assert list(tmp_path.iterdir()) == []
