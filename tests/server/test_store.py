"""The store in SQLite and in PostgreSQL.

Leases with fencing numbers, snapshots, and failures.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.errors import raises
from helpers.postgres import PostgresServer, postgres_server
from helpers.serving import eventually, pngs, served
from ostta.server.sessions.databases import MIGRATIONS, open_database
from ostta.server.sessions.store import (
    Entry,
    HeldError,
    LostError,
    MissingError,
    SessionStore,
    Stored,
    StoredAnswer,
    new_id,
)

Place = str | Path


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return tmp_path / "state"
    running: PostgresServer = request.getfixturevalue("server")
    return running.new_database()


@pytest.fixture
def stores(place: Place) -> Iterator[Callable[..., SessionStore]]:
    made: list[SessionStore] = []

    def make(name: str = "server", **given: Any) -> SessionStore:
        made.append(SessionStore(place, name=name, **{"lease_seconds": 60.0, **given}))
        return made[-1]

    yield make
    for store in made:
        store.close()


def expire(store: SessionStore) -> None:
    """As after a long pause: the process runs, and its lease has expired."""
    store._stop.set()
    if store._thread is not None:
        store._thread.join()
    store._run("UPDATE holders SET expires = 0 WHERE id = ?", store.holder)


def test_a_session_belongs_to_the_process_that_loads_it(stores: Callable[..., SessionStore]) -> None:
    one, other, id = stores("one"), stores("other"), new_id()
    one.create(Stored(id, b"state", {"name": "door"}))
    assert (one.held_ids(), other.held_ids(), other.ids(), other.count()) == ([id], [], [id], 1)
    for act in (other.load, other.require_free):
        with pytest.raises(HeldError, match="held by one"):
            act(id)
    assert other.about(id) == {"name": "door"}
    assert other.all_about() == {id: {"name": "door"}}
    one.require_free(id)
    one.release(id)
    assert other.load(id).state == b"state"
    assert (one.is_held(id), other.is_held(id)) == (False, True)
    with raises("session-lost"):
        one.save(Stored(id, b"late", {}))
    with raises("session-held"):
        one.create(Stored(id, b"again", {}))
    other.delete(id)
    assert (other.ids(), one.exists(id), other._run("SELECT * FROM snapshots")) == ([], False, [])
    other.delete(id)
    with raises("session-lost"):
        other.save(Stored(id, b"after it was deleted", {}))
    for act in (one.load, one.about, one.require_free):
        with pytest.raises(MissingError):
            act(id)
    for strange in ("../etc", "", "A" * 32, "' OR 1=1 --"):
        with raises("session-unknown"):
            one.load(strange)
        with raises("session-unknown"):
            one.create(Stored(strange, b"", {}))


def test_a_writer_that_was_paused_is_refused(stores: Callable[..., SessionStore]) -> None:
    one, id = stores("one"), new_id()
    one.create(Stored(id, b"0", {}))
    expire(one)
    other = stores("other")
    assert other.load(id).state == b"0"
    other.save(Stored(id, b"1", {}))
    with pytest.raises(LostError, match="another writer since lease 1"):
        one.save(Stored(id, b"stale", {}, [Entry(9, "guard", 1.0, "{}")], [StoredAnswer("d", 1, "[]")]))
    assert one.held_ids() == []
    one.delete(id)
    one.release(id)
    assert other.is_held(id)
    other.release(id)
    stored = stores("third").load(id)
    assert (stored.state, stored.entries, stored.answers) == (b"1", [], [])


def test_entries_and_answers_are_stored_with_the_snapshot(stores: Callable[..., SessionStore]) -> None:
    store, id = stores(), new_id()
    points = [Entry(number, "prediction", float(number), f"[{number}]") for number in range(1, 5)]
    events = [Entry(5, "guard", 5.0, '{"a": "\\u00e9"}'), Entry(6, "session", 6.0, "{}")]
    answers = [StoredAnswer(f"key {number}", number, "[]") for number in range(1, 4)]
    store.create(Stored(id, b"0", {}, points[:2], answers[:1]))
    store.save(Stored(id, bytes(range(256)) * 9000, {"é": 1}, [*points[2:], *events], answers[1:]))
    store.release(id)
    stored = store.load(id)
    assert (stored.state, stored.about) == (bytes(range(256)) * 9000, {"é": 1})
    assert (stored.entries, stored.answers) == ([*points, *events], answers)
    # Old ones are deleted by their number, by their place, and by their time.
    store.save(Stored(id, b"2", {}, first_point=3, first_event=6, first_answer=2, since=3.5))
    store.release(id)
    stored = store.load(id)
    assert (stored.entries, stored.answers) == ([points[3], events[1]], answers[1:])


def test_only_one_of_many_takes_a_free_session(stores: Callable[..., SessionStore]) -> None:
    id, rivals = new_id(), [stores(f"rival {number}") for number in range(4)]
    rivals[0].create(Stored(id, b"", {}))
    rivals[0].release(id)
    for _ in range(5):
        winners: list[SessionStore] = []
        barrier = threading.Barrier(len(rivals))

        def take(store: SessionStore, barrier: threading.Barrier = barrier, winners: list[Any] = winners) -> None:
            barrier.wait()
            with suppress(HeldError):
                store.load(id)
                winners.append(store)

        threads = [threading.Thread(target=take, args=(store,)) for store in rivals]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = winners
        winner.save(Stored(id, b"x", {}))
        winner.release(id)


@pytest.mark.parametrize("seed", range(5))
def test_accepted_snapshots_are_made_from_one_another(stores: Callable[..., SessionStore], seed: int) -> None:
    """Three writers in random order, whose leases expire at random: no accepted snapshot leaves one before it out."""
    rng, id = random.Random(seed), new_id()
    writers = [stores(str(number)) for number in range(3)]
    for writer in writers:
        writer._stop.set()
    writers[0].create(Stored(id, b"0", {}))
    known, accepted, stale = {0: 0}, 0, 0
    for turn in range(60):
        number = rng.randrange(3)
        writer, act = writers[number], rng.choice(["load", "save", "save", "expire", "release"])
        if act == "load":
            with suppress(HeldError):
                known[number] = int(writer.load(id).state)
        elif act == "save" and number in known:
            try:
                writer.save(Stored(id, str(turn).encode(), {}))
            except LostError:
                stale += 1
                del known[number]
            else:
                assert known[number] == accepted
                accepted = known[number] = turn
        elif act == "expire":
            writer._run("UPDATE holders SET expires = 0 WHERE id = ?", writer.holder)
        elif act == "release" and number in known:
            writer.release(id)
            del known[number]
        if rng.random() < 0.5:
            rng.choice(writers).renew()
    assert accepted


def test_a_process_that_ends_gives_its_sessions_back(place: Place) -> None:
    one, id = SessionStore(place), new_id()
    one.create(Stored(id, b"", {}))
    one.publish({"sessions": [], "counts": {"sessions": 1}})
    other = SessionStore(place)
    assert other.published() == [{"sessions": [], "counts": {"sessions": 1}}]
    one.close()
    assert other.published() == []
    other.load(id)
    other.close()
    with raises("lease-invalid"):
        SessionStore(place, lease_seconds=0)


def test_leases_are_renewed_in_the_background(stores: Callable[..., SessionStore]) -> None:
    one, other, id = stores("one", lease_seconds=0.5), stores("other"), new_id()
    one.create(Stored(id, b"", {}))
    threading.Event().wait(1.2)
    with raises("session-held"):
        other.load(id)
    one._stop.set()
    threading.Event().wait(0.7)
    other.load(id)


def test_a_lease_is_renewed_while_a_snapshot_is_written(server: PostgresServer) -> None:
    """The write takes longer than the lease."""

    class Slow(SessionStore):
        def _write(self, cursor: Any, session: Stored, fence: int) -> None:
            super()._write(cursor, session, fence)
            cursor.execute("SELECT pg_sleep(2)::text")

    place, id = server.new_database(), new_id()
    one, other = Slow(place, lease_seconds=0.5), SessionStore(place, lease_seconds=0.5)
    one.create(Stored(id, b"1", {}))
    writing = threading.Thread(target=one.save, args=(Stored(id, b"2", {}),))
    writing.start()
    while writing.is_alive():
        with raises("session-held"):
            other.load(id)
    writing.join()
    assert one.is_held(id)
    one.close()
    assert other.load(id).state == b"2"
    other.close()


def test_a_server_of_one_process_keeps_others_out(place: Place) -> None:
    one = SessionStore(place, exclusive=True)
    for exclusive in (True, False):
        with raises("store-in-use"):
            SessionStore(place, exclusive=exclusive)
    id = new_id()
    one.create(Stored(id, b"1", {}))
    one.close()
    shared = [SessionStore(place, lease_seconds=1), SessionStore(place, lease_seconds=1)]
    with raises("store-in-use"):
        SessionStore(place, exclusive=True)
    shared[0].load(id)
    shared[0]._stop.set()
    shared[0]._close()  # killed
    shared[1].close()
    last = SessionStore(place, exclusive=True)
    assert last.load(id).state == b"1"
    last.close()


def test_a_closed_store_can_be_opened_at_once(place: Place) -> None:
    for _ in range(100):
        SessionStore(place, exclusive=True).close()


def test_the_lock_of_a_killed_server_is_awaited(server: PostgresServer) -> None:
    place = server.new_database()
    for _ in range(20):
        killed = SessionStore(place, exclusive=True, lease_seconds=0.1)
        killed._stop.set()
        killed._thread.join()  # type: ignore[union-attr]
        killed._database._connection.close()  # type: ignore[attr-defined]
    SessionStore(place, exclusive=True).close()


def test_a_store_of_a_later_version_is_refused(place: Place) -> None:
    store = SessionStore(place)
    store._run("INSERT INTO migrations (number) VALUES (?)", len(MIGRATIONS) + 1)
    store.close()
    with raises("store-too-new"):
        SessionStore(place)


def test_a_disk_that_is_full_or_read_only_changes_nothing(place: Place) -> None:
    """SQLite itself says that the disk is full, and both databases that they are read-only."""
    store, id = SessionStore(place, exclusive=True), new_id()
    store.create(Stored(id, b"old", {"name": "a"}))
    new = Stored(id, b"new" * 100_000, {"name": "b"}, [Entry(1, "guard", 1.0, "{}")])

    def refused() -> None:
        with raises("store-failed"):
            store.save(new)
        with raises("store-failed"):
            store.create(Stored(new_id(), b"x" * 300_000, {}))
        assert (store.about(id), store.count()) == ({"name": "a"}, 1)
        assert store._run("SELECT count(*) FROM history") == [(0,)]

    if isinstance(place, Path):
        store._run("PRAGMA max_page_count = 10")
        refused()
        store._run("PRAGMA max_page_count = 1000000")
        store._run("PRAGMA query_only = 1")
        refused()
        store._database.query("PRAGMA query_only = 0")
    else:
        store._run("SET default_transaction_read_only = on")
        refused()
        with raises("store-failed"):
            store.delete(id)
        assert store.held_ids() == [id]
        store._run("SET default_transaction_read_only = off")
    store.save(new)
    assert store.about(id) == {"name": "b"}
    store.close()


def test_a_database_that_is_restarted_is_found_again(server: PostgresServer) -> None:
    store, id = SessionStore(server.new_database(), exclusive=True), new_id()
    store.create(Stored(id, b"1", {}))
    server.kill()
    with raises("store-failed"):
        store.save(Stored(id, b"2", {}))
    server.start()
    store.save(Stored(id, b"3", {}))
    store.release(id)
    assert store.load(id).state == b"3"
    store.close()


def test_a_server_keeps_others_out_after_its_database_was_restarted(server: PostgresServer) -> None:
    """It saves nothing in between. A server that was killed keeps others out until its lease expires."""
    place = server.new_database()
    one = SessionStore(place, exclusive=True, lease_seconds=2)
    server.kill()
    server.start()
    with raises("store-in-use"):
        SessionStore(place, exclusive=True, lease_seconds=2)
    one._stop.set()
    one._close()  # killed
    other = SessionStore(place, exclusive=True, lease_seconds=2)
    other.close()


def test_a_server_that_lost_the_lock_of_its_store_stops_answering(server: PostgresServer) -> None:
    place = server.new_database()
    store = SessionStore(place, exclusive=True, lease_seconds=0.5)
    with served(store=store) as running:
        id = running.session()
        with store._database._lock:  # type: ignore[attr-defined] # the other one is the first after the restart
            server.kill()
            server.start()
            other = open_database(place, exclusive=True)
        eventually(lambda: running.http.get("/ready").status_code == 503)
        assert running.send(id, pngs()[0]).status_code == 503
        other.close()
        eventually(lambda: running.send(id, pngs()[0]).status_code == 200)
    store.close()


def test_places_that_are_no_store(tmp_path: Path) -> None:
    with raises("store-invalid"):
        SessionStore("mysql://somewhere")
    with raises("store-failed"):
        SessionStore("postgresql://nobody@127.0.0.1:1/none")
    (tmp_path / "sessions.sqlite").write_bytes(b"not a database at all" * 100)
    with raises("store-failed"):
        SessionStore(tmp_path)
