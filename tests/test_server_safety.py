"""Nobody is let in who should not be, and nobody can ask for too much: tokens, cookies, Host, Origin, limits, slow and lost clients."""

from __future__ import annotations

import json
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import ostta
from ostta.live.server import Clock, Limits, Settings, Token, Tokens, read_tokens
from ostta.live.server.security import SIGNED_IN, hosts_of, is_loopback
from ostta.live.server.serving import tokens_for
from serving import CLASSES, Served, encoded, events_of, is_problem, pngs, served

ALL, DOOR = "the-token-of-all-sessions", "the-token-of-the-doors"
SMALL = Limits(
    sessions=40,
    body=60_000,
    json=5_000,
    state=3_000_000,
    held=2_000_000,
    megapixels=0.5,
    images=4,
    waiting=6,
    waiting_in_all=8,
    head_seconds=0.6,
    body_seconds=0.6,
    answer_seconds=20.0,
)


class Hands:
    """A clock that somebody turns."""

    def __init__(self) -> None:
        self.wall, self.steady = 1.8e9, 1000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady)


HANDS = Hands()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A server with tokens, and with a name."""
    settings = Settings(hosts=("cameras.example",), cors=("https://pages.example",), clock=HANDS.clock())
    with served(settings, tokens=Tokens([Token(ALL), Token(DOOR, ("door*",))])) as running:
        yield running


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A server with small limits."""
    with served(Settings(limits=SMALL)) as running:
        yield running


