"""`AsyncClient`: the calls of `Client` as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import calls
from .calls import Json, ServerError
from .verbs import Verbs

if TYPE_CHECKING:
    import httpx

JsonCoroutine = Coroutine[Any, Any, Json]
ListCoroutine = Coroutine[Any, Any, list[Json]]
BytesCoroutine = Coroutine[Any, Any, bytes]
NoCoroutine = Coroutine[Any, Any, None]


class AsyncClient(Verbs[JsonCoroutine, ListCoroutine, BytesCoroutine, NoCoroutine]):
    """A client of `ostta serve` for asynchronous programs: the calls of `Client`, to be awaited.

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
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url
        self._http: httpx.AsyncClient = calls.import_httpx().AsyncClient(base_url=url, headers=headers, timeout=timeout)

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

    async def follow(self, id: str, after: int | None = None) -> AsyncIterator[Json]:
        """Yield the events of a session as {"id", "event", "data"} until it is deleted, from event number `after` on.

        A broken connection is made again and continues after the last event.

        >>> _ = run(async_client.freeze(session["id"]))
        >>> async def first() -> str:
        ...     async for event in async_client.follow(session["id"], after=0):
        ...         return event["data"]["sentence"]
        >>> run(first())
        'Frozen by hand.'
        """
        library, sse, following = calls.import_httpx(), calls.import_sse(), calls.Following(id, after, self._url)
        while True:
            problem: Exception | None = None
            try:
                async with sse.aconnect_sse(self._http, **following.call()) as source:
                    if source.response.status_code != 200:
                        content = await source.response.aread()
                        raise calls.problem_of(source.response.status_code, content, source.response.headers)
                    async for event in source.aiter_sse():
                        yield following.event(event)
            except (library.TransportError, ServerError) as raised:
                problem = raised
            wait = following.wait(problem)
            if wait is None:
                return
            await asyncio.sleep(wait)

    async def _json(self, call: calls.Call) -> Json:
        found: Json = (await self._answer(call)).json()
        return found

    async def _list(self, call: calls.Call, name: str) -> list[Json]:
        found: list[Json] = (await self._answer(call)).json()[name]
        return found

    async def _bytes(self, call: calls.Call) -> bytes:
        return (await self._answer(call)).content

    async def _nothing(self, call: calls.Call) -> None:
        await self._answer(call)

    async def _answer(self, call: calls.Call) -> httpx.Response:
        library, tried = calls.import_httpx(), 0
        while True:
            try:
                response: httpx.Response = await self._http.request(call.method, call.path, **call.arguments())
            except library.TransportError as problem:
                raise calls.unreachable(self._url, problem) from None
            if response.status_code < 400:
                return response
            await asyncio.sleep(calls.wait_after(call, response.status_code, response.content, response.headers, tried))
            tried += 1
