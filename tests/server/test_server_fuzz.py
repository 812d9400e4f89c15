"""Whatever is sent, there is an answer: no 500, no hang, no growth, no word of another session."""

from __future__ import annotations

import base64
import ctypes
import gc
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import hypothesis
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fuzz.images import repaired, resized, seeds
from fuzz.mutate import damaged
from helpers.serving import Served, pngs, served, state_hash
from ostta.server import Limits, Settings

SECRET = "the-name-of-another-session"
# What the server may say; 500 is not among it.
EXPECTED = {200, 201, 204, 400, 403, 404, 405, 408, 409, 413, 415, 422, 429, 503}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    # Images are small, so that what grows is not hidden behind the largest of them.
    with served(
        Settings(limits=Limits(sessions=60, classes=20, prompts=60, state=4 * 2**20, megapixels=1.0))
    ) as running:
        yield running


class Watch:
    """Another session that nobody must hear of, and the memory of the process."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.id = server.session(name=SECRET)
        for image in pngs()[:3]:
            server.send(self.id, image)
        self.state = state_hash(server.http.get(f"/sessions/{self.id}/state").content)
        self.statuses: Counter[int] = Counter()

    def see(self, status: int, text: str) -> None:
        self.statuses[status] += 1
        assert status in EXPECTED, [text, *(line["trace"] for line in self.server.lines() if "trace" in line)]
        assert self.id not in text
        assert SECRET not in text

    def end(self) -> None:
        assert state_hash(self.server.http.get(f"/sessions/{self.id}/state").content) == self.state
        assert self.server.http.get("/ready").status_code == 200
        assert not [line for line in self.server.lines() if "trace" in line]


def memory() -> float:
    """Resident MB that are in use.

    What the C library has got back and keeps for later is given up first, where it can be told to.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss / 1e6


# --- mutated uploads --------------------------------------------------------------------------------------------------
def uploads(server: Served, count: int, seed: int) -> tuple[Counter[int], float]:
    """So many bad uploads of every kind; the statuses, and the growth in MB in the second half."""
    watch, id, rng = Watch(server), server.session(), random.Random(seed)
    files = {
        name: content
        for name, content in seeds().items()
        if name.split()[0] in ("jpeg", "png", "webp", "gif", "tiff", "bmp")
    }
    state = server.http.get(f"/sessions/{id}/state").content
    others = [*files.values(), b"\r\n--b\r\nContent-Disposition: form-data; filename=", b'{"images":[']
    settled = 0.0
    for number in range(count):
        if number == count // 2:
            settled = memory()
        name = rng.choice(list(files))
        content = files[name]
        if rng.random() < 0.3:
            content = resized(content, name, rng)
        if rng.random() < 0.8:
            content = damaged(content, rng, others)
        if name.startswith("png") and rng.random() < 0.6:
            content = repaired(content)
        path, headers = f"/sessions/{id}/images", {"content-type": "image/png"}
        kind = rng.randrange(10)
        if kind == 0:
            form = b"--b\r\nContent-Disposition: form-data; name=i; filename=i\r\n\r\n" + content + b"\r\n--b--\r\n"
            content, headers = damaged(form, rng, others), {"content-type": "multipart/form-data; boundary=b"}
        elif kind == 1:
            told = json.dumps({"images": [base64.b64encode(content).decode()]}).encode()
            content, headers = damaged(told, rng, others), {"content-type": "application/json"}
        elif kind == 2:
            told = json.dumps({"features": [[rng.choice((0.0, 1.0, -1e30, 1e-40)) for _ in range(128)]]}).encode()
            content, headers = damaged(told, rng, others), {"content-type": "application/json"}
        elif kind == 3 and number % 4 == 0:
            path, content = f"/sessions/{id}/state", damaged(state, rng, others)
        method = "PUT" if path.endswith("state") else "POST"
        answer = server.http.request(method, path, content=content, headers=headers, timeout=60)
        watch.see(answer.status_code, answer.text)
    grown = memory() - settled
    for one in (id, watch.id):
        if one == watch.id:
            watch.end()
        assert server.http.delete(f"/sessions/{one}").status_code == 204
    return watch.statuses, grown


def test_mutated_uploads_have_an_answer(server: Served) -> None:
    statuses, _ = uploads(server, 120, seed=1)
    assert {200, 422} <= set(statuses)


@pytest.mark.slow
def test_ten_thousand_mutated_uploads_have_an_answer(server: Served) -> None:
    """Slow, as they are ten thousand."""
    statuses, grown = uploads(server, 10_000, seed=2)
    print(f"{dict(sorted(statuses.items()))}, {grown:.1f} MB more after 10,000 than after 5,000 uploads")
    assert statuses[422] > 2000
    assert grown < 20