def logged(server: Served, answer: httpx.Response, field: str = "status") -> dict[str, Any]:
    """The line of the log with `field` about a request. It is written when the answer is under way already."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for line in server.lines():
            if line.get("request_id") == answer.headers["x-request-id"] and field in line:
                return line
        time.sleep(0.01)
    raise AssertionError("no such line in the log")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# --- tokens ---------------------------------------------------------------------------------------------------------------------
def test_without_a_token_there_is_only_a_sign_of_life(guarded: Served) -> None:
    assert guarded.http.get("/health").status_code == 200
    assert guarded.http.get("/ready").status_code == 200
    for path in ("/sessions", "/info", "/metrics", "/events", "/openapi.json", f"/sessions/{'0' * 32}", "/nowhere"):
        for headers in (
            {},
            bearer("wrong"),
            {"authorization": "Bearer"},
            {"authorization": f"Basic {ALL}"},
            {"cookie": "ostta=1.2"},
        ):
            answer = guarded.http.get(path, headers=headers)
            is_problem(answer, 401, "wants a token")
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert guarded.http.get("/sessions", headers=bearer(ALL)).status_code == 200


def test_a_bound_token_is_for_its_sessions_alone(guarded: Served) -> None:
    all_, door = bearer(ALL), bearer(DOOR)

    def made(name: str | None, who: dict[str, str]) -> httpx.Response:
        return guarded.http.post(
            "/sessions", headers=who, json={"classes": CLASSES, **({"name": name} if name else {})}
        )

    yard, mine = made("yard", all_).json()["id"], made("door 1", door).json()["id"]
    for name in ("yard 2", None):
        is_problem(made(name, door), 403, "certain names only: door*")
    is_problem(guarded.http.post("/sessions/import", headers=door, content=b"x"), 403, "certain names")
    assert [one["name"] for one in guarded.http.get("/sessions", headers=door).json()["sessions"]] == ["door 1"]
    assert guarded.http.get(f"/sessions/{mine}", headers=door).status_code == 200
    calls = [("GET", ""), ("DELETE", ""), ("PATCH", ""), ("POST", "/images"), ("GET", "/state"), ("PUT", "/state"), ("POST", "/reset"), ("GET", "/recent"), ("GET", "/events"), ("GET", "/kept")]  # fmt: skip
    for id in (yard, "0" * 32):  # whether it is there is not told
        answers = [guarded.http.request(method, f"/sessions/{id}{path}", headers=door) for method, path in calls]
        for answer in answers:
            is_problem(answer, 403, "This token may not use that session.")
            assert "yard" not in answer.text
    is_problem(guarded.http.patch(f"/sessions/{mine}", headers=door, json={"name": "yard"}), 403, "certain names")
    is_problem(guarded.http.get("/metrics", headers=door), 403, "not bound")
    with guarded.http.stream("GET", "/events", headers=door) as stream:
        assert [one["name"] for one in events_of(stream.iter_lines(), 1)[0]["data"]] == ["door 1"]
    assert guarded.http.delete(f"/sessions/{mine}", headers=door).status_code == 204
    assert guarded.http.get(f"/sessions/{yard}", headers=all_).status_code == 200


def test_a_token_may_be_bound_to_an_id() -> None:
    token = Token("0123456789abcdef", ("a" * 32,))
    assert token.allows("a" * 32, "any name")
    assert not token.allows("b" * 32, "a" * 31)
    assert not token.allows(None, None)


def test_a_browser_signs_in_once(guarded: Served) -> None:
    is_problem(guarded.http.post("/login", json={"token": "wrong"}), 401, "no token of this server")
    is_problem(guarded.http.post("/login", json={"token": 3}), 401, "no token of this server")
    answer = guarded.http.post("/login", json={"token": ALL})
    assert answer.status_code == 204
    words = answer.headers["set-cookie"].lower()
    assert "httponly" in words
    assert "samesite=strict" in words
    assert ALL not in words
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    guarded.http.cookies.clear()
    assert guarded.http.get("/sessions", headers=cookie).status_code == 200
    forged = {"cookie": cookie["cookie"][:-3] + "abc"}
    assert guarded.http.get("/sessions", headers=forged).status_code == 401
    later = {
        "cookie": "ostta=" + str(int(HANDS.wall) + 99 * SIGNED_IN) + cookie["cookie"][cookie["cookie"].index(".") :]
    }
    assert guarded.http.get("/sessions", headers=later).status_code == 401
    HANDS.wall += SIGNED_IN + 60
    assert guarded.http.get("/sessions", headers=cookie).status_code == 401
    HANDS.wall -= 3 * SIGNED_IN  # a clock that went back makes nobody stay for longer than two such times
    assert guarded.http.get("/sessions", headers=cookie).status_code == 401
    assert 'ostta=""' in guarded.http.post("/logout").headers["set-cookie"]


def test_a_token_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# ours\n{ALL}\n{DOOR} door* {'a' * 32}  # the doors\n\n")
    tokens = read_tokens(path)
    assert tokens.of_bearer(DOOR).patterns == ("door*", "a" * 32)
    assert tokens.of_bearer(ALL).patterns == ()
    assert tokens.of_bearer(ALL[:-1]) is None
    for text, words in (
        ("short\n", "at least 16"),
        ("", "has no token"),
        (f"{ALL}\n{ALL}", "there already"),
        ("ä" * 20, "at least 16"),
    ):
        path.write_text(text)
        with pytest.raises(ostta.Error, match=words):
            read_tokens(path)


def test_off_loopback_a_token_is_a_must(tmp_path: Path) -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.5", "example.org")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert not tokens_for("127.0.0.1", None)
    with pytest.raises(ostta.Error, match="give it a --token-file"):
        tokens_for("0.0.0.0", None)
    (tmp_path / "tokens").write_text(ALL)
    assert tokens_for("0.0.0.0", tmp_path / "tokens")
    assert hosts_of("0.0.0.0", ["a.example"]) == ("a.example",)


# --- Host and Origin ----------------------------------------------------------------------------------------------------------
def test_only_requests_that_are_meant_for_this_server_are_answered(guarded: Served) -> None:
    for host in ("127.0.0.1:80", "localhost", "cameras.example:8000", "CAMERAS.example", "[::1]:99", "10.0.0.7"):
        assert guarded.http.get("/health", headers={"host": host}).status_code == 200
    for host in (
        "evil.example",
        "cameras.example.evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "",
    ):
        is_problem(guarded.http.get("/health", headers={"host": host}), 421, "is not called")


def test_pages_of_other_sites_may_not_ask(guarded: Served) -> None:
    own = f"http://127.0.0.1:{guarded.port}"
    assert guarded.http.get("/sessions", headers={**bearer(ALL), "origin": own}).status_code == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1", "file://"):
        answer = guarded.http.get("/sessions", headers={**bearer(ALL), "origin": origin})
        is_problem(answer, 403, "may not use this server")
        assert "access-control-allow-origin" not in answer.headers
    is_problem(
        guarded.http.get("/sessions", headers={**bearer(ALL), "sec-fetch-site": "cross-site"}), 403, "other sites"
    )
    allowed = guarded.http.get("/sessions", headers={**bearer(ALL), "origin": "https://pages.example"})
    assert allowed.headers["access-control-allow-origin"] == "https://pages.example"
    asking = {"access-control-request-method": "POST"}
    assert guarded.http.options("/sessions", headers={**asking, "origin": "https://pages.example"}).status_code == 204
    assert guarded.http.options("/sessions", headers={**asking, "origin": own}).status_code == 403


def test_every_answer_has_the_headers_that_browsers_heed(guarded: Served) -> None:
    for answer in (
        guarded.http.get("/health"),
        guarded.http.get("/sessions"),
        guarded.http.get("/nowhere", headers=bearer(ALL)),
    ):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers
    assert guarded.http.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert guarded.http.get("/health", headers={"x-request-id": "no\tgood"}).headers["x-request-id"] != "no\tgood"
    failed = guarded.http.get("/nowhere", headers=bearer(ALL))
    line = logged(guarded, failed)
    assert (line["status"], line["route"]) == (404, "other")
    assert line["problem"] == failed.json()["detail"]
    assert ALL not in json.dumps(guarded.lines())


# --- limits -------------------------------------------------------------------------------------------------------------------
def test_a_body_that_is_too_long_is_refused_however_it_comes(small: Served) -> None:
    id = small.session()

    def in_chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    for content in (b"x" * 60_001, in_chunks()):
        is_problem(small.http.post(f"/sessions/{id}/images", content=content), 413, "60,000 bytes")
    is_problem(small.http.post("/sessions", content=b" " * 5001), 413, "5,000 bytes")
    is_problem(small.http.post("/sessions/import", content=b" " * 3_000_001), 413, "3,000,000 bytes")
    is_problem(small.http.put(f"/sessions/{id}/state", content=iter([b" " * 2_000_001])), 503, "are being read")
    files = [("image", (str(n), pngs()[0])) for n in range(5)]
    is_problem(small.http.post(f"/sessions/{id}/images", files=files), 413, "more than 4 images")
    is_problem(small.http.post(f"/sessions/{id}/images", json={"features": [[1.0]] * 5}), 413, "5 images")
    is_problem(small.http.post(f"/sessions/{id}/images", json={"images": []}), 422, "no image")
    is_problem(small.http.post(f"/sessions/{id}/images", json={"pictures": []}), 422, '{"images"')
    wrong = {"content-type": "text/html"}
    is_problem(small.http.post(f"/sessions/{id}/images", content=b"x", headers=wrong), 415, "text/html")
    for form, words in (("multipart/form-data", "boundary"), ("multipart/form-data; boundary=x", "form")):
        is_problem(
            small.http.post(f"/sessions/{id}/images", content=b"--y\r\n", headers={"content-type": form}), 400, words
        )
    assert small.http.get(f"/sessions/{id}").json()["images"] == 0
    assert small.send(id, pngs()[0]).status_code == 200


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that says it has so many pixels, and would have them."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packed = zlib.compress(b"\0" * 2_000_000, 9)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def test_bombs_are_refused_by_their_headers(small: Served) -> None:
    id = small.session()
    large = encoded(Image.new("RGB", (900, 600)), "JPEG"), encoded(Image.new("RGB", (600, 900)), "WEBP")
    for content in (bomb(30_000, 30_000), bomb(1001, 500), *large):
        began = time.process_time()
        is_problem(small.send(id, content), 422, "at most 0.5 megapixels")
        assert time.process_time() - began < 1
    assert small.http.get(f"/sessions/{id}").json()["refused"] == 4


def test_what_waits_is_bounded_and_says_when_to_come_again(small: Served) -> None:
    one, two = small.session(), small.session()
    statuses: list[int] = []

    def post(id: str) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{small.port}", timeout=60) as http:
            statuses.append(http.post(f"/sessions/{id}/images", files=[("i", ("i", pngs()[0]))] * 3).status_code)

    threads = [threading.Thread(target=post, args=(id,)) for id in (one, one, two)]
    with small.engine.pool.held(one):  # nothing moves
        for thread in threads[:2]:
            thread.start()
        while small.engine._sessions.waiting < 6:
            time.sleep(0.01)
        full = small.send(one, pngs()[0])
        is_problem(full, 429, "6 images of this session are waiting, and 6 may")
        assert int(full.headers["retry-after"]) >= 1
        in_all = small.http.post(f"/sessions/{two}/images", files=[("i", ("i", pngs()[0]))] * 3)
        is_problem(in_all, 429, "8 images may wait on this server")
        assert float(small.http.get("/metrics").text.split("\nostta_images_waiting ")[1].split("\n")[0]) == 6
        threads[2].start()
    for thread in threads:
        thread.join()
    assert statuses[:2] == [200, 200]
    assert small.send(one, pngs()[0]).json()["step"] == 7


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    with served(Settings(limits=Limits(answer_seconds=0.2))) as server:
        id = server.session()
        with server.engine.pool.held(id):
            answer = server.send(id, pngs()[0])
        is_problem(answer, 409, "no answer within 0.2 seconds")
        assert int(answer.headers["retry-after"]) >= 1
        assert server.send(id, pngs()[1]).status_code == 200


def test_sessions_are_bounded() -> None:
    with served(Settings(limits=Limits(sessions=2))) as server:
        first, _ = server.session(), server.session()
        full = server.http.post("/sessions", json={"classes": CLASSES})
        is_problem(full, 503, "There are 2 sessions")
        assert int(full.headers["retry-after"]) >= 1
        server.http.delete(f"/sessions/{first}")
        server.session()


# --- clients that are slow or lost ----------------------------------------------------------------------------------------------
def request_head(id: str, length: int) -> bytes:
    return f"POST /sessions/{id}/images HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: {length}\r\n\r\n".encode()


def test_a_client_that_goes_away_in_its_upload_leaves_no_trace(small: Served) -> None:
    id = small.session()
    for part in (0, 10, 1000):
        with small.connected() as connection:
            connection.sendall(request_head(id, 5000) + b"x" * part)
            time.sleep(0.02)
    deadline = time.monotonic() + 10
    while len([line for line in small.lines() if line.get("status") == 499]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    session = small.http.get(f"/sessions/{id}").json()
    assert (session["images"], session["refused"], session["steps"]) == (0, 0, 0)
    assert small.send(id, pngs()[0]).json()["step"] == 1
    assert not [line for line in small.lines() if line["level"] == "error"]


def test_a_slow_body_is_given_up_and_others_are_served_meanwhile(small: Served) -> None:
    id = small.session()
    with small.connected() as connection:
        connection.sendall(request_head(id, 5000) + b"x" * 10)
        assert small.send(id, pngs()[0]).status_code == 200
        answer = connection.recv(4000)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.6 seconds" in answer
    assert small.http.get(f"/sessions/{id}").json()["images"] == 1


def test_a_head_that_never_ends_or_never_comes_is_hung_up_on(small: Served) -> None:
    for begun in (b"", b"GET /health HTTP/1.1\r\nHost: loc"):
        with small.connected() as connection:
            connection.sendall(begun)
            began = time.monotonic()
            assert connection.recv(100) == b""
            assert 0.3 < time.monotonic() - began < 10
    with small.connected() as connection:
        try:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000)
            assert connection.recv(100) == b""
        except OSError:  # hung up while it was being sent
            pass
    assert small.http.get("/health").status_code == 200


def test_two_requests_on_one_connection_are_both_answered(small: Served) -> None:
    with small.connected() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        found = b""
        while found.count(b'{"status":"ok"}') < 2:
            found += connection.recv(4000)
        time.sleep(1.0)  # longer than a head may take: nothing is being sent
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(4000)


def test_what_goes_wrong_inside_is_in_the_log_and_not_in_the_answer(
    small: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> dict[str, object]:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(small.engine, "info", broken)
    answer = small.http.get("/info")
    is_problem(answer, 500, "its log has the details")
    assert "secret" not in answer.text
    assert "the secret of the house" in logged(small, answer, "trace")["trace"]
