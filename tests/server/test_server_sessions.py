"""Sessions are as separate adapters, in order, and are not lost: saving, full disks, restarts, kills, clocks."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import ostta
from helpers.errors import raises
from helpers.serving import CLASSES, Served, embedded, events_of, eventually, is_problem, pngs, served
from ostta.server import Clock, Limits, SessionStore, Settings, Stored
from ostta.server.sessions.build import restored
from ostta.server.sessions.snapshot import MAGIC, pack, unpack
from ostta.server.sessions.store import LostError, new_id

METHODS: list[dict[str, Any]] = [
    {},
    {"method": "tda"},
    {"method": "rosita"},
    {"method": "zero_shot", "identifier": "lda"},
]


def test_sixty_four_sessions_give_the_answers_of_as_many_adapters() -> None:
    """Of four kinds, with classes, seeds and images of their own, sent by eight clients at once."""
    images, steps = pngs(), 3
    wanted = [{**METHODS[n % 4], "seed": n, "classes": CLASSES[n % 3 :]} for n in range(64)]

    def image(session: int, step: int) -> bytes:
        return images[(7 * session + step) % len(images)]

    def client(server: Served, ids: list[str], numbers: list[int]) -> list[tuple[int, dict[str, Any]]]:
        with httpx.Client(base_url=server.http.base_url, timeout=60) as http:
            return [
                (number, http.post(f"/sessions/{ids[number]}/images", content=image(number, step)).json())
                for step in range(steps)
                for number in numbers
            ]

    found: dict[int, list[dict[str, Any]]] = {number: [] for number in range(64)}
    with served() as server:
        ids = [server.session(**one) for one in wanted]
        with ThreadPoolExecutor(8) as clients:
            for answers in clients.map(lambda first: client(server, ids, list(range(first, 64, 8))), range(8)):
                for number, answer in answers:
                    found[number].append(answer)
    for number, one in enumerate(wanted):
        adapter = ostta.load(embedded(), guard=True, **one)
        for step in range(steps):
            alone, answer = adapter.step(image(number, step)), found[number][step]
            assert answer["step"] == step + 1
            assert (answer["label"], answer["known"], answer["verdict"]) == (alone.label, alone.known, alone.verdict)
            assert answer["score"] == pytest.approx(alone.score, abs=1e-5)


def test_two_clients_of_one_session_are_served_in_order() -> None:
    """Each gets later steps for later images, no step is given twice, and the answers are those of the images in the
    order of steps.
    """
    with served() as server:
        id = server.session()

        def client(first: int) -> list[tuple[int, int, float]]:
            with httpx.Client(base_url=server.http.base_url, timeout=60) as http:
                answers = [
                    (n, http.post(f"/sessions/{id}/images", content=pngs()[n]).json()) for n in range(first, 24, 2)
                ]
            return [(number, answer["step"], answer["score"]) for number, answer in answers]

        with ThreadPoolExecutor(2) as clients:
            one, two = clients.map(client, (0, 1))
    for mine in (one, two):
        assert [step for _, step, _ in mine] == sorted(step for _, step, _ in mine)
    by_step = sorted([*one, *two], key=lambda each: each[1])
    assert [step for _, step, _ in by_step] == list(range(1, 25))
    adapter = ostta.load(embedded(), CLASSES, guard=True)
    for number, _, score in by_step:
        assert adapter.step(pngs()[number]).score == pytest.approx(score, abs=1e-5)


def test_images_wait_in_the_order_in_which_they_came() -> None:
    """A large image, which takes longer to decode, is not overtaken by a small one that came later."""
    from PIL import Image

    from helpers.serving import encoded

    large = encoded(Image.effect_noise((1200, 1200), 60).convert("RGB"), "PNG")
    with served() as server:
        id = server.session()
        answers: dict[str, int] = {}

        def post(name: str, content: bytes) -> None:
            with httpx.Client(base_url=server.http.base_url, timeout=60) as http:
                answers[name] = http.post(f"/sessions/{id}/images", content=content).json()["step"]

        first = threading.Thread(target=post, args=("large", large))
        first.start()
        while not server.engine.registry.totals.images_waiting:
            time.sleep(0.001)
        post("small", pngs()[0])
        first.join()
    assert answers == {"large": 1, "small": 2}


# --- saving -----------------------------------------------------------------------------------------------------------
class Disk(SessionStore):
    """A store that can be told to fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.problem: Exception | None = None
        self.saves: list[int] = []

    def create(self, session: Stored) -> None:
        if self.problem is not None:
            raise self.problem
        super().create(session)
        self.saves.append(session.about["counts"]["images"])

    def save(self, session: Stored) -> None:
        if self.problem is not None:
            raise self.problem
        super().save(session)
        self.saves.append(session.about["counts"]["images"])

    def delete(self, id: str) -> None:
        if self.problem is not None:
            raise self.problem
        super().delete(id)


