"""One HTTP connection, within limits: what uvicorn's protocol does not bound, and its refusals in our shape.

The parser keeps a header until it is complete, and uvicorn waits for ever for a request that never ends, for an answer
that is never read, and for a connection that never says anything. Every limit here is checked while bytes arrive.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sluice.api.errors import BodyTimedOut, HttpError, error_response, status_of
from sluice.api.gentle_close import DISCARD_RATE, GentleTransport, Pace
from sluice.api.service import Service
from sluice.api.waiting import spread
from sluice.log_store.errors import SluiceError

_log = logging.getLogger("sluice.connections")
RESERVED = 100
"""Connections above the limit that are still listened to, so that health checks and a refusal get through."""
CROWDED = "sluice.crowded"


class NotHttp(HttpError):
    status = 400


class UrlTooLong(HttpError):
    status = 414


class HeadersTooLarge(HttpError):
    status = 431


class LimitedProtocol(HttpToolsProtocol):
    service: Service

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = self.service.settings
        self._came_late = False
        """It came when there were too many already."""
        self._in_head = False
        self._in_message = False
        self._body_came = False
        self._head_bytes = 0
        """Of a head that did not arrive in one piece: all that was fed since."""
        self._header_bytes = 0
        self._framing_bytes = 0
        """Fed since the last byte of a body: chunk extensions and trailers may be endless, too."""
        self._discarded = 0
        self._refusal: SluiceError | None = None
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._idle_since: float | None = None
        self._pace: Pace | None = None
        """Of what is thrown away."""

    # --- the connection ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._gentle = GentleTransport(transport, self, self._is_receiving)
        super().connection_made(cast("asyncio.Transport", self._gentle))
        self._came_late = len(self.connections) > self._limits.max_connections
        if len(self.connections) > self._limits.max_connections + RESERVED:
            _log.warning("refused a connection: %d are open", len(self.connections))
            transport.abort()
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_done()
        self._cancel_stall()
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        self._body_came = not self._in_message or self._in_head
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._framing_bytes = 0 if self._body_came else self._framing_bytes + len(data)
        if max(self._head_bytes, self._framing_bytes) > self._limits.header_max_bytes + self._limits.url_max_bytes:
            self._refuse(self._headers_too_large())
        elif self._in_message and self._discarded > self._limits.request_max_bytes:
            self.transport.close()  # never after the end of a message: the next one may be on its way
        elif self._in_head or self._idle():
            self._expect_head()
            if self._in_message and self._discarded:
                self._slow_down(len(data))

    def _slow_down(self, size: int) -> None:
        """Read on later: what is thrown away must not take the time of others."""
        now = self.loop.time()
        self._pace = self._pace or Pace(now)
        if pause_s := self._pace.pause_s(size, now):
            self.flow.pause_reading()
            self.loop.call_later(pause_s, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def shutdown(self) -> None:
        if self._idle():
            self._gentle.close_at_once()
        else:
            super().shutdown()

    def _is_receiving(self) -> bool:
        return self._in_message or self._refused

    def _idle(self) -> bool:
        """No request is being answered."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    # --- a head must come in time ----------------------------------------------------------------

    def _expect_head(self, later_s: float = 0.0) -> None:
        """From now on, unless the time runs already: bytes that lead nowhere do not buy any more of it."""
        if self._deadline is None:
            timeout_s = spread(self._limits.header_timeout_ms / 1000) + later_s
            self._deadline = self.loop.call_later(timeout_s, self._too_slow)

    def _head_done(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._in_head:
            self._refuse(BodyTimedOut("headers: did not arrive in time", field="headers"))
        else:
            self.transport.close()

    # --- who keeps a connection must use it ------------------------------------------------------

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn cancels a timer for each request and makes another for each answer; ours looks when it rings."""
        self._idle_since = None

    def _idle_from_now(self) -> None:
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._wind_keep_alive(self.timeout_keep_alive)

    def _wind_keep_alive(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._look_at_idleness)

    def _look_at_idleness(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # the end of the answer winds it again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._wind_keep_alive(left)
        else:
            self.timeout_keep_alive_handler()

    # --- an answer must be taken -----------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stall()

    def _watch_unsent(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self._limits.send_timeout_ms / 1000, self._look_at_unsent)

    def _look_at_unsent(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_unsent()  # slow, but it reads
        else:
            self.transport.abort()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # --- what the parser finds -------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._in_message = True
        self._head_bytes = self._header_bytes = self._discarded = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.url_max_bytes:
            self._stop(UrlTooLong(f"URL: must not be longer than {self._limits.url_max_bytes} bytes", field="URL"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4  # ": " and the end of the line
        if self._header_bytes > self._limits.header_max_bytes or len(self.headers) >= self._limits.header_max_count:
            self._stop(self._headers_too_large())
        # What uvicorn does here, without the call: there are many headers.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _head_received(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        self._head_done()

    def on_headers_complete(self) -> None:
        self._head_received()
        if self._came_late and len(self.connections) > self._limits.max_connections:
            cast("dict[str, Any]", self.scope)[CROWDED] = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_came = True
        super().on_body(body)
        if self.cycle.response_complete:
            self._discarded += len(body)

    def _message_received(self) -> None:
        self._in_message, self._body_came = False, True

    def on_message_complete(self) -> None:
        self._message_received()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """What uvicorn does here, but for its timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._idle_from_now()
        if self._in_message and self.cycle.response_complete and not self.transport.is_closing():
            # The rest of a body that was refused is thrown away, but not for ever, nor as much as comes.
            self._expect_head(self._limits.request_max_bytes / DISCARD_RATE)

    # --- refusals --------------------------------------------------------------------------------

    def _headers_too_large(self) -> HeadersTooLarge:
        size, count = self._limits.header_max_bytes, self._limits.header_max_count
        return HeadersTooLarge(f"headers: must not be more than {count}, nor larger than {size} bytes", field="headers")

    def _stop(self, error: SluiceError) -> None:
        """Out of the parser: it hands the exception on, and `send_400_response` is called."""
        self._refusal = error
        raise error

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or NotHttp(msg))

    def _refuse(self, error: SluiceError) -> None:
        """Before any handler knows of the request. Never into the answer to an earlier one."""
        self._in_head = False
        if self._idle() or (self.cycle.more_body and not self.cycle.response_started and not self.pipeline):
            self.transport.write(_raw(error))
        self._refused = True
        self.transport.close()
        if not self._idle():
            self.cycle.disconnected = True  # its handler may still be at work, and must not answer as well
            self.cycle.message_event.set()
        status = status_of(error)[0]
        self.service.metrics.request("OTHER", "unparsed", status, 0.0)
        self.service.metrics.error(error.error)


def _raw(error: SluiceError) -> bytes:
    response = error_response(error)
    lines = [name + b": " + value for name, value in response.raw_headers]
    lines += [b"x-request-id: " + uuid.uuid4().hex.encode(), b"connection: close"]
    return STATUS_LINE[response.status_code] + b"\r\n".join([*lines, b"", bytes(response.body)])
