"""`Client`: the synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from . import calls
from .calls import Json, ServerError
from .verbs import Verbs

if TYPE_CHECKING:
    import httpx


class Client(Verbs[Json, list[Json], bytes, None]):
    """A client of `ostta serve`. If the server is busy, a request is retried after the delay that the server specifies.

    In the examples, `session` is a new session with the classes cat, dog and ship, and `image` is a photo of a cat.

    >>> from ostta.live import Client
    >>> with Client(url) as client:
    ...     door = client.create(["cat", "dog", "ship"], name="door")
    ...     client.send(door["id"], image)["label"]
    'cat'
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = calls.TIMEOUT) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url
        self._http: httpx.Client = calls.import_httpx().Client(base_url=url, headers=headers, timeout=timeout)

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def follow(self, id: str, after: int | None = None) -> Iterator[Json]:
        """Yield the events of a session after event number `after` as {"id", "event", "data"}, until it is deleted.

        A broken connection is restored and continues after the last event.

        >>> _ = client.freeze(session["id"])
        >>> for event in client.follow(session["id"], after=0):
        ...     print(event["event"], event["data"]["sentence"])
        ...     break
        session Frozen by hand.
        """
        library, sse, following = calls.import_httpx(), calls.import_sse(), calls.Following(id, after, self._url)
        while True:
            problem: Exception | None = None
            try:
                with sse.connect_sse(self._http, **following.call()) as source:
                    if source.response.status_code != 200:
                        content = source.response.read()
                        raise calls.problem_of(source.response.status_code, content, source.response.headers)
                    for event in source.iter_sse():
                        yield following.event(event)
            except (library.TransportError, ServerError) as raised:
                problem = raised
            wait = following.wait(problem)
            if wait is None:
                return
            time.sleep(wait)

    def _send(self, read: Callable[[httpx.Response], Any], method: str, url: str, **arguments: Any) -> Any:
        library, tried = calls.import_httpx(), 0
        while True:
            try:
                answer: httpx.Response = self._http.request(method, url, **arguments)
            except library.TransportError as problem:
                raise calls.unreachable(self._url, problem) from None
            if answer.status_code < 400:
                return read(answer)
            time.sleep(calls.wait_after(arguments, answer.status_code, answer.content, answer.headers, tried))
            tried += 1
