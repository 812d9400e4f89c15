"""An image is learned from once, however often it is sent: idempotency keys, and clients that send them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ostta
from helpers.serving import Served, eventually, is_problem, pngs, served
from ostta.client import calls
from ostta.live import AsyncClient, Client
from ostta.server import Limits, SessionStore, Settings


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Served]:
    """A server that gives up on an answer soon, for clients that hardly wait before they send again."""
    monkeypatch.setattr(calls, "LONGEST", 0.02)
    monkeypatch.setattr(calls, "RETRIES", 1000)
    store = SessionStore(tmp_path)
    with served(Settings(limits=Limits(answer_seconds=0.1)), store) as server:
        yield server
    store.close()


def answered_409(server: Served) -> int:
    return sum(line.get("status") == 409 for line in server.lines())


def steps(server: Served, id: str) -> int:
    return server.http.get(f"/sessions/{id}").json()["steps"]


@pytest.mark.parametrize("kind", ["client", "async client"])
def test_a_client_that_sends_again_is_not_learned_from_twice(slow: Served, kind: str) -> None:
    url, id, answers = str(slow.http.base_url), slow.session(), []

    def send() -> None:
        with Client(url) as client:
            answers.append(client.send(id, pngs()[0]))
            answers.extend(client.send_many(id, pngs()[1:4]))

    async def send_later() -> None:
        async with AsyncClient(url) as client:
            answers.append(await client.send(id, pngs()[0]))
            answers.extend(await client.send_many(id, pngs()[1:4]))

    thread = threading.Thread(target=send if kind == "client" else lambda: asyncio.run(send_later()))
    with slow.engine.pool.held(id):
        thread.start()
        eventually(lambda: answered_409(slow) >= 3)
    thread.join()
    assert [answer["step"] for answer in answers] == [1, 2, 3, 4]
    assert steps(slow, id) == 4
    assert slow.http.get(f"/sessions/{id}").json()["images"] == 4


def test_without_a_key_it_is_said_that_an_image_may_have_been_counted(slow: Served) -> None:
    id, sent = slow.session(), []

    def post(content: bytes, **more: Any) -> httpx.Response:
        return slow.http.post(f"/sessions/{id}/images", content=content, **more)

    with slow.engine.pool.held(id):
        answer = post(pngs()[0])
        is_problem(answer, 409, "may have been counted")
        assert answer.json()["type"] == "/problems/maybe-counted"
        # Nothing is learned here, so that it can be sent again.
        is_problem(post(pngs()[0], params={"learn": "false"}), 503, "no answer within 0.1 seconds")
    eventually(lambda: steps(slow, id) == 1)

    class Once:
        """Answers every request with 409, and counts them."""

        def __call__(self, request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return httpx.Response(409, json=answer.json())

    with Client("http://server") as client:
        client._http = httpx.Client(base_url="http://server", transport=httpx.MockTransport(Once()))
        with pytest.raises(ostta.Error, match="may have been counted") as raised:
            client.freeze(id)
    assert (raised.value.code, len(sent)) == ("maybe-counted", 1)


def test_a_key_is_known_after_a_restart_and_belongs_to_one_image(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    with served(store=store) as server:
        id = server.session()
        first = server.http.post(f"/sessions/{id}/images", content=pngs()[0], headers={"idempotency-key": "frame-1"})
        assert "repeated" not in first.json()
    with served(store=store) as server, Client(str(server.http.base_url)) as client:
        again = client.send(id, pngs()[0], key="frame-1")
        assert again["repeated"] is True
        for name in (
            "step",
            "label",
            "known",
            "score",
            "threshold",
            "verdict",
            "best",
            "warming_up",
            "probability",
            "undecided",
            "explanation",
        ):
            assert again[name] == first.json()[name]
        assert set(first.json()) <= set(again)
        with pytest.raises(ostta.Error, match="another image"):
            client.send(id, pngs()[1], key="frame-1")
        # A key is of a session, and of what is learned.
        assert "repeated" not in client.send(server.session(), pngs()[0], key="frame-1")
        assert "repeated" not in client.send(id, pngs()[0], key="frame-1", learn=False)
        assert client.send(id, pngs()[0])["step"] == 2
        row = [1.0] + [0.0] * 127
        assert [client.send_features(id, [row, row], key="rows")[n]["step"] for n in (0, 1)] == [3, 4]
        assert steps(server, id) == 4
        for wrong in ("", "x" * 201, "two words", "é"):
            answer = server.http.post(
                f"/sessions/{id}/images", content=pngs()[0], headers={"idempotency-key": wrong.encode("latin-1")}
            )
            is_problem(answer, 400, "Idempotency-Key")


def test_the_last_keys_of_a_session_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostta.server.sessions.idempotency.KEYS", 3)
    with served() as server, Client(str(server.http.base_url)) as client:
        id = server.session()
        for number in range(4):
            client.send(id, pngs()[number], key=f"frame-{number}")
        assert client.send(id, pngs()[1], key="frame-1")["step"] == 2
        assert client.send(id, pngs()[0], key="frame-0")["step"] == 5


def test_what_was_refused_before_it_was_learned_can_be_sent_again() -> None:
    """A request that waits for its turn while the session is stopped was not counted.

    One of several of which some were, was.
    """
    from ostta.server.problems import ProblemError

    with served() as server:
        id = server.session()
        session = server.engine.registry[id]
        moved = ProblemError(503, "The session is moving.", 1)
        session._loop.call_soon_threadsafe(session.close, moved)
        is_problem(server.send(id, pngs()[0]), 503, "moving")
        session._loop.call_soon_threadsafe(session.open)
        assert server.send(id, pngs()[0]).json()["step"] == 1


@pytest.mark.parametrize("statement", [
    "INSERT INTO answers VALUES (?, '00', 1, 'null')",
    "INSERT INTO history VALUES (?, 1, 'prediction', 9e9, '[1]')",
    "INSERT INTO history VALUES (?, 1, 'guard', 9e9, '{\"step\": 1}')",
    "UPDATE sessions SET about = '{\"counts\": 3}' WHERE id = ?",
    "UPDATE sessions SET about = '{\"next_number\": \"x\"}' WHERE id = ?",
])  # fmt: skip
def test_a_damaged_row_concerns_its_session_alone(statement: str, tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    ids = []
    with served(store=store) as server:
        ids = [server.session() for _ in range(2)]
    store._database.run(lambda cursor: cursor.execute(statement, (ids[0],)))
    with served(store=store) as server:
        assert [one["id"] for one in server.http.get("/sessions").json()["sessions"]] == ids[1:]
        (line,) = (line for line in server.lines() if line["message"] == "session could not be restored")
        assert (line["session"], "is damaged" in line["problem"]) == (ids[0], True)
    assert ids[0] in store.ids()
