"""The shortest way through the service: requests that never become a task.

uvicorn makes a task, a queue and a dozen dictionaries of every request, and that is most of what a request of one
record costs, or a poll that waits. Here small produce requests go from the parser to `gathering` and long polls to
`long_polls`, and their answers from there to the socket. Anything out of the ordinary (another encoding or Accept, an
idempotent producer, quotas, pipelining, a sender who may not) takes the ordinary way, before anything was done: that
way knows all refusals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from sluice.api import access_log
from sluice.api.auth import authorize
from sluice.api.errors import BodyTimedOut
from sluice.api.http_protocol import LimitedProtocol
from sluice.api.known_heads import Head, KnownHeads
from sluice.api.middleware import CLIENT_GONE, new_request_id
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.log_store.errors import SluiceError

Headers = list[tuple[bytes, bytes]]
_END = b"content-length: %d\r\nx-request-id: %b\r\n%b\r\n"


class Reply(NamedTuple):
    status: int
    head: bytes
    """Lines of headers, each with its end."""
    body: bytes
    error: str | None = None


Answer = Callable[[Reply | None], None]
"""Called once, on the event loop. None: the request has to take the ordinary way after all."""


class Shortcut(Protocol):
    """One request that was recognised."""

    method: str

    @property
    def route(self) -> RawRoute: ...

    @property
    def params(self) -> Mapping[str, str]: ...

    def begin(self, body: bytes, answer: Answer) -> Callable[[], None] | None:
        """May answer at once. What is returned is called when the client is gone."""


Recognise = Callable[[bytes, Headers], Shortcut | None]
"""(URL, headers): without doing anything yet."""


_joined: tuple[object, bytes] = (None, b"")


def _lines(headers: Headers) -> bytes:
    """uvicorn makes a new list every second, because the date is in it."""
    global _joined  # noqa: PLW0603 - the last list and its text, for all connections
    if _joined[0] is not headers:
        _joined = (headers, b"".join(name + b": " + value + b"\r\n" for name, value in headers))
    return _joined[1]


class _NoEvent:
    def set(self) -> None:
        """Nobody waits: there is no task."""


class _Short:
    """Stands where uvicorn keeps the state of a request and its answer, with what its protocol looks at."""

    __slots__ = (
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "url",
    )
    message_event = _NoEvent()

    def __init__(self, scope: dict[str, Any], url: bytes, *, keep_alive: bool) -> None:
        self.scope = scope
        self.url = url
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        self.disconnected = self.response_started = self.response_complete = False


class ShortcutProtocol(LimitedProtocol):
    recognisers: Mapping[bytes, Recognise]
    """By method."""
    heads: KnownHeads

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._shortcut: Shortcut | None = None
        """Of the request that is being received."""
        self._cancel: Callable[[], None] | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._whole = b""
        """What came with the beginning of the request, while it may turn out to be all of it."""

    # --- coming in -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        fresh = not self._in_message and self._idle()
        if fresh and (found := self.heads.find(data)) is not None and self._begin_known(*found):
            return
        self._whole = data if fresh else b""
        super().data_received(data)
        self._whole = b""
        if self._shortcut is not None and self._body_timer is None:
            self._body_timer = self.loop.call_later(self._limits.request_timeout_ms / 1000, self._body_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._taken()
        cancel, self._cancel = self._cancel, None
        super().connection_lost(exc)
        if cancel is not None:
            cancel()

    def _begin_known(self, head: Head, body: bytes) -> bool:
        """All that parser and callbacks would do with this request; False, and nothing done, if it is not for here."""
        scope = {"headers": head.headers, "client": self.client}
        shortcut = self._recognised(head.method, head.url, scope)
        if shortcut is None:
            return False
        self._unset_keepalive_if_required()
        self._head_done()
        short = _Short(scope, head.url, keep_alive=True)
        short.body, short.more_body = body, False
        self.cycle = cast("RequestResponseCycle", short)
        self._begin(shortcut, short)
        if short.response_complete and not self.transport.is_closing():
            self._expect_head()
        return True

    def on_headers_complete(self) -> None:
        self._shortcut = self._recognised(self.parser.get_method(), self.url, cast("Any", self.scope))
        if self._shortcut is None:
            super().on_headers_complete()
            return
        self._head_received()
        keep_alive = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        self.cycle = cast("RequestResponseCycle", _Short(cast("Any", self.scope), self.url, keep_alive=keep_alive))

    def on_body(self, body: bytes) -> None:
        if self._shortcut is None:
            super().on_body(body)
        else:
            self._body_came = True
            self.cycle.body += body

    def on_message_complete(self) -> None:
        shortcut = self._taken()
        if shortcut is None:
            super().on_message_complete()
            return
        self._message_received()
        self.cycle.more_body = False
        if self._whole and self.cycle.keep_alive:
            size = len(self.cycle.body)
            self.heads.learn(self._whole, self.parser.get_method(), self.url, self.headers, size)
        self._begin(shortcut, cast("Any", self.cycle))

    def _taken(self) -> Shortcut | None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        shortcut, self._shortcut = self._shortcut, None
        return shortcut

    def _body_is_late(self) -> None:
        if self._taken() is not None:
            self._refuse(BodyTimedOut("body: did not arrive in time", field="body"))

    def _recognised(self, method: bytes, url: bytes, scope: dict[str, Any]) -> Shortcut | None:
        service, cycle = self.service, cast("RequestResponseCycle | None", self.cycle)
        recognise = self.recognisers.get(method)
        if (
            recognise is None
            or (cycle is not None and not cycle.response_complete)
            or service.meters.active
            or len(self.connections) > self._limits.max_connections
            or service.active - service.waiting.count >= self._limits.max_requests
        ):
            return None
        shortcut = recognise(url, scope["headers"])
        return shortcut if shortcut is not None and self._allowed(scope, shortcut) else None

    def _allowed(self, scope: dict[str, Any], shortcut: Shortcut) -> bool:
        try:
            authorize(self.service.access.authenticate(scope), shortcut.route.need, shortcut.params)
        except SluiceError:
            return False
        return True

    # --- going out -----------------------------------------------------------------------------------

    def _begin(self, shortcut: Shortcut, short: _Short) -> None:
        self._began = perf_counter()
        self.service.active += 1
        cancel = shortcut.begin(bytes(short.body), partial(self._answered, short, shortcut))
        if not short.response_complete:
            self._cancel = cancel

    def _answered(self, short: _Short, shortcut: Shortcut, reply: Reply | None) -> None:
        self.service.active -= 1
        self._cancel = None
        scope = short.scope
        scope["method"], scope["path"] = shortcut.method, short.url.partition(b"?")[0].decode("ascii")
        # A poll may have waited for minutes: only reads are asked again, what was written is written.
        asks_again = scope["method"] == "GET" and self.service.access.asks
        if reply is None or (asks_again and not self._allowed(scope, shortcut)):
            self._go_the_ordinary_way(short)
            return
        status = reply.status
        scope["sluice.request_id"] = new_request_id()
        if short.disconnected or self.transport.is_closing():
            status = CLIENT_GONE
        else:
            self._write(short, reply, scope["sluice.request_id"])
        self._count(scope, shortcut, status, len(short.body), len(reply.body), reply.error)

    def _go_the_ordinary_way(self, short: _Short) -> None:
        """What uvicorn does when a head is complete, with a body that came already."""
        if short.disconnected:
            return
        raw_path, _, query = short.url.partition(b"?")
        scope = self._usual_scope() | short.scope | {"raw_path": raw_path, "query_string": query}
        cycle = RequestResponseCycle(
            scope=cast("Any", scope),
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=short.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.body, cycle.more_body = bytearray(short.body), False
        cycle.message_event.set()
        if self.cycle is cast("Any", short):
            self.cycle = cycle
        self._start_asgi_task(cycle, self.app)

    def _usual_scope(self) -> dict[str, Any]:
        """What uvicorn puts there when a request begins: a known head did without."""
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "state": self.app_state.copy(),
        }

    def _write(self, short: _Short, reply: Reply, request_id: str) -> None:
        more = _lines(self.server_state.default_headers)
        if not short.keep_alive:
            more += b"connection: close\r\n"
        end = _END % (len(reply.body), request_id.encode(), more)
        self.transport.write(STATUS_LINE[reply.status] + reply.head + end + reply.body)
        short.response_started = short.response_complete = True
        if not short.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _count(
        self, scope: dict[str, Any], shortcut: Shortcut, status: int, received: int, sent: int, error: str | None
    ) -> None:
        metrics, route, seconds = self.service.metrics, shortcut.route.path, perf_counter() - self._began
        metrics.request(scope["method"], route, status, seconds)
        metrics.bytes_in += received
        metrics.bytes_out += sent
        if status >= 400:
            scope["sluice.error"] = error
            metrics.error(error or f"HTTP_{status}")
        access_log.write(scope, status=status, seconds=seconds, bytes_in=received, bytes_out=sent, route=route)


def protocol_class(service: Service, recognisers: Mapping[bytes, Recognise]) -> type[ShortcutProtocol]:
    """What uvicorn makes for each connection."""
    shared = {"service": service, "recognisers": recognisers, "heads": KnownHeads()}
    return type("SluiceProtocol", (ShortcutProtocol,), shared)