# --- options ----------------------------------------------------------------------------------------------------------
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**6, 2**63, 0.5, 1e-9, 1e9, 1e308, "", "a", "lora", "reference", [], ["a"],
    [0.2, 1.0], {"a": 1},
]  # fmt: skip


def option_sweep(server: Served, count: int | None = None) -> Counter[int]:
    """Create a session with one option set, for every option and value or for a sample of them, and send it an image.

    Return the statuses of the answers, and fail with the list of all cases that had another status.
    """
    statuses: Counter[int] = Counter()
    unexpected = []
    info = server.http.get("/info").json()
    kinds = {name: kind for kind in ("method", "score", "identifier") for name in info[f"{kind}s"] if name != "field"}
    cases = [
        ({kinds[owner]: owner} if owner in kinds else {}, {option["name"]: value})
        for owner, options in info["options"].items()
        for option in options
        for value in [*VALUES, *_choices(option["kind"])]
    ]
    for parts, options in cases if count is None else random.Random(3).sample(cases, count):
        wanted = {"classes": ["cat", "dog"], "guard": True, **parts, "options": options}
        created = server.http.post("/sessions", json=wanted)
        answers = [created]
        if created.status_code == 201:
            answers.append(server.send(created.json()["id"], pngs()[0]))
            server.http.delete(f"/sessions/{created.json()['id']}")
        statuses.update(answer.status_code for answer in answers)
        if any(answer.status_code not in (200, 201, 422) for answer in answers):
            unexpected.append((wanted, answers[-1].text))
    assert not unexpected
    return statuses


def _choices(kind: str) -> list[str]:
    """Return the values of an option that `/info` describes as "one of a, b"."""
    return kind.removeprefix("one of ").split(", ") if kind.startswith("one of ") else []


def test_no_option_is_an_internal_error(server: Served) -> None:
    assert set(option_sweep(server, 120)) == {200, 201, 422}


@pytest.mark.parametrize("method", ["rosita", "prototypes", "unient", "entropy", "cliptta"])
def test_methods_train_lora_matrices(server: Served, method: str) -> None:
    id = server.session(method=method, options={"group": "lora"})
    assert server.send(id, pngs()[0]).status_code == 200
    assert server.http.delete(f"/sessions/{id}").status_code == 204


@pytest.mark.slow
def test_no_value_of_any_option_is_an_internal_error(server: Served) -> None:
    """Slow, as it tries every option with every value."""
    print(dict(option_sweep(server)))


# --- from the description ---------------------------------------------------------------------------------------------
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)


def asking(server: Served, watch: Watch, path: str, id: str) -> Callable[[Any], None]:
    """Makes one request and looks at its answer; every other is about the session `id`."""
    turn = itertools.count()

    def ask(case: Any) -> None:
        if "id" in case.path_parameters and next(turn) % 2:
            case.path_parameters["id"] = id
        response = case.call(base_url=str(server.http.base_url), timeout=60)
        everything = path == "/sessions" and response.status_code == 200
        watch.see(response.status_code, "" if everything else response.content.decode("latin-1"))
        if response.status_code not in (400, 405):
            case.validate_response(response, checks=CHECKS)

    return ask


def requests_from_the_description(server: Served, examples: int) -> Counter[int]:
    """Requests that fit the description and requests that do not, for every operation, on a session that is there and
    on one that is not.
    """
    schema = schemathesis.openapi.from_dict(server.http.get("/openapi.json").json())
    schema.config.generation.modes = list(schemathesis.GenerationMode)
    watch = Watch(server)
    usual = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/events"):  # its answer never ends; it has tests of its own
            continue
        ask = asking(server, watch, operation.path, server.session())
        usual(hypothesis.given(case=operation.as_strategy())(ask))()
        for session in server.http.get("/sessions").json()["sessions"]:
            if session["id"] != watch.id:
                server.http.delete(f"/sessions/{session['id']}")
    watch.end()
    assert server.http.delete(f"/sessions/{watch.id}").status_code == 204
    return watch.statuses


def test_requests_made_from_the_description_are_answered_as_it_says(server: Served) -> None:
    statuses = requests_from_the_description(server, 4)
    assert {200, 404, 422} <= set(statuses)


@pytest.mark.slow
def test_many_requests_made_from_the_description_are_answered_as_it_says(server: Served) -> None:
    """Slow, as there are a hundred for each operation."""
    print(dict(sorted(requests_from_the_description(server, 100).items())))
