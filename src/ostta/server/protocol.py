"""uvicorn's HTTP protocol with limits for clients that never finish a request or never read the answer.

`httptools` is used rather than `h11`, although `h11` limits trailers by itself: `h11` needs 13 microseconds for each
chunk of a chunked body (0.1 with `httptools`), so that a client without a token could occupy the event loop with chunks
of one byte.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .security import network_of
from .settings import Limits

# Maximum size in bytes of the request line and headers, and of the trailers after a chunked body.
MOST_HEAD = 64 * 1024
# Seconds in which a request that took too long is answered, before its connection is closed.
SPARE = 5.0


def limited(limits: Limits) -> type[LimitedProtocol]:
    """Return the protocol of one server. uvicorn creates an object of it for every connection."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits, "clients": Counter()})


class LimitedProtocol(HttpToolsProtocol):
    """A protocol that closes a connection if it exceeds one of `limits`.

    At most `2 * limits.requests` connections are open, and at most half of them from one address. Beyond that, a new
    connection replaces the one that has been without a request for the longest time, so that idle or unfinished
    connections cannot keep others out.
    """

    limits: Limits
    # Open connections of the server by client address.
    clients: Counter[str]

    # Bytes received since the last progress: the start of a request, a part of its body, or its end.
    _overhead = 0
    _idle_since = 0.0
    _address: str | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Running timers: "head" and "request" for what the client sends, "read" for an answer that it does not read.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._idle_since = self.loop.time()
        self._address = network_of(self.client[0] if self.client else "")
        self.clients[self._address] += 1
        self._expect_head()
        crowded = self.clients[self._address] > self.limits.requests
        if crowded or self.clients.total() > 2 * self.limits.requests:
            self._make_room(self._address if crowded else None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > MOST_HEAD:
            self._hang_up()

    def on_message_begin(self) -> None:
        self._expect_head()
        # A client that was answered already may still be sending its body.
        self._start("request", self.limits.head_seconds + self.limits.body_seconds + SPARE, self._hang_up)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser reports trailers through the same callback. A trailer must never be used as a header.
        if "head" in self._timers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop("head")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._overhead = 0
        self._stop("head", "request")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("read", self.limits.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop("read")
        super().resume_writing()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _make_room(self, address: str | None) -> None:
        """Close the connection that has been idle for longest, of `address` or of all; this one if none is idle."""
        idle = [
            other
            for other in self.connections
            if isinstance(other, LimitedProtocol)
            and other is not self
            and other._address is not None
            and (address is None or other._address == address)
            and other._is_idle()
        ]
        (min(idle, key=lambda other: other._idle_since) if idle else self)._hang_up()

    def _expect_head(self) -> None:
        self._overhead = 0
        self._start("head", self.limits.head_seconds, self._hang_up)

    def _start(self, timer: str, seconds: float, function: Callable[[], None]) -> None:
        self._stop(timer)
        self._timers[timer] = self.loop.call_later(seconds, function)

    def _stop(self, *timers: str) -> None:
        for timer in timers:
            if timer in self._timers:
                self._timers.pop(timer).cancel()

    def _leave(self) -> None:
        """Stop the timers, and stop counting the connection."""
        self._stop(*self._timers)
        if self._address is not None:
            self.clients[self._address] -= 1
            if not self.clients[self._address]:
                del self.clients[self._address]
            self._address = None

    def _hang_up(self) -> None:
        self._leave()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            # `close` waits until the client has read everything, which may never happen.
            self.loop.call_later(SPARE, self.transport.abort)
