"""Nobody is let in who should not be, and nobody can ask for too much.

Tokens, cookies, Host, Origin, limits, slow and lost clients.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import ostta
from helpers.serving import CLASSES, Served, encoded, events_of, eventually, is_problem, pngs, served
from ostta.data.images import MAX_MEGAPIXELS
from ostta.server import Clock, Limits, Settings, Token, Tokens, read_tokens
from ostta.server.api import uploads
from ostta.server.api.events import MOST_CHARACTERS, SLICE, Overview
from ostta.server.problems import ProblemError
from ostta.server.security import ANYBODY, COOKIE_SECONDS, hosts_of, is_loopback, network_of, proxies_of
from ostta.server.serving import tokens_for

ALL, DOOR, CAMERA = "the-token-of-all-sessions", "the-token-of-the-doors", "the-token-of-one-camera"
MONITOR = "the-token-of-the-monitoring"
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
    bound = (Token(DOOR, ("door*",)), Token(CAMERA, ("cam-1?",)), Token(MONITOR, ("/metrics",)))
    with served(settings, tokens=Tokens([Token(ALL), *bound])) as running:
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


# --- tokens -----------------------------------------------------------------------------------------------------------
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
            is_problem(answer, 401, "requires a token")
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert guarded.http.get("/sessions", headers=bearer(ALL)).status_code == 200


def test_a_token_of_metrics_reads_them_and_changes_nothing(guarded: Served) -> None:
    monitor, all_ = bearer(MONITOR), bearer(ALL)
    assert "ostta_sessions " in guarded.http.get("/metrics", headers=monitor).text
    # A session with the name of the pattern is no exception.
    id = guarded.http.post("/sessions", headers=all_, json={"classes": CLASSES, "name": "/metrics"}).json()["id"]
    assert guarded.http.get("/sessions", headers=monitor).json() == {"sessions": []}
    for method, path in (("GET", ""), ("GET", "/state"), ("DELETE", ""), ("POST", "/images"), ("POST", "/reset")):
        is_problem(guarded.http.request(method, f"/sessions/{id}{path}", headers=monitor), 403, "may not use")
    wanted = {"classes": CLASSES, "name": "/metrics"}
    is_problem(guarded.http.post("/sessions", headers=monitor, json=wanted), 403, "/metrics")
    assert guarded.http.delete(f"/sessions/{id}", headers=all_).status_code == 204


def test_a_bound_token_is_for_its_sessions_alone(guarded: Served) -> None:
    all_, door = bearer(ALL), bearer(DOOR)

    def made(name: str | None, who: dict[str, str]) -> httpx.Response:
        return guarded.http.post(
            "/sessions", headers=who, json={"classes": CLASSES, **({"name": name} if name else {})}
        )

    yard, mine = made("yard", all_).json()["id"], made("door 1", door).json()["id"]
    for name in ("yard 2", None):
        is_problem(made(name, door), 403, "with these names: door*")
    is_problem(guarded.http.post("/sessions/import", headers=door, content=b"x"), 403, "with these names")
    assert [one["name"] for one in guarded.http.get("/sessions", headers=door).json()["sessions"]] == ["door 1"]
    assert guarded.http.get(f"/sessions/{mine}", headers=door).status_code == 200
    calls = [
        ("GET", ""),
        ("DELETE", ""),
        ("PATCH", ""),
        ("POST", "/images"),
        ("GET", "/state"),
        ("PUT", "/state"),
        ("POST", "/reset"),
        ("GET", "/recent"),
        ("GET", "/events"),
        ("GET", "/kept"),
    ]
    for id in (yard, "0" * 32):  # whether it is there is not told
        answers = [guarded.http.request(method, f"/sessions/{id}{path}", headers=door) for method, path in calls]
        for answer in answers:
            is_problem(answer, 403, "This token may not use that session.")
            assert "yard" not in answer.text
    is_problem(guarded.http.patch(f"/sessions/{mine}", headers=door, json={"name": "yard"}), 403, "with these names")
    # The name is stored without the spaces around it, and that name has to fit.
    one = bearer(CAMERA)
    is_problem(made("cam-1 ", one), 403, "with these names: cam-1?")
    is_problem(guarded.http.post("/sessions/import?name=cam-1%20", headers=one), 403, "with these names")
    numbered = made("cam-12 ", one).json()
    assert numbered["name"] == "cam-12"
    renamed = guarded.http.patch(f"/sessions/{numbered['id']}", headers=one, json={"name": "cam-1 "})
    is_problem(renamed, 403, "with these names")
    assert guarded.http.delete(f"/sessions/{numbered['id']}", headers=one).status_code == 204
    is_problem(guarded.http.get("/metrics", headers=door), 403, "bound to /metrics")
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
    is_problem(guarded.http.post("/login", json={"token": "wrong"}), 401, "token is not valid")
    is_problem(guarded.http.post("/login", json={"token": 3}), 401, "token is not valid")
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
        "cookie": "ostta="
        + str(int(HANDS.wall) + 99 * COOKIE_SECONDS)
        + cookie["cookie"][cookie["cookie"].index(".") :]
    }
    assert guarded.http.get("/sessions", headers=later).status_code == 401
    HANDS.wall += COOKIE_SECONDS + 60
    assert guarded.http.get("/sessions", headers=cookie).status_code == 401
    HANDS.wall -= 3 * COOKIE_SECONDS  # a clock that went back makes nobody stay for longer than two such times
    assert guarded.http.get("/sessions", headers=cookie).status_code == 401
    HANDS.wall += 2 * COOKIE_SECONDS - 60
    assert 'ostta=""' in guarded.http.post("/logout").headers["set-cookie"]


def test_a_cookie_is_no_longer_valid_after_its_logout(guarded: Served) -> None:
    cookies = []
    for _ in range(2):
        answer = guarded.http.post("/login", json={"token": ALL})
        cookies.append({"cookie": answer.headers["set-cookie"].partition(";")[0]})
        guarded.http.cookies.clear()
    assert [guarded.http.get("/sessions", headers=cookie).status_code for cookie in cookies] == [200, 200]
    assert guarded.http.post("/logout", headers=cookies[0]).status_code == 204
    assert [guarded.http.get("/sessions", headers=cookie).status_code for cookie in cookies] == [401, 200]
    assert guarded.http.post("/logout", headers={"cookie": "ostta=1.2.3"}).status_code == 204


def test_sign_outs_are_forgotten_when_their_cookies_have_expired() -> None:
    tokens = Tokens([Token(ALL)])
    cookie = tokens.cookie(Token(ALL), 1000.0)
    for now in (1000.0, 1000.0 + 3 * COOKIE_SECONDS):
        tokens.sign_out(tokens.cookie(Token(ALL), now), now)
        tokens.sign_out("1.2.3", now)
    assert len(tokens._signed_out) == 1
    assert tokens.of_cookie(cookie, 1000.0) is not None


def test_what_a_named_proxy_says_of_its_clients_is_believed(guarded: Served) -> None:
    says = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.7"}
    answer = guarded.http.post("/login", json={"token": ALL}, headers=says)
    assert "secure" not in answer.headers["set-cookie"].lower()
    guarded.http.cookies.clear()
    settings = Settings(limits=Limits(guests=1), proxies=proxies_of(["127.0.0.0/8"]))
    with served(settings, tokens=Tokens([Token(ALL)])) as server:
        answer = server.http.post("/login", json={"token": ALL}, headers=says)
        assert "; secure" in answer.headers["set-cookie"].lower()
        assert "; secure" not in server.http.post("/login", json={"token": ALL}).headers["set-cookie"].lower()

        def is_limited() -> bool:
            # The unfinished request is refused itself if it arrives during another request, so each try sends it again.
            with server.connected() as connection:
                connection.sendall(UNFINISHED.replace(b"Host", b"X-Forwarded-For: 203.0.113.7\r\nHost"))
                limited = server.http.post("/login", json={}, headers=says).status_code == 429
                # The limit per address is that of the proxy's client.
                assert server.http.post("/login", json={"token": ALL}).status_code == 204
            return limited

        eventually(is_limited)


def test_a_proxy_is_named_by_its_address() -> None:
    assert proxies_of(["192.0.2.1", "10.1.2.3/8", "2001:db8::1"]) == ("192.0.2.1/32", "10.0.0.0/8", "2001:db8::1/128")
    for wrong in ("*", "proxy.example", ""):
        with pytest.raises(ostta.Error, match="is not the address of a proxy"):
            proxies_of([wrong])


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
    assert [
        is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.5", "example.org")
    ] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert not tokens_for("127.0.0.1", None)
    with pytest.raises(ostta.Error, match="give it a --token-file"):
        tokens_for("0.0.0.0", None)
    (tmp_path / "tokens").write_text(ALL)
    assert tokens_for("0.0.0.0", tmp_path / "tokens")
    assert hosts_of("0.0.0.0", ["a.example"]) == ("a.example",)


# --- Host and Origin --------------------------------------------------------------------------------------------------
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
        is_problem(guarded.http.get("/health", headers={"host": host}), 421, "has no name")


def test_a_header_that_decides_who_may_come_in_is_there_once(guarded: Served) -> None:
    for hosts in (b"Host: localhost\r\nHost: evil.example", b"Host: localhost\r\nHost: localhost"):
        with guarded.connected() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + hosts + b"\r\n\r\n")
            answer = connection.recv(4000)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"two `host` headers" in answer
    for name, value in (("authorization", f"Bearer {ALL}"), ("origin", f"http://127.0.0.1:{guarded.port}")):
        is_problem(guarded.http.get("/sessions", headers=[(name, value)] * 2), 400, f"two `{name}` headers")


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
    assert guarded.http.options("/sessions", headers={**asking, "origin": "https://pages.example"}).status_code == 200
    for origin in (own, "https://evil.example"):
        refused = guarded.http.options("/sessions", headers={**asking, "origin": origin})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers


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


# --- limits -----------------------------------------------------------------------------------------------------------
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
    is_problem(small.http.post(f"/sessions/{id}/images", files=files), 413, "There are 5 images")
    is_problem(small.http.post(f"/sessions/{id}/images", json={"features": [[1.0]] * 5}), 413, "5 images")
    is_problem(small.http.post(f"/sessions/{id}/images", json={"images": []}), 422, "at least 1 item")
    is_problem(small.http.post(f"/sessions/{id}/images", json={"pictures": []}), 422, "`images` is missing")
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
    # The limit is that of the server, not an option of the session.
    assert "option" not in small.send(id, large[0]).json()["detail"]


def test_photographs_are_limited_as_in_a_stream(guarded: Served) -> None:
    assert Limits().megapixels == MAX_MEGAPIXELS
    all_, photo = bearer(ALL), encoded(Image.new("RGB", (6_000, 4_000)), "JPEG")
    id = guarded.http.post("/sessions", headers=all_, json={"classes": CLASSES}).json()["id"]
    assert guarded.http.post(f"/sessions/{id}/images", headers=all_, content=photo).status_code == 200
    assert guarded.http.delete(f"/sessions/{id}", headers=all_).status_code == 204


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
        while small.engine.registry.totals.images_waiting < 6:
            time.sleep(0.01)
        full = small.send(one, pngs()[0])
        is_problem(full, 429, "6 images of this session are waiting, and the limit is 6")
        assert int(full.headers["retry-after"]) >= 1
        in_all = small.http.post(f"/sessions/{two}/images", files=[("i", ("i", pngs()[0]))] * 3)
        is_problem(in_all, 429, "limit of 8 waiting images on this server")
        assert float(small.http.get("/metrics").text.split("\nostta_images_waiting ")[1].split("\n")[0]) == 6
        threads[2].start()
    for thread in threads:
        thread.join()
    assert statuses[:2] == [200, 200]
    assert small.send(one, pngs()[0]).json()["step"] == 7


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"\r\n\r\n--x\r\n" * 5000 + b"\r\n\r\n--x--"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n" + b"\r\n--xy" * 5000 + b"\r\n--x--"),
        ("application/json", b'{"images": [' + b'"",' * 5000 + b'""]}'),
        ("application/json", b'{"features": [' + b"[]," * 5000 + b"[]]}"),
        ("application/json", b'{"images": [' + b"{}," * 5000 + b"{}]}"),
    ],
)
def test_very_many_empty_parts_or_values_are_refused_before_they_are_parsed(
    kind: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "_FormParser", None)
    monkeypatch.setattr(uploads, "json_object", None)
    with pytest.raises(ProblemError, match="more than 64 images") as raised:
        asyncio.run(uploads.sent_images(kind, body, 64))
    assert raised.value.status == 413


def test_long_json_is_parsed_beside_the_event_loop(small: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    parse = uploads.json_object

    def json_object(body: bytes) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return parse(body)

    monkeypatch.setattr(uploads, "json_object", json_object)
    monkeypatch.setattr(uploads, "INLINE_JSON", 1000)
    id = small.session()
    for width in (2, 1000):
        small.http.post(f"/sessions/{id}/images", json={"features": [[0.5] * width]})
    assert len(set(threads)) == 2


UNFINISHED = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"


@pytest.fixture(scope="module")
def crowded() -> Iterator[Served]:
    """A server with tokens that takes few requests and connections at one time."""
    limits = Limits(requests=24, guests=3, guests_in_all=5, login_seconds=20.0, read_seconds=0.3, listeners=3)
    with served(Settings(limits=limits), tokens=Tokens([Token(ALL), Token(DOOR, ("door*",))])) as running:
        yield running


def from_address(server: Served, address: str) -> socket.socket:
    if sys.platform != "linux":
        pytest.skip("only Linux has all of 127.0.0.0/8 as addresses of the machine")
    return socket.create_connection(("127.0.0.1", server.port), timeout=20, source_address=(address, 0))


def test_unfinished_requests_without_a_token_keep_nobody_else_out(crowded: Served) -> None:
    with ExitStack() as stack:
        refused = []
        for _ in range(15):
            connection = stack.enter_context(crowded.connected())
            connection.sendall(UNFINISHED)
            refused.append(connection)
        for connection in refused[3:]:
            assert connection.recv(4000).startswith(b"HTTP/1.1 429")
        assert crowded.http.get("/health").status_code == 200
        assert crowded.http.get("/ready").status_code == 200
        assert crowded.http.get("/sessions", headers=bearer(ALL)).status_code == 200
        full = crowded.http.post("/login", json={"token": ALL})
        is_problem(full, 429, "without a token are in progress")
        assert int(full.headers["retry-after"]) >= 1
        # Another address may still sign in, until the limit of all addresses is reached.
        others = [stack.enter_context(from_address(crowded, f"127.0.0.{n}")) for n in (2, 3, 4)]
        for connection in others:
            connection.sendall(UNFINISHED)
        assert others[2].recv(4000).startswith(b"HTTP/1.1 429")
    until = time.monotonic() + 10
    while crowded.http.post("/login", json={"token": ALL}).status_code != 204:  # they have gone away
        assert time.monotonic() < until
    crowded.http.cookies.clear()


def test_probes_are_answered_while_all_requests_are_in_progress(crowded: Served) -> None:
    head = f"POST /sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ALL}\r\nContent-Length: 99\r\n\r\n"
    with ExitStack() as stack:
        for n in range(24):
            stack.enter_context(from_address(crowded, f"127.0.0.{n + 2}")).sendall(head.encode())
        until = time.monotonic() + 10
        while crowded.http.get("/sessions", headers=bearer(ALL)).status_code != 503:
            assert time.monotonic() < until
        assert crowded.http.get("/health").status_code == 200
        assert crowded.http.get("/ready").status_code == 200
    until = time.monotonic() + 10
    while crowded.http.get("/sessions", headers=bearer(ALL)).status_code != 200:
        assert time.monotonic() < until


def test_a_new_connection_replaces_one_that_sends_no_request(crowded: Served) -> None:
    with ExitStack() as stack:
        opened = []
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            for _ in range(60):
                opened.append(stack.enter_context(from_address(crowded, address)))
                opened[-1].sendall(b"G")
        with crowded.connected() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(4000).startswith(b"HTTP/1.1 200")
        closed = 0
        for connection in opened:
            connection.setblocking(False)
            try:
                closed += connection.recv(10) == b""
            except ConnectionResetError:
                closed += 1
            except BlockingIOError:
                pass
        assert len(opened) - 48 <= closed < len(opened)


def a_session(name: str, classes: list[str]) -> dict[str, Any]:
    counts = dict.fromkeys(classes, 0)
    return {"id": "a" * 32, "name": name, "classes": classes, "class_counts": counts, "unfamiliar": classes}


class OneOverview:
    """An engine whose overview is one large event, and then nothing more."""

    def __init__(self, sessions: list[dict[str, Any]]) -> None:
        self.sessions, self.followed, self.ended = sessions, 0, 0

    async def follow_all(self) -> AsyncIterator[list[dict[str, Any]]]:
        self.followed += 1
        try:
            yield self.sessions
            await asyncio.sleep(60)
        finally:
            self.ended += 1


def test_all_listeners_share_one_overview_of_bounded_size() -> None:
    engine = OneOverview(
        [a_session("yard", ["cat"]), a_session("door", [f"class {n} " * 20 for n in range(1000)])] * 400
    )

    async def first_event(overview: Overview, token: Token) -> bytes:
        content = b""
        async with aclosing(overview.response(token).body_iterator) as parts:
            async for part in parts:
                assert len(part) <= SLICE
                content += part
                if content.endswith(b"\n\n"):
                    break
        return content

    async def follow() -> list[bytes]:
        overview = Overview(engine)  # type: ignore[arg-type]
        tokens = (ANYBODY, ANYBODY, Token("0" * 16, ("door",)))
        found = await asyncio.gather(*(first_event(overview, token) for token in tokens))
        await asyncio.sleep(0)
        assert (engine.followed, engine.ended) == (1, 1)  # nobody listens any more
        assert await first_event(overview, ANYBODY) == found[0]
        return found

    first, second, door = asyncio.run(follow())
    assert first == second
    assert len(first) > SLICE
    sessions = json.loads(door.partition(b"data: ")[2])
    assert {one["name"] for one in sessions} == {"door"}
    assert 0 < sum(map(len, sessions[0]["classes"])) <= MOST_CHARACTERS
    assert list(sessions[0]["class_counts"]) == sessions[0]["unfamiliar"] == sessions[0]["classes"]


def test_event_streams_are_limited_for_each_token_and_end_if_nobody_reads(
    crowded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = OneOverview([a_session("door", []) | {"text": "x" * 1_000_000}] * 16)
    monkeypatch.setattr(crowded.engine, "follow_all", large.follow_all)
    asking = "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n"

    def status(token: str) -> int:
        with crowded.http.stream("GET", "/events", headers=bearer(token)) as stream:
            return stream.status_code

    with ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(crowded.connected())
            connection.sendall(asking.format(DOOR).encode())
            assert connection.recv(12) == b"HTTP/1.1 200"  # and nothing of the rest
        full = crowded.http.get("/events", headers=bearer(DOOR))
        is_problem(full, 429, "3 open event streams")
        assert status(ALL) == 200
        until = time.monotonic() + 20
        while status(DOOR) != 200:
            assert time.monotonic() < until
    assert large.followed >= 1
    assert not [line for line in crowded.lines() if "trace" in line]


def test_a_sign_in_is_small_and_short(small: Served) -> None:
    is_problem(small.http.post("/login", content=b" " * 4097), 413, "4,096 bytes")
    with served(Settings(limits=Limits(login_seconds=0.1))) as server, server.connected() as connection:
        connection.sendall(UNFINISHED)
        assert connection.recv(4000).startswith(b"HTTP/1.1 408")


def test_limits_per_address_count_the_network_of_an_ipv6_host() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.7") == network_of("192.0.2.7") == "192.0.2.7"
    assert network_of("") == ""


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


# --- clients that are slow or lost ------------------------------------------------------------------------------------
def request_head(id: str, length: int) -> bytes:
    return (
        f"POST /sessions/{id}/images HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: "
        f"{length}\r\n\r\n"
    ).encode()


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


def test_trailers_count_as_part_of_the_head_and_are_never_read_as_headers(guarded: Served) -> None:
    body = b'{"classes": ["cat", "dog"]}'
    chunked = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    last = b"%x\r\n%s\r\n0\r\n" % (len(body), body)
    with guarded.connected() as connection:
        connection.sendall(chunked % b"/sessions" + last + f"Authorization: Bearer {ALL}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")
    for trailers in (b"X: %s\r\n" % (b"x" * 1000), b"x" * 1000):  # many lines, or one line without an end
        with guarded.connected() as connection, pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012
            connection.sendall(chunked % b"/login" + last + b"X: ")
            for _ in range(8000):
                connection.sendall(trailers)
    assert guarded.http.get("/health").status_code == 200


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
