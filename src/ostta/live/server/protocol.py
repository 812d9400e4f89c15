"""uvicorn's HTTP, with limits for those who send no whole request: seconds and bytes for its head, and connections at one time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .settings import Limits

# Maximum size in bytes of the request line and headers, and of the trailers after a chunked body.
MOST_HEAD = 64 * 1024
# Seconds in which a request that took too long is answered, before its connection is closed.
SPARE = 5.0


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol with these limits. Whoever does not keep to them is hung up on: there is no request that could be answered."""

    class Limited(HttpToolsProtocol):
        _head_until: asyncio.TimerHandle | None = None
        _until: asyncio.TimerHandle | None = None
        # Bytes received since the last progress: the start of a request, a part of its body, or its end.
        _overhead = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # Connections that do nothing count too.
            if len(self.connections) > 2 * limits.requests:
                transport.close()
            else:
                self._expect_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._overhead += len(data)
            super().data_received(data)
            if self._overhead > MOST_HEAD:
                self._hang_up()

        def on_message_begin(self) -> None:
            self._cancel()
            self._expect_head()
            # Whoever was answered already may still be sending; that comes to an end too.
            self._until = self.loop.call_later(limits.head_seconds + limits.body_seconds + SPARE, self._hang_up)
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            # The parser reports trailers through the same callback. A trailer must never be used as a header.
            if self._head_until is not None:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self._head_until is not None:
                self._head_until.cancel()
                self._head_until = None
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._overhead = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._overhead = 0
            self._cancel()
            super().on_message_complete()

        def _expect_head(self) -> None:
            self._overhead = 0
            self._head_until = self.loop.call_later(limits.head_seconds, self._hang_up)

        def _cancel(self) -> None:
            for timer in (self._head_until, self._until):
                if timer is not None:
                    timer.cancel()
            self._head_until = self._until = None

        def _hang_up(self) -> None:
            self._cancel()
            if not self.transport.is_closing():
                self.transport.close()

    return Limited