FULL = ostta.Error("The store cannot be used (database or disk is full).", code="store-failed")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    store = Disk(tmp_path)
    yield store
    store.close()


def test_a_session_is_saved_every_few_steps_and_never_further_behind(disk: Disk) -> None:
    with served(Settings(save_every=4), disk) as server:
        id = server.session()
        behind = []
        for image in pngs()[:20]:
            step = server.send(id, image).json()["step"]
            behind.append(step - ostta_steps(disk, id))
        assert max(behind) <= 4
    # At the end all of it is stored.
    assert disk.saves[0] == 0
    assert disk.saves[-1] == 20
    assert len(disk.saves) >= 6


def ostta_steps(disk: SessionStore, id: str) -> int:
    """The steps in the stored state, read as another process does that has no lease."""
    ((state,),) = disk._run("SELECT state FROM snapshots WHERE session = ?", id)
    return restored(unpack(bytes(state)), embedded(), Limits()).steps


def test_a_full_disk_is_reported_served_on_and_recovered_from(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostta.server.sessions.saving.RETRY", 0.3)
    with served(Settings(save_every=2), disk) as server:
        id = server.session()
        disk.problem = FULL
        assert [server.send(id, image).json()["step"] for image in pngs()[:8]] == list(range(1, 9))
        eventually(lambda: server.http.get(f"/sessions/{id}").json()["problem"])
        session = server.http.get(f"/sessions/{id}").json()
        # The cause may also be a database that cannot be reached: it is in the log.
        assert "disk" not in session["problem"]
        assert any("disk is full" in line.get("problem", "") for line in server.lines())
        assert session["saved_steps"] == 0
        is_problem(server.http.post("/sessions", json={"classes": CLASSES}), 507, "could not be stored")
        is_problem(server.http.post(f"/sessions/{id}/save"), 507, "not stored")
        assert "ostta_sessions_with_a_problem 1.0" in server.http.get("/metrics").text
        disk.problem = None
        eventually(lambda: server.http.get(f"/sessions/{id}").json()["problem"] is None)
        assert server.http.get(f"/sessions/{id}").json()["saved_steps"] == 8
        kinds = [event["kind"] for event in server.http.get(f"/sessions/{id}/recent").json()["events"]]
        assert kinds == ["not_stored", "stored"]
        assert len(server.http.get("/sessions").json()["sessions"]) == 1
    assert ostta_steps(disk, id) == 8


def test_a_session_that_cannot_be_deleted_stays(disk: Disk) -> None:
    with served(store=disk) as server:
        id = server.session()
        disk.problem = FULL
        is_problem(server.http.delete(f"/sessions/{id}"), 507, "could not be deleted")
        disk.problem = None
        assert server.send(id, pngs()[0]).json()["step"] == 1
        assert server.http.post(f"/sessions/{id}/save").json()["session"]["saved_steps"] == 1
        assert server.http.delete(f"/sessions/{id}").status_code == 204
        is_problem(server.send(id, pngs()[0]), 404, "no session")
    assert disk.ids() == []


def test_stored_sessions_are_back_where_fewer_may_be_made(disk: Disk) -> None:
    with served(store=disk) as server:
        ids = [server.session() for _ in range(3)]
    with served(Settings(limits=Limits(sessions=2)), disk) as server:
        assert {one["id"] for one in server.http.get("/sessions").json()["sessions"]} == set(ids)
        is_problem(server.http.post("/sessions", json={"classes": CLASSES}), 503, "There are 3 sessions")
        assert any(line["level"] == "warning" and line.get("stored") == 3 for line in server.lines())


def test_a_server_that_could_not_save_at_the_end_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ostta.server import serving

    def listened(app: Any, *_: Any, **__: Any) -> None:
        """A server that makes a session, learns, and ends on a full disk."""

        async def lived() -> None:
            engine = engines[0]
            await engine.start()
            id = (await engine.create({"classes": CLASSES}))["id"]
            await engine.images(id, pngs()[:1], True, False)
            monkeypatch.setattr(SessionStore, "save", lambda *_: (_ for _ in ()).throw(FULL))
            await engine.stop()

        asyncio.run(lived())

    engines: list[Any] = []
    monkeypatch.setattr(serving, "create_app", lambda engine, *_: engines.append(engine))
    monkeypatch.setattr(serving, "listen", listened)
    with pytest.raises(ostta.Error, match="1 session could not be stored"):
        serving.serve_locally(embedded(), Settings(), None, host="127.0.0.1", port=0, folder=tmp_path)


def test_two_servers_cannot_use_one_folder(tmp_path: Path) -> None:
    from ostta.server import serving

    def second() -> None:
        # A backbone that does not exist: the store is opened before a model is loaded.
        serving.serve_locally("no-such-model", Settings(), None, host="127.0.0.1", port=0, folder=tmp_path)

    store = SessionStore(tmp_path, exclusive=True)
    with raises("store-in-use"):
        second()
    store.close()
    with pytest.raises(ostta.Error, match="no-such-model"):
        second()


def test_a_server_without_file_descriptors_does_not_blame_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as server:
        id = server.session()
        with monkeypatch.context() as exhausted:
            exhausted.setattr(
                "PIL.Image.preinit",
                lambda: (_ for _ in ()).throw(OSError(errno.EMFILE, "Too many open files", "/srv/PIL/reader.py")),
            )
            answer = server.send(id, pngs()[0])
        is_problem(answer, 503, "cannot open any more files")
        assert "/srv" not in answer.text
        assert server.send(id, pngs()[0]).json()["step"] == 1


def test_after_a_restart_every_session_is_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store, served(store=store) as server:
        door, yard, gone = server.session(name="door"), server.session(method="tda"), server.session()
        for image in pngs()[:7]:
            server.send(door, image)
        before = server.http.get(f"/sessions/{door}").json()
        charts = server.http.get(f"/sessions/{door}/recent").json()
        next_answer = server.send(door, pngs()[7], learn="false").json()
        server.http.post(f"/sessions/{yard}/freeze")
        frozen = server.http.get(f"/sessions/{yard}/recent").json()["events"]
        server.http.delete(f"/sessions/{gone}")
    with opened(tmp_path) as store:
        store.create(Stored("0" * 32, b"damaged", {}))
    with opened(tmp_path) as store, served(store=store) as server:
        assert {one["id"] for one in server.http.get("/sessions").json()["sessions"]} == {door, yard}
        assert {**server.http.get(f"/sessions/{door}").json(), "images_per_second": 0} == {
            **before, "images_per_second": 0, "saved_steps": 7,
        }  # fmt: skip
        # Charts and events are back too.
        assert server.http.get(f"/sessions/{door}/recent").json() == charts
        assert server.http.get(f"/sessions/{yard}/recent").json()["events"] == frozen
        assert server.http.get(f"/sessions/{yard}").json()["frozen"] is True
        assert "ostta_sessions_unreadable 1.0" in server.http.get("/metrics").text
        with server.http.stream("GET", f"/sessions/{door}/events", headers={"last-event-id": "5"}) as stream:
            lines = stream.iter_lines()
            assert [one["data"]["step"] for one in events_of(lines, 2)] == [6, 7]
            again = server.send(door, pngs()[7]).json()
            told = events_of(lines, 1)[0]
        assert (told["event"], told["data"]["step"]) == ("prediction", 8)
        assert int(told["id"]) > 7
        assert (again["step"], again["score"], again["known"]) == (8, next_answer["score"], next_answer["known"])
    with opened(tmp_path) as store:
        assert store.load("0" * 32).state == b"damaged"


def test_a_damaged_session_is_unreadable_and_the_others_serve(tmp_path: Path) -> None:
    """Damage that the checksum of the snapshot does not show, of the snapshot and of what is stored beside it."""
    with opened(tmp_path) as store, served(store=store) as server:
        sound, *damaged = (server.session() for _ in range(7))
        server.send(damaged[-1], pngs()[0])
    body = b"a snapshot of other content"
    snapshot = MAGIC + zlib.crc32(body).to_bytes(4, "little") + body
    with opened(tmp_path) as store:
        store._run("UPDATE snapshots SET state = ? WHERE session = ?", snapshot, damaged[0])
        about = store.about(damaged[1])
        for id, part in zip(
            damaged[1:5],
            ({"counts": {**about["counts"], "images": "7"}}, {"counts": []}, {"window": [None, 0]}, {"shares": 3}),
            strict=True,
        ):
            store._run("UPDATE sessions SET about = ? WHERE id = ?", json.dumps({**about, **part}), id)
        store._run("UPDATE history SET content = '[1, 2]' WHERE session = ?", damaged[5])
    with opened(tmp_path) as store, served(store=store) as server:
        assert [each["id"] for each in server.http.get("/sessions").json()["sessions"]] == [sound]
        assert server.send(sound, pngs()[0]).json()["step"] == 1
        assert "ostta_sessions_unreadable 6.0" in server.http.get("/metrics").text


def test_a_reader_is_told_of_events_that_a_killed_process_did_not_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store, served(store=store) as server:
        id = server.session()
        server.send(id, pngs()[0])
        server.http.post(f"/sessions/{id}/save")
        server.send(id, pngs()[1])
        session = server.engine.registry[id]
        session._saving.stored = session._done  # as if it had been killed: nothing more is stored at the end
    with opened(tmp_path) as store, served(store=store) as server, ExitStack() as stack:
        asked = server.http.stream("GET", f"/sessions/{id}/events", headers={"last-event-id": "2"})
        lines = stack.enter_context(asked).iter_lines()
        assert events_of(lines, 1)[0]["event"] == "gap"
        assert server.send(id, pngs()[1]).json()["step"] == 2
        assert events_of(lines, 1)[0]["data"]["step"] == 2


def test_history_has_a_limit_of_age_and_of_size(tmp_path: Path) -> None:
    class Hands:
        wall = 1.8e9

    settings = Settings(points=5, history_seconds=100.0, clock=Clock(lambda: Hands.wall, time.monotonic))
    with opened(tmp_path) as store:
        with served(settings, store) as server:
            id = server.session()
            for image in pngs()[:8]:
                server.send(id, image)
                Hands.wall += 10
        assert [number for (number,) in store._run("SELECT number FROM history")] == [4, 5, 6, 7, 8]
    with opened(tmp_path) as store:
        Hands.wall += 65
        with served(settings, store) as server:
            points = server.http.get(f"/sessions/{id}/recent").json()["points"]
            assert [point["step"] for point in points] == [6, 7, 8]
            server.http.post(f"/sessions/{id}/save")
            assert store._run("SELECT number FROM history") == [(6,), (7,), (8,)]
            server.http.post(f"/sessions/{id}/reset")
        assert store._run("SELECT kind FROM history") == [("session",)]


@contextmanager
def opened(folder: Path) -> Iterator[SessionStore]:
    store = SessionStore(folder, exclusive=True)
    try:
        yield store
    finally:
        store.close()


def test_a_session_that_another_process_has_is_no_longer_answered_for(disk: Disk) -> None:
    with served(Settings(save_every=2), disk) as server:
        id = server.session()
        disk.problem = LostError("Another process is the writer of this session.")
        server.send(id, pngs()[0])
        server.send(id, pngs()[1])
        eventually(lambda: server.http.get(f"/sessions/{id}").status_code == 404)
        disk.problem = None
    assert disk.ids() == [id]
    assert ostta_steps(disk, id) == 0


def test_a_clock_that_jumps_back_disturbs_nothing(disk: Disk) -> None:
    class Hands:
        wall, steady = 1.8e9, 5000.0

    clock = Clock(lambda: Hands.wall, lambda: Hands.steady)
    with served(Settings(save_every=1000, save_seconds=30.0, clock=clock), disk) as server:
        id = server.session()
        for image in pngs()[:3]:
            server.send(id, image)
        Hands.wall, Hands.steady = 1.7e9, 100.0
        # What was not saved yet is due at once, and nothing is negative or lost.
        eventually(lambda: server.http.get(f"/sessions/{id}").json()["saved_steps"] == 3)
        assert [server.send(id, image).json()["step"] for image in pngs()[3:6]] == [4, 5, 6]
        session = server.http.get(f"/sessions/{id}").json()
        assert session["images_per_second"] >= 0
        assert session["last_image"] == 1.7e9
        points = server.http.get(f"/sessions/{id}/recent").json()["points"]
        assert [point["step"] for point in points] == [1, 2, 3, 4, 5, 6]
        with server.http.stream("GET", f"/sessions/{id}/events", params={"after": 0}) as stream:
            assert [one["id"] for one in events_of(stream.iter_lines(), 6)] == ["1", "2", "3", "4", "5", "6"]


def test_sessions_are_adopted_and_released(disk: Disk, tmp_path: Path) -> None:
    """As a process of several does that share a store."""
    from ostta.server import LocalEngine, ProblemError

    async def lived() -> None:
        other = SessionStore(tmp_path)
        first = LocalEngine(ostta.StreamPool(embedded()), store=other, restore=False)
        second = LocalEngine(ostta.StreamPool(embedded()), store=disk, restore=False)
        await first.start()
        await second.start()
        id = (await first.create({"classes": CLASSES, "name": "door"}))["id"]
        await first.images(id, pngs()[:3], True, False)
        with pytest.raises(ProblemError, match="There is no session"):
            await second.session(id)
        await first.registry.release(id)
        await asyncio.gather(second.registry.adopt(id), second.registry.adopt(id))
        assert (await second.session(id))["steps"] == 3
        assert (await second.images(id, pngs()[3:4], True, False))[0]["step"] == 4
        with pytest.raises(ProblemError, match="There is no session"):
            await first.session(id)
        with raises("session-held"):
            await first.registry.adopt(id)
        with raises("session-unknown"):
            await first.registry.adopt(new_id())
        disk.problem = FULL
        with pytest.raises(ostta.Error):
            await second.registry.release(id)  # it stays where it is, and goes on
        assert (await second.images(id, pngs()[4:5], True, False))[0]["step"] == 5
        disk.problem = None
        await first.stop()
        await second.stop()
        other.close()

    asyncio.run(lived())


@pytest.mark.parametrize(
    "wanted",
    [
        {"method": "prototypes", "options": {"pool": 1_000_000}},
        {"method": "prototypes", "options": {"pool": 1_000_000}, "guard": False},
        {"options": {"snapshots": 16, "memory_images": 16_384}},
        {"score": "dictionary", "options": {"capacity": 65_536}},
        {"method": "cliptta", "options": {"memory": 1024, "snapshots": 16}},
    ],
)
def test_the_memory_of_a_session_is_bounded_before_it_is_made(wanted: dict[str, Any]) -> None:
    from ostta.server.sessions.build import build_adapter

    # Smaller, as the embedded model has small features and images.
    limits = Limits(session_bytes=32 * 2**20)
    with pytest.raises(ostta.Error, match=r"may need [\d,]+ MB of memory, and 32 MB are the most"):
        build_adapter({"classes": CLASSES, **wanted}, embedded(), limits)
    build_adapter(
        {"classes": CLASSES, **{name: wanted[name] for name in wanted if name != "options"}}, embedded(), limits
    )


@pytest.mark.filterwarnings("ignore:The embedded model")
def test_class_names_in_a_state_are_checked_as_in_a_request(tmp_path: Path) -> None:
    with served() as server:
        for name in ("a\nb", "c\u202ed"):
            ostta.load(embedded(), [name, "dog"]).save(tmp_path / "x.ostta")
            answer = server.http.post("/sessions/import", content=(tmp_path / "x.ostta").read_bytes())
            assert (answer.status_code, answer.json()["type"]) == (422, "/problems/text-invalid")


def test_a_state_that_can_be_exported_can_be_imported(tmp_path: Path) -> None:
    """With all snapshots of its guard."""
    limits = Limits(session_bytes=1_100_000, state=1_650_000)
    with served(Settings(limits=limits)) as server:
        is_problem(
            server.http.post("/sessions", json={"classes": CLASSES, "options": {"snapshots": 4}}), 422, "of memory"
        )
        id = server.session(options={"snapshot_every": 1})
        for image in pngs()[:6]:
            server.send(id, image)
        state = server.http.get(f"/sessions/{id}/state").content
        assert len(state) > 10_000
        assert server.http.post("/sessions/import", content=state).status_code == 201
        assert server.http.put(f"/sessions/{id}/state", content=state).status_code == 200
    with opened(tmp_path) as store:
        store.create(Stored(id, pack(state), {}))
    with opened(tmp_path) as store, served(Settings(limits=Limits(session_bytes=900_000)), store) as server:
        is_problem(server.http.post("/sessions/import", content=state), 422, "may need 1 MB of memory")
        assert server.send(id, pngs()[0]).json()["step"] == 7


def test_after_a_reset_nothing_of_the_former_state_is_shown() -> None:
    with served() as server:
        id = server.session()
        server.http.post(f"/sessions/{id}/images", files=[("image", ("image", image)) for image in pngs()])
        assert server.http.get(f"/sessions/{id}").json()["warming_up"] is False
        for forget in ("reset", "replaced"):
            if forget == "reset":
                session = server.http.post(f"/sessions/{id}/reset").json()["session"]
            else:
                state = server.http.get(f"/sessions/{id}/state").content
                session = server.http.put(f"/sessions/{id}/state", content=state).json()
            assert session["warming_up"] is True
            assert (session["accepted_share"], set(session["sparkline"])) == (None, {None})
            recent = server.http.get(f"/sessions/{id}/recent").json()
            assert (recent["points"], recent["events"][-1]["kind"]) == ([], forget)
            # Images are counted on, and a reader who was away is told that something is missing.
            assert session["images"] == 60 + (forget == "replaced")
            with server.http.stream("GET", f"/sessions/{id}/events", params={"after": 1}) as stream:
                assert events_of(stream.iter_lines(), 1)[0]["event"] == "gap"
            assert server.send(id, pngs()[0]).json()["step"] == session["steps"] + 1
            assert len(server.http.get(f"/sessions/{id}/recent").json()["points"]) == 1


def test_events_of_the_guard_are_in_the_log_and_counted() -> None:
    with served() as server:
        id = server.session(method="rosita", options={"patience": 1, "min_diversity": 1.0})
        server.http.post(f"/sessions/{id}/images", files=[("image", ("image", pngs()[0]))] * 64)
        told = server.http.get(f"/sessions/{id}/recent").json()["events"]
        assert told
        logged = [line for line in server.lines() if line["message"] == "guard"]
        assert [(line["kind"], line["step"], line["sentence"]) for line in logged] == [
            (event["kind"], event["step"], event["sentence"]) for event in told
        ]
        assert {line["session"] for line in logged} == {id}
        assert f"ostta_guard_events_total {len(told)}.0" in server.http.get("/metrics").text


def test_a_parameter_that_is_not_known_is_refused() -> None:
    with served() as server:
        id = server.session()
        is_problem(server.send(id, pngs()[0], lern="false"), 422, "no parameter 'lern' here; there are learn, evidence")
        is_problem(server.http.get("/sessions", params={"limit": 3}), 422, "no parameter 'limit' here.")
        assert server.http.get(f"/sessions/{id}").json()["images"] == 0
        assert server.send(id, pngs()[0], learn="false", evidence="true").json()["step"] == 0
        assert server.http.get("/", params={"from": "mail"}).status_code == 200


def test_a_file_that_curl_has_changed_is_explained() -> None:
    with served() as server:
        id = server.session()
        headers = {"content-type": "application/x-www-form-urlencoded"}  # what curl sends with -d and --data-binary
        changed = pngs()[0].replace(b"\n", b"").replace(b"\r", b"")
        for content in (b"cat.png", changed):
            is_problem(
                server.http.post(f"/sessions/{id}/images", content=content, headers=headers), 422, "--data-binary @FILE"
            )
        assert server.http.post(f"/sessions/{id}/images", content=pngs()[0], headers=headers).json()["step"] == 1


def test_a_port_in_use_is_said_before_a_model_is_loaded() -> None:
    import socket

    from typer.testing import CliRunner

    from ostta.cli.app import app

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = CliRunner().invoke(app, ["serve", "--port", str(port), "--backbone", "no-such-model"])
    assert f"Port {port} at 127.0.0.1 is in use by another program" in str(refused.exception)
    assert "--port" in str(refused.exception)
    refused = CliRunner().invoke(app, ["serve", "--port", "0", "--backbone", "no-such-model"])
    assert "no-such-model" in str(refused.exception)


def test_the_command_line_says_how_to_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from ostta.cli.app import app
    from ostta.server import serving

    asked: dict[str, Any] = {}

    def noted(backbone: Any, settings: Settings, tokens: Any, **more: Any) -> None:
        asked.update(backbone=backbone, settings=settings, tokens=tokens, **more)

    monkeypatch.setattr(serving, "serve_locally", noted)
    (tmp_path / "tokens").write_text("0123456789abcdef\n")
    words = [
        "--host",
        "0.0.0.0",
        "--port",
        "80",
        "--save-every",
        "7",
        "--keep-images",
        "--cors",
        "https://a.example",
        "--name",
        "b.example",
        "--max-sessions",
        "9",
    ]
    result = CliRunner().invoke(app, ["serve", *words, "--state-dir", "s", "--token-file", str(tmp_path / "tokens")])
    assert result.exit_code == 0, result.output
    settings: Settings = asked["settings"]
    assert (asked["backbone"], asked["host"], asked["port"], asked["folder"]) == ("photos", "0.0.0.0", 80, Path("s"))
    assert "photos" in result.stderr
    assert (settings.save_every, settings.keep_images, settings.limits.sessions) == (7, True, 9)
    assert (settings.hosts, settings.cors) == (("b.example",), ("https://a.example",))
    assert asked["tokens"]
    refused = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0"])
    assert isinstance(refused.exception, ostta.Error)
    assert "--token-file" in str(refused.exception)
