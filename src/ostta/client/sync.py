"""The client for programs that wait for each answer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.types import Error
from ..data.class_names import Classes
from . import calls
from .calls import Events, Json, ServerError

if TYPE_CHECKING:
    import httpx
    from PIL.Image import Image as Picture

    Image = bytes | str | os.PathLike[str] | Picture


class Client:
    """Sessions of a server at `url`. Where it has too much to do, a call waits as long as it asks for, and is made again.

    In the examples, `session` is a new session of the classes cat, dog and ship, and `image` is a photograph of a cat.

    >>> from ostta.live import Client
    >>> with Client(url) as client:  # token="..." where the server wants one
    ...     door = client.create(["cat", "dog", "ship"], name="door")
    ...     print(client.send(door["id"], image)["label"])
    cat
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = calls.TIMEOUT) -> None:
        library = calls.needed_httpx()
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url
        self._http: httpx.Client = library.Client(base_url=url, headers=headers, timeout=timeout)

    def close(self) -> None:
        """Close all connections.

        >>> client.close()
        >>> client
        Client(closed)
        """
        self._http.close()

    def __repr__(self) -> str:
        return f"Client({'closed' if self._http.is_closed else self._url})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def info(self) -> Json:
        """What the server is: its backbone, what a session may name, its limits.

        >>> client.info()["backbone"]
        'embedded'
        """
        return self._json(calls.Call("GET", "/info"))

    def sessions(self) -> list[Json]:
        """All sessions that the token may use, the oldest first.

        >>> session["id"] in [one["id"] for one in client.sessions()]
        True
        """
        found: list[Json] = (self._json(calls.Call("GET", "/sessions")))["sessions"]
        return found

    def create(self, classes: Classes, name: str | None = None, **options: Any) -> Json:
        """A new session. `options` are those of `POST /sessions`: method, score, identifier, profile, seed, guard, options.

        >>> client.create(["cat", "dog"], name="door", seed=3)["profile"]
        'field'
        """
        return self._json(calls.create(classes, name, options))

    def create_from(self, state: bytes | str | os.PathLike[str], name: str | None = None) -> Json:
        """A new session from a state file, or from its content.

        >>> client.create_from(client.state(session["id"]), name="a copy")["name"]
        'a copy'
        """
        return self._json(calls.create_from(state, name))

    def session(self, id: str) -> Json:
        """One session as it is now.

        >>> client.session(session["id"])["steps"]
        0
        """
        return self._json(calls.Call("GET", f"/sessions/{id}"))

    def rename(self, id: str, name: str) -> Json:
        """The session under another name.

        >>> client.rename(session["id"], "yard")["name"]
        'yard'
        """
        return self._json(calls.Call("PATCH", f"/sessions/{id}", json={"name": name}))

    def delete(self, id: str) -> None:
        """Forget a session for good.

        >>> client.delete(session["id"])
        >>> session["id"] in [one["id"] for one in client.sessions()]
        False
        """
        self._answer(calls.Call("DELETE", f"/sessions/{id}"))

    def send(
        self, id: str, image: Image, *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> Json:
        """The answer for one image: bytes, a path or a PIL image. `learn=False` changes nothing; `evidence` adds the scores of all classes.

        `key` is the idempotency key of the image, random if not given: an image that is sent again with its key is learned from once.

        >>> client.send(session["id"], image)["label"]
        'cat'
        """
        return self._json(calls.send(id, image, learn, evidence, key))

    def send_many(
        self, id: str, images: Sequence[Image], *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> list[Json]:
        """The answers for several images, in order; {"problem": ...} in the place of one that cannot be read.

        `key` is the idempotency key of the call, as in `send`; each image is known by the key and its place.

        >>> [answer.get("label") for answer in client.send_many(session["id"], [image, b"no image"])]
        ['cat', None]
        """
        found: list[Json] = (self._json(calls.send_many(id, images, learn, evidence, key)))["predictions"]
        return found

    def send_features(
        self,
        id: str,
        features: Sequence[Sequence[float]],
        *,
        learn: bool = True,
        evidence: bool = False,
        key: str | None = None,
    ) -> list[Json]:
        """The answers for features of images, for methods that need nothing else.

        >>> client.send_features(session["id"], [[1.0] + [0.0] * 127])[0]["step"]
        1
        """
        found: list[Json] = (self._json(calls.send_features(id, features, learn, evidence, key)))["predictions"]
        return found

    def recent(self, id: str, limit: int = 500) -> Json:
        """The last points and events.

        >>> client.recent(session["id"])
        {'points': [], 'events': []}
        """
        return self._json(calls.Call("GET", f"/sessions/{id}/recent", {"limit": limit}))

    def freeze(self, id: str) -> Json:
        """Learn nothing more until `thaw`.

        >>> client.freeze(session["id"])["event"]["sentence"]
        'Frozen by hand.'
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/freeze"))

    def thaw(self, id: str) -> Json:
        """Learn again.

        >>> client.thaw(session["id"])["session"]["frozen"]
        False
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/thaw"))

    def roll_back(self, id: str) -> Json:
        """Back to the last good state that the guard has kept.

        >>> try:
        ...     client.roll_back(session["id"])
        ... except ostta.Error as problem:
        ...     print(problem)
        There is no earlier state to go back to: the guard keeps one after every 128 good images, and has none yet.
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/roll-back"))

    def reset(self, id: str) -> Json:
        """Back to the start.

        >>> client.reset(session["id"])["session"]["steps"]
        0
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/reset"))

    def save(self, id: str) -> Json:
        """Store the session now, where the server stores sessions.

        >>> client.save(session["id"])["session"]["problem"] is None
        True
        """
        return self._json(calls.Call("POST", f"/sessions/{id}/save"))

    def state(self, id: str) -> bytes:
        """The state file of a session, which `Adapter.restore` reads.

        >>> _ = open("door.ostta", "wb").write(client.state(session["id"]))
        >>> ostta.Adapter.restore("door.ostta").steps
        0
        """
        found: bytes = (self._answer(calls.Call("GET", f"/sessions/{id}/state"))).content
        return found

    def replace_state(self, id: str, state: bytes | str | os.PathLike[str]) -> Json:
        """The session goes on from a state file.

        >>> client.replace_state(session["id"], client.state(session["id"]))["steps"]
        0
        """
        return self._json(calls.replace_state(id, state))

    def follow(self, id: str, after: int | None = None) -> Iterator[Json]:
        """What happens in a session, as {"id", "event", "data"}, until it is deleted; after event `after` where that is still known.

        A connection that breaks is made again, and goes on where it was.

        >>> _ = client.freeze(session["id"])
        >>> for event in client.follow(session["id"], after=0):
        ...     print(event["event"], event["data"]["sentence"])
        ...     break
        session Frozen by hand.
        """
        library, events, tried = calls.needed_httpx(), Events(after), 0
        while True:
            call = calls.follow(id, events.last)
            try:
                with self._http.stream(call.method, call.path, timeout=calls.SILENCE, **call.for_stream()) as response:
                    if response.status_code != 200:
                        raise calls.problem_of(response.status_code, response.read(), response.headers)
                    for line in response.iter_lines():
                        tried = 0
                        yield from events.add(line)
            except library.TransportError as problem:
                if tried >= calls.RETRIES:
                    raise Error(f"The server at {self._url} cannot be reached ({problem}).") from None
            except ServerError as problem:
                if problem.status == 404 or calls.wait_before(problem, tried) is None:
                    if problem.status == 404 and events.last is not None:
                        return  # it was there, and is deleted
                    raise
            tried += 1
            time.sleep(min(calls.LONGEST, 0.2 * 2**tried))

    def _json(self, call: calls.Call) -> Json:
        found: Json = self._answer(call).json()
        return found

    def _answer(self, call: calls.Call) -> httpx.Response:
        library, tried = calls.needed_httpx(), 0
        while True:
            try:
                response: httpx.Response = self._http.request(call.method, call.path, **call.arguments())
            except library.TransportError as problem:
                raise Error(
                    f"The server at {self._url} cannot be reached ({problem or type(problem).__name__})."
                ) from None
            if response.status_code < 400:
                return response
            time.sleep(calls.wait_after(call, response.status_code, response.content, response.headers, tried))
            tried += 1
