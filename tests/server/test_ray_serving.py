"""`ostta serve --engine ray` on a cluster of this machine: three replicas, nine sessions under load.

One replica is killed, and the database is restarted.

Slow: a Ray cluster starts, and four processes load the model.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ostta
from helpers.postgres import PostgresServer, postgres_server
from ostta.data import open_dataset
from ostta.server.sessions.store import SessionStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("ray") is None or find_spec("fastapi") is None, reason="Ray or FastAPI is not installed"
    ),
]
REPLICAS, SESSIONS, SAVE_EVERY, CLASSES = 3, 9, 10, ["airplane", "automobile", "bird", "cat"]
# Steps before the kill, and after it, of each session.
BEFORE, AFTER = 25, 25


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, database: PostgresServer) -> Iterator[tuple[str, str]]:
    httpx = pytest.importorskip("httpx")
    folder, place = tmp_path_factory.mktemp("server"), database.new_database()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (folder / "log").open("wb")
    options = [
        "--engine",
        "ray",
        "--replicas",
        str(REPLICAS),
        "--threads",
        "1",
        "--lease-seconds",
        "5",
        "--save-every",
        str(SAVE_EVERY),
    ]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from ostta.cli import main; main()",
            "serve",
            "--backbone",
            "embedded",
            "--port",
            str(port),
            "--store",
            place,
            *options,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"},
        stdout=log,
        stderr=log,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "log").read_text()
            try:
                if httpx.get(f"{address}/ready", timeout=10).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(1)
        yield address, place
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        finally:
            process.kill()
            log.close()
            print((folder / "log").read_text()[-6000:])
    # The end is an orderly one: nobody holds a lease.
    assert {holder for holder, _, _ in leases(place).values()} == {None}


def leases(place: str | Path) -> dict[str, tuple[str | None, int, int]]:
    """The holder of each session, its fencing number, and the number under which its snapshot was stored."""
    store = SessionStore(place, name="test")
    rows = store._run(
        "SELECT sessions.id, holder, sessions.fence, snapshots.fence FROM sessions JOIN snapshots ON session = "
        "sessions.id"
    )
    store.close()
    return {id: (holder, fence, stored) for id, holder, fence, stored in rows}


def processes(place: str | Path) -> dict[str, int]:
    """The process of each replica, by its id as a holder; the name of a replica has it at its end."""
    store = SessionStore(place, name="test")
    rows = store._run("SELECT id, name FROM holders WHERE name LIKE ?", "replica %")
    store.close()
    return {id: int(name.split()[-1]) for id, name in rows}


class Watch(threading.Thread):
    """Looks at all leases again and again: fencing numbers never go back, and no snapshot is ahead of its lease."""

    def __init__(self, place: str) -> None:
        super().__init__(daemon=True)
        self.place, self.ended, self.back = place, threading.Event(), list[Any]()
        self.seen: dict[str, tuple[int, int]] = {}
        self.looks = 0

    def run(self) -> None:
        import psycopg

        while not self.ended.wait(0.02):
            try:
                with psycopg.connect(self.place) as connection:
                    rows = connection.execute(
                        "SELECT id, sessions.fence, snapshots.fence FROM sessions JOIN snapshots ON session = id"
                    ).fetchall()
            except psycopg.OperationalError:
                continue  # it is being restarted
            for id, fence, stored in rows:
                now = (fence, stored)
                if now < self.seen.get(id, now) or stored > fence:
                    self.back.append((id, self.seen.get(id), now))
                self.seen[id] = now
            self.looks += 1


def test_sessions_make_room_after_a_snapshot(tmp_path: Path) -> None:
    """Four sessions on a replica that holds two: Ray lets the one leave that was used longest ago."""
    from ostta.server.cluster.engine import RayEngine
    from ostta.server.cluster.replica import ReplicaConfig
    from ostta.server.settings import Settings

    buffer = io.BytesIO()
    open_dataset("sample:cifar10c").image(0).save(buffer, "PNG")

    async def main() -> None:
        engine = RayEngine(ReplicaConfig("embedded", tmp_path, Settings(), lease_seconds=5), replicas=1, sessions=2)
        await engine.start()
        try:
            ids = [(await engine.create({"classes": CLASSES}))["id"] for _ in range(4)]
            for number in range(3):
                for id in ids:
                    (answer,) = await engine.images(id, [buffer.getvalue()], True, False)
                    assert answer["step"] == number + 1
                    assert sum(holder is not None for holder, _, _ in leases(tmp_path).values()) <= 2
            assert [fence for _, fence, _ in leases(tmp_path).values()] == [4] * 4
            for _ in range(40):  # the overview is a second or two behind
                steps = [session["steps"] for session in await engine.sessions()]
                if steps == [3] * 4:
                    break
                await asyncio.sleep(1)
            assert steps == [3] * 4
        finally:
            await engine.stop()
        assert {holder for holder, _, _ in leases(tmp_path).values()} == {None}

    asyncio.run(asyncio.wait_for(main(), 600))


async def post(client: Any, path: str, **content: Any) -> Any:
    """The answer, sent again as often as the server asks for that."""
    for _ in range(600):
        answer = await client.post(path, **content)
        if answer.status_code not in (409, 429, 503):
            return answer
        assert int(answer.headers["retry-after"]) > 0
        await asyncio.sleep(0.2)
    raise AssertionError(answer.text)


def test_a_replica_and_the_database_are_killed_under_load(
    server: tuple[str, str], database: PostgresServer, tmp_path: Path
) -> None:
    import httpx

    address, place = server
    data, pngs = open_dataset("sample:cifar10c"), []
    for number in range(32):
        buffer = io.BytesIO()
        data.image(number).save(buffer, "PNG")
        pngs.append(buffer.getvalue())
    steps: dict[str, list[int]] = {}
    figures: dict[str, Any] = {}
    followed: list[tuple[str, int]] = []

    async def camera(client: httpx.AsyncClient, id: str, killed: asyncio.Event) -> None:
        after = 0
        while after < AFTER:
            answer = await post(
                client,
                f"/sessions/{id}/images",
                content=pngs[len(steps[id]) % 32],
                headers={"content-type": "image/png"},
            )
            assert answer.status_code == 200, answer.text
            steps[id].append(answer.json()["step"])
            after += killed.is_set()

    async def follow(client: httpx.AsyncClient, id: str) -> None:
        async with client.stream("GET", f"/sessions/{id}/events", timeout=None) as stream:
            kind = ""
            async for line in stream.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "id":
                    followed.append((kind, int(value)))

    async def main() -> None:
        async with httpx.AsyncClient(base_url=address, timeout=120) as client:
            info = (await client.get("/info")).json()
            assert (info["engine"], info["save_every"]) == ("ray", SAVE_EVERY)
            for number in range(SESSIONS):
                made = await post(client, "/sessions", json={"classes": CLASSES, "name": f"camera {number}"})
                assert made.status_code == 201, made.text
                steps[made.json()["id"]] = []
            killed = asyncio.Event()
            cameras = [asyncio.create_task(camera(client, id, killed)) for id in steps]
            while min(map(len, steps.values())) < BEFORE:
                await asyncio.sleep(0.05)
                for task in cameras:
                    if task.done():
                        task.result()
            database.kill()
            await asyncio.sleep(1)
            database.start()
            # Sessions continue without the database. A replica that dies before they are stored again loses more. The
            # overview has no news of sessions while the database is away, so each session is asked for.
            until = time.monotonic() + 60
            await asyncio.sleep(1)
            while any([(await client.get(f"/sessions/{id}")).json()["problem"] for id in steps]):
                assert time.monotonic() < until, "sessions are not stored again"
                await asyncio.sleep(0.5)
            await asyncio.sleep(2.5)  # the overview is a second or two behind
            holders = {id: holder for id, (holder, _, _) in leases(place).items()}
            replicas = processes(place)
            assert len(replicas) == REPLICAS
            figures["sessions of each replica"] = [list(holders.values()).count(key) for key in replicas]
            victim = max(replicas, key=list(holders.values()).count)
            hit = [id for id, holder in holders.items() if holder == victim]
            assert hit
            follower = asyncio.create_task(follow(client, hit[0]))
            while not followed:
                await asyncio.sleep(0.05)
            before = {id: len(each) for id, each in steps.items()}
            os.kill(replicas[victim], signal.SIGKILL)
            began = time.monotonic()
            killed.set()
            answered: dict[str, float] = {}
            while not all(task.done() for task in cameras):
                await asyncio.sleep(0.02)
                for id in hit:
                    # The answer that was under way may be from before.
                    if id not in answered and len(steps[id]) > before[id] + 1:
                        answered[id] = time.monotonic() - began
            await asyncio.gather(*cameras)
            figures["seconds until a moved session answers"] = [round(each, 2) for each in answered.values()]
            assert (await client.get("/health")).json() == {"status": "ok"}
            await asyncio.sleep(2.5)  # the overview is a second or two behind
            shown = (await client.get("/sessions")).json()["sessions"]
            assert {session["id"]: session["steps"] for session in shown} == {
                id: each[-1] for id, each in steps.items()
            }
            lost = []
            for id, each in steps.items():
                falls = [spot for spot in range(1, len(each)) if each[spot] <= each[spot - 1]]
                assert len(falls) <= (id in hit), (id, each)
                for spot in range(1, len(each)):
                    if spot in falls:
                        lost.append(each[spot - 1] - (each[spot] - 1))
                    elif id not in hit:
                        assert each[spot] == each[spot - 1] + 1
                    else:
                        # One that was under way when the replica died may have been counted without an answer.
                        assert each[spot] - each[spot - 1] in (1, 2)
                state = (await client.get(f"/sessions/{id}/state")).content
                path = tmp_path / "exported.ostta"
                path.write_bytes(state)
                restored = ostta.Adapter.restore(path)
                assert (restored.steps, list(restored.classes)) == (each[-1], CLASSES)
            assert all(0 <= each <= SAVE_EVERY for each in lost), lost
            figures["steps lost"] = lost
            follower.cancel()
            text = (await client.get("/metrics")).text
            figures["metrics"] = re.findall(r"^ostta_(?:replicas|sessions_open|sessions) .*$", text, flags=re.MULTILINE)

    watch = Watch(place)
    watch.start()
    try:
        asyncio.run(asyncio.wait_for(main(), 900))
    finally:
        watch.ended.set()
        watch.join()
    assert watch.looks > 50
    assert watch.back == []
    numbers = [number for _, number in followed]
    assert numbers == sorted(numbers)
    figures["requests answered"] = sum(map(len, steps.values()))
    print(json.dumps(figures))
