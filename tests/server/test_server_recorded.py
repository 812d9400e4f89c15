"""The answers of every address, compared with those recorded in `recorded/http_answers.json`.

Ids, times and durations are masked. `python tests/server/test_server_recorded.py` records them anew after an intended
change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from helpers.paths import TESTS
from helpers.serving import CLASSES, Served, events_of, pngs, served
from ostta.server import Settings, Token, Tokens

RECORDED = TESTS / "recorded" / "http_answers.json"
ALL, DOOR = "0123456789abcdef-all", "0123456789abcdef-door"
HEADERS = (
    "allow", "cache-control", "content-disposition", "content-type", "location", "retry-after", "www-authenticate",
    "access-control-allow-origin", "content-security-policy", "x-content-type-options", "set-cookie",
)  # fmt: skip
MASKED = {"created", "last_image", "time", "ms", "request_id", "images_per_second", "version", "threads"}
# Sentences are for people and may be improved; the type, the title and the status are for programs.
PROSE = {"detail", "sentence", "about"}


def masked(value: Any, key: str = "") -> Any:
    if key in MASKED:
        return f"<{key}>" if value is not None else None
    if key in PROSE and isinstance(value, str):
        return "<sentence>"
    if isinstance(value, dict):
        if value.get("status") == 422:  # the code of the error, which says more than the status
            value = {**value, "type": "/problems/<code>"}
        return {name: masked(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [masked(each) for each in value[:40]]
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, str):
        return re.sub(r"\b[0-9a-f]{32}\b|(?<=session )[0-9a-f]{6}\b", "<id>", value)
    return value


def described(answer: httpx.Response) -> dict[str, Any]:
    kind = answer.headers.get("content-type", "")
    headers = {name: masked(answer.headers[name]) for name in HEADERS if name in answer.headers}
    if "set-cookie" in headers:
        headers["set-cookie"] = re.sub(r"ostta=[^;]*", "ostta=<cookie>", headers["set-cookie"])
        headers["set-cookie"] = re.sub(r"expires=[^;]*; ", "", headers["set-cookie"])
    if "content-disposition" in headers:
        headers["content-disposition"] = re.sub(r'"[0-9a-f]{8}\.', '"<id>.', headers["content-disposition"])
    body: Any = f"<{kind}>" if answer.content else ""
    if "json" in kind:
        body = masked(answer.json())
    return {"status": answer.status_code, "headers": headers, "body": body}


class Recorder:
    """Asks, and keeps what was answered by a name."""

    def __init__(self, server: Served) -> None:
        self.server, self.found = server, dict[str, Any]()

    def __call__(self, name: str, method: str, path: str, token: str | None = ALL, **given: Any) -> httpx.Response:
        headers = {**({} if token is None else {"authorization": f"Bearer {token}"}), **given.pop("headers", {})}
        answer = self.server.http.request(method, path, headers=headers, **given)
        assert name not in self.found
        self.found[name] = described(answer)
        return answer


def recorded(server: Served) -> dict[str, Any]:
    ask = Recorder(server)
    for name in ("health", "ready", "info", "sessions", "metrics", "", "favicon.ico", "nowhere", "docs"):
        ask(f"GET /{name}", "GET", f"/{name}")
    info = ask.found["GET /info"]["body"]
    # Their order says nothing.
    info |= {kind: sorted(info[kind]) for kind in ("methods", "scores", "identifiers")}
    info["options"] = {owner: sorted(options[0]) if options else [] for owner, options in info["options"].items()}
    for name in ("info", "sessions", "metrics", "events", "", "health"):
        ask(f"GET /{name} without a token", "GET", f"/{name}", None)
    ask("GET /metrics with a bound token", "GET", "/metrics", DOOR)
    ask("PUT /sessions", "PUT", "/sessions")
    ask("login", "POST", "/login", None, json={"token": ALL})
    ask("login refused", "POST", "/login", None, json={"token": "wrong"})
    ask("login without JSON", "POST", "/login", None, content=b"{")
    ask("logout", "POST", "/logout", None)
    server.http.cookies.clear()
    ask("wrong host", "GET", "/health", headers={"host": "evil.example"})
    ask("wrong origin", "GET", "/sessions", headers={"origin": "https://evil.example"})
    ask("named origin", "GET", "/sessions", headers={"origin": "https://good.example"})
    preflight = {"origin": "https://good.example", "access-control-request-method": "POST"}
    ask("preflight", "OPTIONS", "/sessions", None, headers=preflight)
    sessions(ask)
    return ask.found


def sessions(ask: Recorder) -> None:
    for name, wanted in {
        "no classes": {}, "classes as a text": {"classes": "cat"}, "classes of a number": {"classes": [1]},
        "unknown field": {"classes": CLASSES, "x": 1}, "unknown method": {"classes": CLASSES, "method": "x"},
        "unknown profile": {"classes": CLASSES, "profile": "x"}, "guard as a text": {"classes": CLASSES, "guard": "no"},
        "seed as a text": {"classes": CLASSES, "seed": "1"}, "options as a list": {"classes": CLASSES, "options": []},
        "unknown option": {"classes": CLASSES, "options": {"x": 1}}, "empty name": {"classes": CLASSES, "name": ""},
        "two equal classes": {"classes": ["cat", "cat "]}, "a path": {"classes": CLASSES, "method": "a.py:B"},
    }.items():  # fmt: skip
        ask(f"create: {name}", "POST", "/sessions", json=wanted)
    ask("create: no object", "POST", "/sessions", content=b"[]")
    ask("create: no JSON", "POST", "/sessions", content=b"{")
    ask("create: a name twice", "POST", "/sessions", content=b'{"classes": ["a"], "classes": ["b"]}')
    ask("create: too large", "POST", "/sessions", content=b" " * (2**20 + 1))
    ask("create: name of another token", "POST", "/sessions", DOOR, json={"classes": CLASSES, "name": "yard"})
    ask("create: unknown parameter", "POST", "/sessions", json={"classes": CLASSES}, params={"x": 1})
    made = ask("create", "POST", "/sessions", json={"classes": CLASSES, "name": "door", "seed": 3})
    at = f"/sessions/{made.json()['id']}"
    described = {"classes": {"cat": ["a kitten"], "dog": []}, "options": {"accept": 0.5}}
    other = f"/sessions/{ask('create with descriptions', 'POST', '/sessions', json=described).json()['id']}"
    ask("session of another token", "GET", other, DOOR)
    ask("unknown session", "GET", f"/sessions/{'0' * 32}")
    ask("unknown session, bound token", "GET", f"/sessions/{'0' * 32}", DOOR)
    ask("no id", "GET", "/sessions/x")
    images(ask, at)
    ask("session", "GET", at, DOOR)
    ask("rename", "PATCH", at, json={"name": "door 2"})
    ask("rename: wrong body", "PATCH", at, json={"names": "door 2"})
    ask("rename: not a text", "PATCH", at, json={"name": 1})
    ask("recent", "GET", f"{at}/recent", params={"limit": 2})
    ask("recent: wrong limit", "GET", f"{at}/recent", params={"limit": -1})
    ask("kept", "GET", f"{at}/kept")
    ask("kept: wrong choice", "GET", f"{at}/kept", params={"which": "some"})
    for verb in ("freeze", "thaw", "roll-back", "save", "reset", "explode"):
        ask(verb, "POST", f"{at}/{verb}")
    state = ask("state", "GET", f"{at}/state").content
    ask("replace state", "PUT", f"{at}/state", content=state)
    ask("replace state: damaged", "PUT", f"{at}/state", content=b"no state")
    ask("import", "POST", "/sessions/import", params={"name": "copy"}, content=state)
    ask("import: damaged", "POST", "/sessions/import", content=b"no state")
    ask("import: name of another token", "POST", "/sessions/import", DOOR, params={"name": "copy"}, content=state)
    ask("all sessions", "GET", "/sessions")
    ask("sessions of a bound token", "GET", "/sessions", DOOR)
    ask("events: wrong number", "GET", f"{at}/events", params={"after": "x"})
    headers = {"authorization": f"Bearer {ALL}"}
    with ask.server.http.stream("GET", f"{at}/events", params={"after": 0}, headers=headers) as stream:
        kinds = [(one["event"], sorted(one["data"])) for one in events_of(stream.iter_lines(), 4)]
        ask.found["events"] = {"type": stream.headers["content-type"], "events": json.loads(json.dumps(kinds))}
    with ask.server.http.stream("GET", "/events", headers=headers) as stream:
        (overview,) = events_of(stream.iter_lines(), 1)
        ask.found["overview"] = {"event": overview["event"], "fields": sorted(overview["data"][0])}
    ask("delete", "DELETE", at)
    ask("delete again", "DELETE", at)


def images(ask: Recorder, at: str) -> None:
    png, at = pngs()[0], f"{at}/images"
    ask("image", "POST", at, content=png, headers={"content-type": "image/png"})
    key = {"idempotency-key": "frame-1"}
    ask("image with a key", "POST", at, content=png, headers=key)
    ask("image with a key again", "POST", at, content=png, headers=key)
    ask("other image with this key", "POST", at, content=pngs()[1], headers=key)
    ask("wrong key", "POST", at, content=png, headers={"idempotency-key": "two words"})
    ask("image with parameters", "POST", at, content=png, params={"learn": "false", "evidence": "true"})
    ask("image with a wrong parameter", "POST", at, content=png, params={"lern": "false"})
    ask("image with a wrong value", "POST", at, content=png, params={"learn": "perhaps"})
    ask("two images in a form", "POST", at, files=[("image", ("a", png)), ("image", ("b", b"no image"))])
    ask("no image in a form", "POST", at, files=[("x", (None, "y"))])
    ask("features", "POST", at, json={"features": [[1.0] + [0.0] * 127]})
    ask("features of another width", "POST", at, json={"features": [[1.0]]})
    ask("features as texts", "POST", at, json={"features": [["1"]]})
    ask("images in JSON, not base64", "POST", at, json={"images": ["?"]})
    ask("images in JSON, numbers", "POST", at, json={"images": [1]})
    ask("images in JSON, other fields", "POST", at, json={"pictures": []})
    ask("many images", "POST", at, json={"images": [""] * 65})
    ask("no image", "POST", at, content=b"hello", headers={"content-type": "image/png"})
    ask("empty image", "POST", at, content=b"")
    ask("a text", "POST", at, content=b"hello", headers={"content-type": "text/plain"})
    ask("image of curl -d", "POST", at, content=b"x", headers={"content-type": "application/x-www-form-urlencoded"})
    ask("GET images", "GET", at)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    tokens = Tokens([Token(ALL), Token(DOOR, ("door*",))])
    with served(Settings(cors=("https://good.example",)), tokens=tokens) as running:
        yield running


def test_every_address_answers_as_recorded(server: Served) -> None:
    wanted, found = json.loads(RECORDED.read_text()), recorded(server)
    assert found.keys() == wanted.keys()
    different = {name: (wanted[name], found[name]) for name in wanted if wanted[name] != found[name]}
    assert different == {}


def test_the_description_has_the_recorded_addresses_and_fields(server: Served) -> None:
    """Only what clients depend on: how a schema is written may change."""
    wanted = json.loads((RECORDED.parent / "http_fields.json").read_text())
    found = fields(server.http.get("/openapi.json", headers={"authorization": f"Bearer {ALL}"}).json())
    # There may be more schemas.
    found["schemas"] = {name: one for name, one in found["schemas"].items() if name in wanted["schemas"]}
    assert found == wanted


def fields(document: dict[str, Any]) -> dict[str, Any]:
    paths = {
        f"{method} {path}": {
            "parameters": sorted((one["in"], one["name"], one["required"]) for one in operation.get("parameters", ())),
            "bodies": sorted(operation.get("requestBody", {}).get("content", {})),
            "answers": {status: sorted(one.get("content", {})) for status, one in operation["responses"].items()},
        }
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    schemas = {
        name: {"fields": sorted(one.get("properties", {})), "required": sorted(one.get("required", ()))}
        for name, one in document["components"]["schemas"].items()
    }
    return json.loads(json.dumps({"paths": paths, "schemas": schemas, "security": document["security"]}))


if __name__ == "__main__":
    with served(
        Settings(cors=("https://good.example",)), tokens=Tokens([Token(ALL), Token(DOOR, ("door*",))])
    ) as running:
        RECORDED.write_text(json.dumps(recorded(running), indent=1) + "\n")
        document = running.http.get("/openapi.json", headers={"authorization": f"Bearer {ALL}"}).json()
        (RECORDED.parent / "http_fields.json").write_text(json.dumps(fields(document), indent=1) + "\n")
