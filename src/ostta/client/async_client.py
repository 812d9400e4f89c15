"""`AsyncClient`: the methods of `Client` as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
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
    """A client of `ostta serve` for asynchronous programs, with the methods of `Client` as coroutines.

    In the examples, `session` is a new session with the classes cat, dog and ship, `image` is a photograph of a cat,
    and `run` runs a coroutine to completion.

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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def follow(self, id: str, after: int | None = None) -> AsyncIterator[Json]:
        """Yield the events of a session after event number `after` as {"id", "event", "data"}, until it is deleted.

        A broken connection is restored and continues after the last event.

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

    async def _send(self, read: Callable[[httpx.Response], Any], method: str, url: str, **arguments: Any) -> Any:
        library, tried = calls.import_httpx(), 0
        while True:
            try:
                answer: httpx.Response = await self._http.request(method, url, **arguments)
            except library.TransportError as problem:
                raise calls.unreachable(self._url, problem) from None
            if answer.status_code < 400:
                return read(answer)
            await asyncio.sleep(calls.wait_after(arguments, answer.status_code, answer.content, answer.headers, tried))
            tried += 1
