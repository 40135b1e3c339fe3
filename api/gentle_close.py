"""Closing a connection whose client is still sending, without losing the answer it was given.

A socket that is closed with unread bytes is reset, and a reset throws away what the client has not read yet: its 413
would be an error of the network. So the sending half is shut, and what still arrives is read and thrown away for a
while. Clients that stop on an answer notice at once; the others are cut when the time or the bytes run out. Meanwhile
they are read slowly: as fast as they can send they would take the processor from those who are not refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LINGER_S = 5.0
LINGER_BYTES = 64 << 20
DISCARD_RATE = 32 << 20
"""Bytes per second that are read of what nobody wants."""
SHORTEST_PAUSE_S = 0.005
"""Timers ring to the millisecond: pauses for small pieces are saved up until they are worth one."""
CATCH_UP_S = 0.05
"""A pause that took longer than it should have is made up for, up to this."""


class Pace:
    """Over time no more is read than the rate allows, in whatever pieces it comes."""

    __slots__ = ("_due",)

    def __init__(self, now: float) -> None:
        self._due = now
        """When all that was read so far would have come at the rate."""

    def pause_s(self, size: int, now: float) -> float:
        """For how long not to read after these bytes."""
        self._due = max(self._due, now - CATCH_UP_S) + size / DISCARD_RATE
        pause = self._due - now
        return pause if pause >= SHORTEST_PAUSE_S else 0.0


def _nowhere(_data: bytes) -> None:
    """Writing after the end of a stream would raise."""


class GentleTransport:
    """A transport as a protocol sees it: from `close` on it is closing, whatever the socket still does."""

    __slots__ = ("_is_sending", "_lingers", "_protocol", "_transport", "write")

    def __init__(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol, is_sending: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._protocol = protocol
        self._is_sending = is_sending
        """Whether the client may be in the middle of a request."""
        self._lingers = False
        self.write: Callable[[bytes], None] = transport.write  # called for every answer: it costs no more than it did

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing():
            return
        if not self._is_sending():
            self._transport.close()
            return
        self._lingers = True
        self.write = _nowhere  # as to any transport that is closing: an answer to an earlier request may be on its way
        self._transport.set_protocol(_Discarding(self._transport, self._protocol))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()

    def close_at_once(self) -> None:
        self._transport.close()


class _Discarding(asyncio.Protocol):
    """Takes the place of the protocol for what still arrives; all but the data goes on to it."""

    def __init__(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._left = LINGER_BYTES
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LINGER_S, self._close)
        self._pace = Pace(self._loop.time())
        self._pause: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()
        elif pause_s := self._pace.pause_s(len(data), self._loop.time()):
            self._transport.pause_reading()
            self._pause = self._loop.call_later(pause_s, self._transport.resume_reading)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _close(self) -> None:
        self._stop_timers()
        self._transport.close()

    def _stop_timers(self) -> None:
        self._timer.cancel()
        if self._pause is not None:
            self._pause.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._protocol.connection_lost(exc)
