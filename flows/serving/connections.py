"""uvicorn's connections with an end: of a head, of the rest of a refused body, of a client that says nothing."""

from __future__ import annotations

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

_HEAD_SECONDS = 0.8
"""The time from a head's first byte to its last. Programs write it in one go, and the loop reads what has come before
it looks at the clock."""
_REST_SECONDS = 2.0
"""The time for the rest of a body that is refused: it is read and thrown away, as a client that still sends may not
look up before."""
_MOST = 1024
"""The most connections at a time; one takes some 10 KB."""


class Connection(H11Protocol):
    """One client's connection. What it refuses itself is told in JSON, as all else is."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > _MOST:
            self._refuse(503, f"request: found {_MOST:,} connections, expected no more; ask again")
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._set(None)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or a head without end."""
        self._refuse(400, "request: found no HTTP that can be read, or a head that is too long")

    def _watch(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._set(_HEAD_SECONDS)
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._set(_REST_SECONDS)
        else:
            self._set(None)

    def _set(self, seconds: float | None) -> None:
        if seconds is None and self._limit is not None:
            self._limit.cancel()
            self._limit = None
        elif seconds is not None and self._limit is None:
            self._limit = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self._refuse(408, f"request: found no end of its head within {_HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer in the place of the application, where it still can be, and close."""
        body = json.dumps({"error": message}).encode() + b"\n"
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
