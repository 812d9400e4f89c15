"""The client for programs that do something else while they wait: every verb is awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
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


class AsyncClient:
    """As `Client`, with verbs to be awaited.

    In the examples, `session` is a new session of the classes cat, dog and ship, `image` is a photograph of a cat, and `run` runs a
    coroutine to its end.

    >>> from ostta.live import AsyncClient
    >>> async def first_answer() -> str:
    ...     async with AsyncClient(url) as client:
    ...         door = await client.create(["cat", "dog", "ship"], name="door")
    ...         return (await client.send(door["id"], image))["label"]
    >>> run(first_answer())
    'cat'
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = calls.TIMEOUT) -> None:
        library = calls.needed_httpx()
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url
        self._http: httpx.AsyncClient = library.AsyncClient(base_url=url, headers=headers, timeout=timeout)

    async def close(self) -> None:
        """Close all connections.

        >>> run(async_client.close())
        >>> async_client
        AsyncClient(closed)
        """
        await self._http.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({'closed' if self._http.is_closed else self._url})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def info(self) -> Json:
        """What the server is: its backbone, what a session may name, its limits.

        >>> run(async_client.info())["backbone"]
        'embedded'
        """
        return await self._json(calls.Call("GET", "/info"))

    async def sessions(self) -> list[Json]:
        """All sessions that the token may use, the oldest first.

        >>> session["id"] in [one["id"] for one in run(async_client.sessions())]
        True
        """
        found: list[Json] = (await self._json(calls.Call("GET", "/sessions")))["sessions"]
        return found

    async def create(self, classes: Classes, name: str | None = None, **options: Any) -> Json:
        """A new session. `options` are those of `POST /sessions`: method, score, identifier, profile, seed, guard, options.

        >>> run(async_client.create(["cat", "dog"], name="door", seed=3))["profile"]
        'field'
        """
        return await self._json(calls.create(classes, name, options))

    async def create_from(self, state: bytes | str | os.PathLike[str], name: str | None = None) -> Json:
        """A new session from a state file, or from its content.

        >>> run(async_client.create_from(run(async_client.state(session["id"])), name="a copy"))["name"]
        'a copy'
        """
        return await self._json(calls.create_from(state, name))

    async def session(self, id: str) -> Json:
        """One session as it is now.

        >>> run(async_client.session(session["id"]))["steps"]
        0
        """
        return await self._json(calls.Call("GET", f"/sessions/{id}"))

    async def rename(self, id: str, name: str) -> Json:
        """The session under another name.

        >>> run(async_client.rename(session["id"], "yard"))["name"]
        'yard'
        """
        return await self._json(calls.Call("PATCH", f"/sessions/{id}", json={"name": name}))

    async def delete(self, id: str) -> None:
        """Forget a session for good.

        >>> run(async_client.delete(session["id"]))
        >>> session["id"] in [one["id"] for one in run(async_client.sessions())]
        False
        """
        await self._answer(calls.Call("DELETE", f"/sessions/{id}"))

    async def send(
        self, id: str, image: Image, *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> Json:
        """The answer for one image: bytes, a path or a PIL image. `learn=False` changes nothing; `evidence` adds the scores of all classes.

        `key` is the idempotency key of the image, random if not given: an image that is sent again with its key is learned from once.

        >>> run(async_client.send(session["id"], image))["label"]
        'cat'
        """
        return await self._json(calls.send(id, image, learn, evidence, key))

    async def send_many(
        self, id: str, images: Sequence[Image], *, learn: bool = True, evidence: bool = False, key: str | None = None
    ) -> list[Json]:
        """The answers for several images, in order; {"problem": ...} in the place of one that cannot be read.

        `key` is the idempotency key of the call, as in `send`; each image is known by the key and its place.

        >>> [answer.get("label") for answer in run(async_client.send_many(session["id"], [image, b"no image"]))]
        ['cat', None]
        """
        found: list[Json] = (await self._json(calls.send_many(id, images, learn, evidence, key)))["predictions"]
        return found

    async def send_features(
        self,
        id: str,
        features: Sequence[Sequence[float]],
        *,
        learn: bool = True,
        evidence: bool = False,
        key: str | None = None,
    ) -> list[Json]:
        """The answers for features of images, for methods that need nothing else.

        >>> run(async_client.send_features(session["id"], [[1.0] + [0.0] * 127]))[0]["step"]
        1
        """
        found: list[Json] = (await self._json(calls.send_features(id, features, learn, evidence, key)))["predictions"]
        return found

    async def recent(self, id: str, limit: int = 500) -> Json:
        """The last points and events.

        >>> run(async_client.recent(session["id"]))
        {'points': [], 'events': []}
        """
        return await self._json(calls.Call("GET", f"/sessions/{id}/recent", {"limit": limit}))

    async def freeze(self, id: str) -> Json:
        """Learn nothing more until `thaw`.

        >>> run(async_client.freeze(session["id"]))["event"]["sentence"]
        'Frozen by hand.'
        """
        return await self._json(calls.Call("POST", f"/sessions/{id}/freeze"))

    async def thaw(self, id: str) -> Json:
        """Learn again.

        >>> run(async_client.thaw(session["id"]))["session"]["frozen"]
        False
        """
        return await self._json(calls.Call("POST", f"/sessions/{id}/thaw"))

    async def roll_back(self, id: str) -> Json:
        """Back to the last good state that the guard has kept.

        >>> try:
        ...     run(async_client.roll_back(session["id"]))
        ... except ostta.Error as problem:
        ...     print(problem)
        There is no earlier state to go back to: the guard keeps one after every 128 good images, and has none yet.
        """
        return await self._json(calls.Call("POST", f"/sessions/{id}/roll-back"))

    async def reset(self, id: str) -> Json:
        """Back to the start.

        >>> run(async_client.reset(session["id"]))["session"]["steps"]
        0
        """
        return await self._json(calls.Call("POST", f"/sessions/{id}/reset"))

    async def save(self, id: str) -> Json:
        """Store the session now, where the server stores sessions.

        >>> run(async_client.save(session["id"]))["session"]["problem"] is None
        True
        """
        return await self._json(calls.Call("POST", f"/sessions/{id}/save"))

    async def state(self, id: str) -> bytes:
        """The state file of a session, which `Adapter.restore` reads.

        >>> _ = open("door.ostta", "wb").write(run(async_client.state(session["id"])))
        >>> ostta.Adapter.restore("door.ostta").steps
        0
        """
        found: bytes = (await self._answer(calls.Call("GET", f"/sessions/{id}/state"))).content
        return found

    async def replace_state(self, id: str, state: bytes | str | os.PathLike[str]) -> Json:
        """The session goes on from a state file.

        >>> run(async_client.replace_state(session["id"], run(async_client.state(session["id"]))))["steps"]
        0
        """
        return await self._json(calls.replace_state(id, state))

    async def follow(self, id: str, after: int | None = None) -> AsyncIterator[Json]:
        """What happens in a session, as {"id", "event", "data"}, until it is deleted; after event `after` where that is still known.

        A connection that breaks is made again, and goes on where it was.

        >>> _ = run(async_client.freeze(session["id"]))
        >>> async def first() -> str:
        ...     async for event in async_client.follow(session["id"], after=0):
        ...         return event["data"]["sentence"]
        >>> run(first())
        'Frozen by hand.'
        """
        library, events, tried = calls.needed_httpx(), Events(after), 0
        while True:
            call = calls.follow(id, events.last)
            try:
                async with self._http.stream(
                    call.method, call.path, timeout=calls.SILENCE, **call.for_stream()
                ) as response:
                    if response.status_code != 200:
                        raise calls.problem_of(response.status_code, await response.aread(), response.headers)
                    async for line in response.aiter_lines():
                        tried = 0
                        for event in events.add(line):
                            yield event
            except library.TransportError as problem:
                if tried >= calls.RETRIES:
                    raise Error(f"The server at {self._url} cannot be reached ({problem}).") from None
            except ServerError as problem:
                if problem.status == 404 or calls.wait_before(problem, tried) is None:
                    if problem.status == 404 and events.last is not None:
                        return  # it was there, and is deleted
                    raise
            tried += 1
            await asyncio.sleep(min(calls.LONGEST, 0.2 * 2**tried))

    async def _json(self, call: calls.Call) -> Json:
        found: Json = (await self._answer(call)).json()
        return found

    async def _answer(self, call: calls.Call) -> httpx.Response:
        library, tried = calls.needed_httpx(), 0
        while True:
            try:
                response: httpx.Response = await self._http.request(call.method, call.path, **call.arguments())
            except library.TransportError as problem:
                raise Error(
                    f"The server at {self._url} cannot be reached ({problem or type(problem).__name__})."
                ) from None
            if response.status_code < 400:
                return response
            await asyncio.sleep(calls.wait_after(call, response.status_code, response.content, response.headers, tried))
            tried += 1
