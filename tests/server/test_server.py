"""The API: sessions, images, states, events; what is answered, and what is said of mistakes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import torch

import ostta
from helpers.serving import CLASSES, Served, embedded, encoded, events_of, is_problem, pngs, served, state_hash
from ostta.core.types import Prediction, Verdict
from ostta.server import Limits, Settings
from ostta.server.sessions.history import History


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(Settings(points=20, limits=Limits(sessions=100))) as running:
        yield running


def test_the_server_tells_about_itself(server: Served) -> None:
    assert server.http.get("/health").json() == {"status": "ok"}
    assert server.http.get("/ready").json() == {"status": "ready"}
    info = server.http.get("/info").json()
    assert info["backbone"] == "embedded"
    assert {"rosita", "tda"} <= set(info["methods"])
    assert info["profiles"] == ["reference", "paper", "field"]
    lr = next(one for one in info["options"]["rosita"] if one["name"] == "lr")
    assert set(lr) == {"name", "about", "default", "kind", "profiles"}
    assert info["limits"]["sessions"] == 100
    assert (info["keeps_images"], info["save_every"], info["engine"]) == (False, None, "local")


def test_a_session_is_of_the_field_profile_with_its_guard_on(server: Served) -> None:
    answer = server.http.post("/sessions", json={"classes": CLASSES, "name": "door"})
    assert answer.status_code == 201
    session = answer.json()
    assert answer.headers["location"] == f"/sessions/{session['id']}"
    assert [session[name] for name in ("name", "profile", "method", "score", "identifier", "guard", "guard_light")] == [
        "door", "field", "zero_shot", "field", "field", True, "green",
    ]  # fmt: skip
    assert server.http.get(answer.headers["location"]).json() == session
    assert session["id"] in [one["id"] for one in server.http.get("/sessions").json()["sessions"]]


def test_class_names_have_no_spaces_around_them(server: Served) -> None:
    for classes in ([" cat", "dog "], {" cat": [], "dog ": ["a puppy"]}):
        session = server.http.post("/sessions", json={"classes": classes}).json()
        assert session["classes"] == ["cat", "dog"]


def test_what_a_session_may_be_made_of(server: Served) -> None:
    wanted = {
        "classes": {"cat": ["a kitten"], "dog": []},
        "method": "tda",
        "guard": False,
        "seed": 3,
        "options": {"answer": "own"},
    }
    session = server.http.post("/sessions", json=wanted).json()
    assert (session["method"], session["guard"], session["guard_light"], session["profile"]) == (
        "tda",
        False,
        "off",
        "reference",
    )
    state = server.http.get(f"/sessions/{session['id']}/state").content
    assert b"a kitten" in state


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "The field `classes` is missing"),
        ({"classes": []}, "`classes` is a list of names"),
        ({"classes": "cat,dog"}, "`classes` is a list of names"),
        ({"classes": ["cat", "cat"]}, "look the same"),
        ({"classes": ["maple_tree", "Maple tree"]}, "are the same"),
        ({"classes": ["cat", 3]}, "`classes` takes texts"),
        ({"classes": ["cat"], "method": "rosta"}, "did you mean 'rosita'"),
        ({"classes": ["cat"], "method": "mine.py:Method"}, "is in a file"),
        ({"classes": ["cat"], "score": "os:path"}, "There is no score"),
        ({"classes": ["cat"], "identifier": 7}, "`identifier`: input should be a valid string, not 7"),
        ({"classes": ["cat"], "profile": "camera"}, "There is no profile 'camera'"),
        ({"classes": ["cat"], "backbone": "openai/clip-vit-base-patch32"}, "no field 'backbone'"),
        ({"classes": ["cat"], "seed": 1.5}, "`seed`: input should be a valid integer"),
        ({"classes": ["cat"], "guard": "yes"}, "`guard`: input should be a valid boolean"),
        ({"classes": ["cat"], "options": [1]}, "`options`: input should be a valid dictionary"),
        ({"classes": ["cat"], "options": {"lr": 1}}, "There is no option 'lr'"),
        ({"classes": ["cat"], "options": {"accept": 2}}, "`accept` takes a probability from 0 to 1, not '2'"),
        ({"classes": ["cat"], "options": {"accept": True}}, "`accept` must be a list, not True"),
        (
            {"classes": ["cat"], "options": {"accept": {"dog": 0.9}}},
            "`accept` names 'dog', which is none of the classes",
        ),
        ({"classes": ["cat"], "method": "tda", "options": {"accept": 0.9}}, "`accept` needs probabilities"),
        ({"classes": ["cat"], "options": {"templates": ["{}"] * 8001}}, "the limit of this server is 8000"),
        ({"classes": [str(n) for n in range(1001)]}, "the limit of this server is 1000"),
        ({"classes": ["cat"], "name": "a\nb"}, "one line"),
        ({"classes": ["cat\0", "dog"]}, "A class name is one line"),
        ({"classes": ["cat\ndog"]}, "A class name is one line"),
        ({"classes": {"\u202etac": []}}, "A class name is one line"),
        ({"classes": ["cat", "cat\u200b"]}, "A class name is one line"),
        ({"classes": ["   "]}, "`classes` takes texts"),
        ({"classes": ["cat", "ｃａｔ"]}, "look the same"),
        ({"classes": ["cat", "cat\ufe0f"]}, "look the same"),
        ({"classes": {"cat": [], "cat ": []}}, "look the same"),
        ({"classes": {"cat": ["a\nkitten"]}}, "A description is one line"),
        ({"classes": ["cat"], "name": "x" * 201}, "at most 200 characters"),
    ],
)
def test_what_is_wrong_with_a_session_is_one_sentence(server: Served, wanted: dict, words: str) -> None:
    before = len(server.http.get("/sessions").json()["sessions"])
    is_problem(server.http.post("/sessions", json=wanted), 422, words)
    assert len(server.http.get("/sessions").json()["sessions"]) == before


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not UTF-8"),
        (b"[1]", 422, "a JSON object"),
        (b'{"classes": ["cat"], "classes": ["dog"]}', 400, "repeated"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b"9" * 5000, 400, "not JSON"),
    ],
)
def test_a_body_that_is_no_json_object(server: Served, body: bytes, status: int, words: str) -> None:
    is_problem(server.http.post("/sessions", content=body), status, words)


def test_an_image_as_it_is_in_a_form_and_in_base64(server: Served) -> None:
    ids = [server.session() for _ in range(3)]
    images = pngs()[:4]
    raw = [server.send(ids[0], image).json() for image in images]
    form = server.http.post(
        f"/sessions/{ids[1]}/images", files=[("image", ("a.png", image)) for image in images]
    ).json()
    text = server.http.post(
        f"/sessions/{ids[2]}/images", json={"images": [base64.b64encode(image).decode() for image in images]}
    ).json()
    assert [one["step"] for one in raw] == [1, 2, 3, 4]
    for others in (form["predictions"], text["predictions"]):
        for one, other in zip(raw, others, strict=True):
            assert {**one, "ms": None} == {**other, "ms": None}


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "PNG"])
def test_three_formats_small_and_large(server: Served, form: str) -> None:
    from ostta.data import open_dataset

    image = open_dataset("sample:cifar10").image(0)
    id = server.session()
    for size in (32, 400):  # one is decoded where it is, the other by a worker
        answer = server.send(id, encoded(image.resize((size, size)), form))
        assert answer.status_code == 200, answer.text
    assert server.http.get(f"/sessions/{id}").json()["steps"] == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "The image is empty"),
        (b"GIF89a" + b"\0" * 100, "not a JPEG, PNG or WebP"),
        (b"%!PS-Adobe-3.0 EPSF", "not a JPEG"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "cannot be read as an image"),
        (pngs()[0][:200], "truncated"),
    ],
)
def test_an_image_that_cannot_be_read_is_one_sentence_and_no_step(server: Served, content: bytes, words: str) -> None:
    id = server.session()
    is_problem(server.send(id, content), 422, words)
    session = server.http.get(f"/sessions/{id}").json()
    assert (session["steps"], session["images"], session["refused"]) == (0, 1, 1)
    assert not [line for line in server.lines() if "trace" in line]


def test_a_bad_image_among_many_has_a_problem_in_its_place(server: Served) -> None:
    id = server.session()
    files = [("image", ("a", pngs()[0])), ("image", ("b", b"no image")), ("image", ("c", pngs()[1]))]
    found = server.http.post(f"/sessions/{id}/images", files=files).json()["predictions"]
    assert [one.get("step") for one in found] == [1, None, 2]
    assert found[1]["problem"]["status"] == 422
    assert "not a JPEG" in found[1]["problem"]["detail"]


def test_features_in_the_place_of_images(server: Served) -> None:
    id = server.session(classes=["cat", "dog"])
    adapter = ostta.load(embedded(), ["cat", "dog"], guard=True)
    features = torch.nn.functional.normalize(torch.randn(3, 128, generator=torch.Generator().manual_seed(0)))
    found = server.http.post(f"/sessions/{id}/images", json={"features": features.tolist()}).json()["predictions"]
    for one, row in zip(found, features, strict=True):
        assert one["score"] == pytest.approx(adapter.step_features(row).score, abs=1e-5)
    rosita = server.session(method="rosita")
    answer = server.http.post(f"/sessions/{rosita}/images", json={"features": features.tolist()}).json()
    assert "needs the image" in answer["predictions"][0]["problem"]["detail"]
    for wrong in ([["x"]], [[]], [[1e300]], ["abc"], [[True]], [[10**400]]):
        assert server.http.post(f"/sessions/{id}/images", json={"features": wrong}).status_code == 422
    narrow = server.http.post(f"/sessions/{id}/images", json={"features": [[1.0, 2.0]]}).json()["predictions"][0]
    assert narrow["problem"]["status"] == 422


def test_predicting_changes_nothing_and_evidence_has_all_classes(server: Served) -> None:
    id = server.session()
    for image in pngs()[:3]:
        server.send(id, image)
    before = state_hash(server.http.get(f"/sessions/{id}/state").content)
    answer = server.send(id, pngs()[4], learn="false", evidence="true").json()
    assert (answer["step"], answer["reason"]) == (3, "predict never adapts")
    assert list(answer["class_scores"]) == CLASSES
    assert answer["evidence"]
    assert state_hash(server.http.get(f"/sessions/{id}/state").content) == before
    assert server.http.get(f"/sessions/{id}").json()["images"] == 3
    assert server.send(id, pngs()[4]).json()["class_scores"] is None


def test_freeze_thaw_roll_back_and_reset(server: Served) -> None:
    id = server.session(method="rosita", options={"snapshot_every": 2})
    for image in pngs()[:4]:
        server.send(id, image)
    frozen = server.http.post(f"/sessions/{id}/freeze").json()
    assert (frozen["event"]["sentence"], frozen["session"]["frozen"]) == ("Frozen by hand.", True)
    assert server.send(id, pngs()[4]).json()["reason"] == "the adapter is frozen"
    assert server.http.post(f"/sessions/{id}/thaw").json()["session"]["frozen"] is False
    assert "Rolled back by hand" in server.http.post(f"/sessions/{id}/roll-back").json()["event"]["sentence"]
    assert server.http.post(f"/sessions/{id}/reset").json()["session"]["steps"] == 0
    is_problem(server.http.post(f"/sessions/{id}/roll-back"), 422, "There is no snapshot to restore yet")
    is_problem(server.http.post(f"/sessions/{id}/save"), 409, "without --state-dir")
    assert server.http.post(f"/sessions/{id}/explode").status_code == 404
    kinds = [event["kind"] for event in server.http.get(f"/sessions/{id}/recent").json()["events"]]
    assert kinds == ["freeze", "thaw", "roll_back", "reset"]


def test_a_state_goes_out_and_comes_in_again(server: Served) -> None:
    id = server.session()
    for image in pngs()[:5]:
        server.send(id, image)
    state = server.http.get(f"/sessions/{id}/state")
    assert state.headers["content-type"] == "application/octet-stream"
    copy = server.http.post("/sessions/import", params={"name": "a copy"}, content=state.content)
    assert (copy.status_code, copy.json()["name"], copy.json()["steps"]) == (201, "a copy", 5)
    one, two = (server.send(which, pngs()[5]).json() for which in (id, copy.json()["id"]))
    assert {**one, "ms": 0} == {**two, "ms": 0}
    replaced = server.http.put(f"/sessions/{id}/state", content=state.content).json()
    assert replaced["steps"] == 5
    assert server.send(id, pngs()[5]).json()["score"] == one["score"]


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "pickle", "other weights"])
def test_a_state_that_is_none_is_refused_without_a_path(server: Served, damage: str) -> None:
    id = server.session()
    state = bytearray(server.http.get(f"/sessions/{id}/state").content)
    if damage == "flipped":
        state[-3] ^= 1
    elif damage == "other weights":
        text = bytes(state)
        place = text.index(b"weight_hash") + 17
        state[place : place + 4] = b"0000"
    content = {"empty": b"", "cut": bytes(state[:-9]), "pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR."}.get(
        damage, bytes(state)
    )
    for answer in (
        server.http.post("/sessions/import", content=content),
        server.http.put(f"/sessions/{id}/state", content=content),
    ):
        is_problem(answer, 422, "The state file")
        assert "/" not in answer.json()["detail"]
    assert server.http.get(f"/sessions/{id}").json()["steps"] == 0


def test_rename_and_delete(server: Served) -> None:
    id = server.session()
    assert server.http.patch(f"/sessions/{id}", json={"name": " yard "}).json()["name"] == "yard"
    is_problem(server.http.patch(f"/sessions/{id}", json={"classes": []}), 422, "The field `name` is missing")
    is_problem(server.http.patch(f"/sessions/{id}", json={"name": ""}), 422, "The name of a session")
    assert server.http.delete(f"/sessions/{id}").status_code == 204
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/images"),
        ("GET", "/state"),
        ("POST", "/freeze"),
        ("GET", "/events"),
    ):
        is_problem(server.http.request(method, f"/sessions/{id}{path}"), 404, "There is no session")
    assert server.http.get("/sessions/..%2f..%2fetc%2fpasswd").status_code == 404
    assert server.http.get("/sessions/xyz").status_code == 404
    is_problem(server.http.get("/nowhere"), 404, "There is no GET /nowhere here.")
    is_problem(server.http.put("/sessions"), 405, "There is no PUT /sessions here.")


def test_counts_and_points_of_a_session(server: Served) -> None:
    """As in `ostta stream`, an undecided image is neither accepted nor rejected."""
    id = server.session()
    found = [server.send(id, image).json() for image in [*pngs()[:40], *pngs()[:32]]]
    session = server.http.get(f"/sessions/{id}").json()
    decided = [one["known"] for one in found if not one["undecided"]]
    assert (session["images"], session["undecided"], len(decided)) == (72, 32, 40)
    assert (session["accepted"], session["rejected"]) == (sum(decided), 40 - sum(decided))
    assert sum(session["class_counts"].values()) == sum(decided)
    assert session["sparkline"][:28] == [None] * 28
    assert session["sparkline"][28:] == [
        pytest.approx(sum(decided[start : start + 20]) / 20, abs=1e-3) for start in (0, 20)
    ]
    recent = server.http.get(f"/sessions/{id}/recent").json()
    # The ring of this server has twenty places.
    assert session["accepted_share"] == pytest.approx(sum(decided[20:]) / 20, abs=1e-3)
    assert [point["step"] for point in recent["points"]] == list(range(53, 73))
    assert [point["score"] for point in recent["points"]] == [one["score"] for one in found[52:]]
    assert len(server.http.get(f"/sessions/{id}/recent", params={"limit": 3}).json()["points"]) == 3
    is_problem(server.http.get(f"/sessions/{id}/recent", params={"limit": -1}), 422, "`limit`")


def test_events_go_on_where_they_were(server: Served) -> None:
    id = server.session()
    for image in pngs()[:3]:
        server.send(id, image)
    with server.http.stream("GET", f"/sessions/{id}/events", params={"after": 0}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        first = events_of(stream.iter_lines(), 3)
    assert [(one["event"], one["data"]["step"]) for one in first] == [("prediction", n) for n in (1, 2, 3)]
    server.http.post(f"/sessions/{id}/freeze")
    server.send(id, pngs()[3])
    with server.http.stream("GET", f"/sessions/{id}/events", headers={"last-event-id": first[1]["id"]}) as stream:
        rest = events_of(stream.iter_lines(), 3)
    assert [one["event"] for one in rest] == ["prediction", "session", "prediction"]
    assert [int(one["id"]) for one in rest] == [3, 4, 5]
    assert rest[1]["data"]["sentence"] == "Frozen by hand."


def test_what_the_ring_has_forgotten_is_a_gap(server: Served) -> None:
    id = server.session()
    for image in pngs()[:25]:
        server.send(id, image)
    for after, known in ((2, 6), (10**9, 26)):
        with server.http.stream("GET", f"/sessions/{id}/events", params={"after": after}) as stream:
            gap = events_of(stream.iter_lines(), 1)[0]
        assert (gap["event"], gap["data"]["after"], gap["data"]["next"]) == ("gap", after, known)


def test_a_stream_of_events_ends_with_its_session(server: Served) -> None:
    id = server.session()
    with server.http.stream("GET", f"/sessions/{id}/events") as stream:
        assert server.http.delete(f"/sessions/{id}").status_code == 204
        assert events_of(stream.iter_lines(), 1) == []


def test_the_overview_tells_when_something_changed(server: Served) -> None:
    with server.http.stream("GET", "/events") as stream:
        lines = stream.iter_lines()
        before = events_of(lines, 1)[0]
        id = server.session(name="new one")
        after = events_of(lines, 1)[0]
    assert before["event"] == after["event"] == "sessions"
    assert {one["id"] for one in after["data"]} - {one["id"] for one in before["data"]} == {id}


def test_metrics_tell_of_requests_and_images_and_of_no_session(server: Served) -> None:
    id = server.session(name="a name of my own")
    server.send(id, pngs()[0])
    text = server.http.get("/metrics").text
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(found['ostta_requests_total{route="/sessions/{id}/images",status="200"}']) >= 1
    assert float(found["ostta_images_judged_total"]) >= 1
    assert float(found["ostta_images_undecided_total"]) >= 1
    mean = float(found["ostta_probability_sum_total"]) / float(found["ostta_images_with_probability_total"])
    assert 0 < mean < 1
    assert float(found["ostta_sessions"]) == len(server.http.get("/sessions").json()["sessions"])
    assert id not in text
    assert "a name of my own" not in text


@pytest.mark.parametrize("accept", [0.9, {"cat": 0.9, "dog": 0.9}, ["0.2", "cat: 0.9", "dog: 0.9"]])
def test_a_session_accepts_at_the_probability_that_it_was_made_with(server: Served, accept: object) -> None:
    options = {"accept": accept, "class_probabilities": True}
    id = server.http.post("/sessions", json={"classes": ["cat", "dog"], "options": options}).json()["id"]
    answer = server.send(id, pngs()[0]).json()
    # Three of four images are known before the first fit.
    assert (answer["probability"], answer["known"], answer["undecided"]) == (pytest.approx(0.75), False, True)
    assert sum(answer["class_probabilities"].values()) == pytest.approx(answer["probability"])
    assert answer["explanation"] == "Too few images have been seen to compare this one with."
    (point,) = server.http.get(f"/sessions/{id}/recent").json()["points"]
    assert {name: point[name] for name in ("probability", "undecided", "accept")} == {
        "probability": answer["probability"], "undecided": True, "accept": 0.9,
    }  # fmt: skip
    session = server.http.get(f"/sessions/{id}").json()
    assert (session["undecided"], session["rejected"], session["accepted_share"]) == (1, 0, None)


def test_images_are_kept_only_where_that_was_asked_for(server: Served) -> None:
    is_problem(server.http.get(f"/sessions/{server.session()}/kept"), 404, "keeps no images")
    with served(Settings(keep_images=True)) as keeping:
        id = keeping.session()
        scores = [keeping.send(id, image).json()["score"] for image in pngs()[:14]]
        most, least = (
            keeping.http.get(f"/sessions/{id}/kept", params={"which": which}).json()["images"]
            for which in ("most", "least")
        )
        assert len(most) == len(least) == 12
        assert abs(most[0]["score"]) == max(map(abs, scores))
        assert abs(least[0]["score"]) == min(map(abs, scores))
        assert base64.b64decode(most[0]["thumbnail"].partition(",")[2]).startswith(b"\xff\xd8\xff")


def test_undecided_images_are_the_last_of_the_certain_ones() -> None:
    history = History(Settings().clock, 20)
    for step, (probability, undecided) in enumerate([(0.99, True), (0.6, False), (0.02, False), (0.9, False)], 1):
        prediction = Prediction(
            label="cat", index=0, known=probability >= 0.5, score=probability, threshold=None, mu_desired=None,
            mu_undesired=None, verdict=Verdict.RELIABLE_DESIRED, adapted=False, loss=None, reason=None,
            probability=probability, undecided=undecided, warming_up=undecided,
        )  # fmt: skip
        history.add(prediction, step, 0.5, b"")
    assert [kept["step"] for kept in history.thumbnails("most")] == [3, 4, 2, 1]
    assert [kept["step"] for kept in history.thumbnails("least")] == [2, 4, 3, 1]


def test_the_description_has_an_example_of_everything(server: Served) -> None:
    described = server.http.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                for media, content in answer.get("content", {}).items():
                    told = {"example", "examples"} & set(content)
                    assert told or content["schema"].get("format") == "binary", (path, method, status, media)
    assert json.dumps(described).count("HTTPValidationError") == 0


def test_an_unknown_image_is_named_by_its_word() -> None:
    """Every field of a prediction is in the answer."""
    words = ["automobile", "deer", "frog", "horse", "truck"]
    with served() as server:
        id = server.session(options={"words": words})
        adapter = ostta.load(embedded(), CLASSES, class_scores=True, words=words)
        named = []
        for content in pngs(60):
            answer, prediction = server.send(id, content).json(), adapter.step(content)
            assert answer.keys() == {"step", *prediction.to_dict()}
            assert answer["most_like"] == prediction.most_like
            named.append(answer["most_like"])
    assert any(named)
