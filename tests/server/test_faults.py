"""Servers, databases and disks that fail at random moments under load.

Each time, no session is lost, at most `--save-every` steps of a session are lost, and no image is learned from twice:
every client sends its images with idempotency keys and repeats what was not answered. Slow: processes are started and
killed again and again.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.postgres import postgres_server
from helpers.serving import CLASSES, pngs
from ostta.server import SessionStore

pytestmark = pytest.mark.slow
SAVE_EVERY, SESSIONS, TIMES = 10, 6, 20
Running = subprocess.Popen[str]
KINDS: list[dict[str, Any]] = [{}, {"method": "tda"}, {"method": "rosita"}]


@contextmanager
def process(*options: str) -> Iterator[tuple[Running, str]]:
    """`ostta serve` as a process of its own, and its address."""
    command = [sys.executable, "-c", "from ostta.cli import main; main()", "serve", "--port", "0", "--device", "cpu"]
    command += ["--backbone", "embedded", "--save-every", str(SAVE_EVERY), "--save-seconds", "2", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stderr is not None
            url, lines = None, []
            for line in running.stderr:
                lines.append(line)
                if line.startswith("{"):
                    content = json.loads(line)
                    if content["message"] == "sessions restored":
                        assert content["unreadable"] == 0, "a stored session was damaged"
                    if content["message"] == "listening":
                        url = content["url"]
                        break
            assert url is not None, "".join(lines)
            threading.Thread(target=running.stderr.read, daemon=True).start()
            yield running, url
        finally:
            running.kill()


def refusal(*options: str) -> str:
    """What a server says that does not start."""
    command = [sys.executable, "-c", "from ostta.cli import main; main()", "serve", "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    return ended.stdout + ended.stderr


@contextmanager
def mounted(path: Path) -> Iterator[Callable[[str], None]]:
    """A disk of 32 MB in memory; the function sets its options, such as "ro"."""

    def mount(options: str) -> int:
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True).returncode

    if shutil.which("mount") is None or mount("size=32m"):
        pytest.skip("only root can mount a disk")
    try:
        yield lambda options: pytest.fail(options) if mount(f"remount,{options}") else None
    finally:
        subprocess.run(["umount", "-l", path], check=True)


class Camera(threading.Thread):
    """Sends the images of one session, one after the other, each with its own key, until it is told to stop."""

    def __init__(self, session: Camera | str, url: str) -> None:
        super().__init__(daemon=True)
        before = session if isinstance(session, Camera) else None
        self.id = before.id if before is not None else str(session)
        # The steps of all images that were answered, by their number.
        self.answered: dict[int, int] = dict(before.answered) if before is not None else {}
        self.next = before.next if before is not None else 0
        self.url, self.stopped, self.problem = url, threading.Event(), None

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while not self.stopped.is_set():
                try:
                    answer = http.post(
                        f"/sessions/{self.id}/images",
                        content=pngs()[self.next % 60],
                        headers={"idempotency-key": f"image-{self.next}"},
                    )
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    self.answered[self.next] = answer.json()["step"]
                    self.next += 1
                elif answer.status_code not in (409, 429, 503):
                    self.problem = answer.text
                    return
                else:
                    time.sleep(0.1)

    def resume(self, steps: int) -> int:
        """Continue after a crash with `steps` stored steps; returns how many answered steps were lost."""
        last = max(self.answered.values(), default=0)
        lost = last - steps
        # An image whose answer was on its way may have been stored.
        assert lost <= SAVE_EVERY, (self.id, last, steps)
        assert steps <= last + 1, (self.id, last, steps)
        self.answered = {number: step for number, step in self.answered.items() if step <= steps}
        self.next = steps
        return max(0, lost)


def begin(url: str) -> list[Camera]:
    with httpx.Client(base_url=url, timeout=60) as http:
        made = [
            http.post("/sessions", json={"classes": CLASSES, **KINDS[number % 3], "seed": number}).json()["id"]
            for number in range(SESSIONS)
        ]
    return [Camera(id, url) for id in made]


def resume(cameras: list[Camera], url: str) -> tuple[list[Camera], int]:
    """The cameras of the next round; no session is lost, and a key that was stored is not learned from again."""
    with httpx.Client(base_url=url, timeout=60) as http:
        found = {one["id"]: one for one in http.get("/sessions").json()["sessions"]}
        assert found.keys() == {camera.id for camera in cameras}
        lost = [camera.resume(found[camera.id]["steps"]) for camera in cameras]
        for camera in cameras:
            if camera.next:
                # Sent again: it was learned from exactly once.
                headers = {"idempotency-key": f"image-{camera.next - 1}"}
                answer = http.post(
                    f"/sessions/{camera.id}/images", content=pngs()[(camera.next - 1) % 60], headers=headers
                ).json()
                assert (answer["step"], answer["repeated"]) == (camera.next, True)
                # Charts are stored with the state.
                (point,) = http.get(f"/sessions/{camera.id}/recent", params={"limit": 1}).json()["points"]
                assert point["step"] == camera.next
    return [Camera(camera, url) for camera in cameras], max(lost)


def load(cameras: list[Camera], rng: random.Random) -> None:
    """Let all cameras send for a random while, but until there was some load."""
    before = sum(len(camera.answered) for camera in cameras)
    for camera in cameras:
        camera.start()
    until, wanted = time.monotonic() + 120, rng.randint(20, 120)
    while sum(len(camera.answered) for camera in cameras) - before < wanted:
        assert time.monotonic() < until, "there was hardly any load"
        time.sleep(0.005)


def stop(cameras: list[Camera]) -> None:
    for camera in cameras:
        camera.stopped.set()
        camera.join()
        assert camera.problem is None, camera.problem


def twenty_times(rng: random.Random, fault: Callable[[Running, str, list[Camera]], None], *options: str) -> None:
    """Start a server with the sessions of the time before, cause a fault under load, and kill the server."""
    cameras, worst = list[Camera](), 0
    for turn in range(TIMES + 1):
        with process(*options) as (running, url):
            if turn:
                cameras, lost = resume(cameras, url)
                worst = max(worst, lost)
            else:
                cameras = begin(url)
            load(cameras, rng)
            fault(running, url, cameras)
            running.kill()
            stop(cameras)
    print(f"{sum(len(camera.answered) for camera in cameras)} steps kept, at most {worst} lost at once")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_servers_killed_twenty_times(kind: str, tmp_path: Path) -> None:
    """A second server is refused meanwhile, and disturbs nothing."""
    with postgres_server() as database:
        options = ["--state-dir", str(tmp_path)] if kind == "sqlite" else ["--store", database.new_database()]
        turns = iter(range(TIMES + 1))

        def fault(*_: Any) -> None:
            if next(turns) == 2:
                assert "in use by another server" in refusal(*options)

        twenty_times(random.Random(1), fault, *options)


def test_a_database_killed_twenty_times() -> None:
    """The server goes on while its database is away, and stores again afterwards: nothing at all is lost."""
    rng = random.Random(2)
    with postgres_server() as database:
        options = ["--store", database.new_database()]
        with process(*options) as (running, url):
            cameras = begin(url)
            for _ in range(TIMES):
                load(cameras, rng)
                database.kill()
                time.sleep(rng.random())
                database.start()
                stop(cameras)
                for camera in cameras:
                    # No step twice, and none left out.
                    assert list(camera.answered.values()) == list(range(1, len(camera.answered) + 1))
                cameras = [Camera(camera, url) for camera in cameras]
            time.sleep(8)  # a failed save is tried again after five seconds
            with httpx.Client(base_url=url, timeout=60) as http:
                assert {one["problem"] for one in http.get("/sessions").json()["sessions"]} == {None}
            running.kill()
            running.wait()
        with process(*options) as (_, url):
            resume(cameras, url)


@pytest.mark.parametrize("kind", ["limit", "disk"])
def test_a_disk_that_is_full_twenty_times(kind: str, tmp_path: Path) -> None:
    """Writing fails in a process that runs: by a limit for the size of its files, or because a small disk is full."""
    rng = random.Random(3)

    def fault(running: Running, url: str, cameras: list[Camera]) -> None:
        if kind == "limit":
            size = (tmp_path / "sessions.sqlite-wal").stat().st_size
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (size, -1))
        else:
            with open(tmp_path / "filler", "wb", buffering=0) as filler, suppress(OSError):
                while filler.write(bytes(4096)):
                    pass
        time.sleep(1 + rng.random())
        with httpx.Client(base_url=url, timeout=60) as http:
            if rng.random() < 0.5:
                assert http.post("/sessions", json={"classes": CLASSES}).status_code in (201, 507)
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (-1, -1))
            (tmp_path / "filler").unlink(missing_ok=True)
            stop(cameras)
            until = time.monotonic() + 30
            while any(one["problem"] for one in http.get("/sessions").json()["sessions"]):
                assert time.monotonic() < until, "it did not recover"
                time.sleep(0.2)
            made = {one["id"] for one in http.get("/sessions").json()["sessions"]}
            for id in made - {camera.id for camera in cameras}:
                assert http.delete(f"/sessions/{id}").status_code == 204

    with mounted(tmp_path) if kind == "disk" else nullcontext():
        twenty_times(rng, fault, "--state-dir", str(tmp_path))


def test_a_disk_that_is_read_only_twenty_times(tmp_path: Path) -> None:
    """After a kill the disk is read-only: the server says so and does not start. Later it continues."""
    with mounted(tmp_path) as remount:

        def fault(running: Running, _: str, cameras: list[Camera]) -> None:
            running.kill()
            stop(cameras)
            running.wait()
            remount("ro")
            said = refusal("--state-dir", str(tmp_path))
            assert "cannot be used" in said, said
            assert "Traceback" not in said
            remount("rw")

        twenty_times(random.Random(5), fault, "--state-dir", str(tmp_path))


def test_the_command_serves_and_stops_on_sigterm(tmp_path: Path) -> None:
    with process("--state-dir", str(tmp_path)) as (running, url):
        cameras = begin(url)
        load(cameras, random.Random(4))
        running.send_signal(signal.SIGTERM)
        for camera in cameras:
            camera.stopped.set()
        assert running.wait(60) == 0
    for camera in cameras:
        camera.join()
    store = SessionStore(tmp_path)
    for camera in cameras:
        assert store.about(camera.id)["shown"]["steps"] == len(camera.answered)
        assert store.about(camera.id)["shown"]["saved_steps"] <= len(camera.answered)
    store.close()
