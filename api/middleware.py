"""Around every request: an id, a time, a count, and an answer in our shape whatever happens inside."""

from __future__ import annotations

import itertools
import logging
import re
import uuid
from time import perf_counter

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluice.api import access_log
from sluice.api.errors import bug_response, refusal
from sluice.api.http_protocol import CROWDED
from sluice.api.negotiation import media_type
from sluice.api.quotas import checked_client_id
from sluice.api.service import Service
from sluice.log_store.errors import Overloaded, SluiceError

_log = logging.getLogger("sluice.service")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON = (b"content-type", b"application/json")
_PROCESS, _NUMBERS = uuid.uuid4().hex[:12], itertools.count(1)
CLIENT_GONE = 499


class RequestMiddleware:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, started, status, sent = _request_id(scope), perf_counter(), 0, 0
        scope["sluice.request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and _may_not_end(scope, self._service.settings.request_max_bytes):
                    scope["sluice.close"] = True
                message["headers"] = _headers(scope, message["headers"], request_id)
            else:
                sent += len(message.get("body", b""))
            await send(message)

        self._service.active += 1
        try:
            refused = self._refused(scope)
            app = self._app if refused is None else refusal(Request(scope), refused)
            await app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = status or CLIENT_GONE
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"][:200], extra={"fields": _named(request_id)})
            if not status:
                await bug_response(scope)(scope, receive, send_with_id)
            elif scope.get("sluice.error") is None:
                raise  # in the middle of an answer: the connection must break, or it would look complete
        finally:
            self._service.active -= 1
            self._count(scope, status, perf_counter() - started, sent)

    def _refused(self, scope: Scope) -> SluiceError | None:
        """What is refused before anybody looks at the address. Health and metrics are for when all else is refused."""
        service = self._service
        full = service.active - service.waiting.count > service.settings.max_requests
        if (full or CROWDED in scope) and scope["path"] not in access_log.PROBES:
            scope["sluice.close"] = CROWDED in scope
            return Overloaded("too many requests or connections are at work already", retry_after_s=1)
        accept = b""
        try:
            for name, value in scope["headers"]:
                if name == b"accept":
                    accept = accept + b"," + value if accept else value  # several are one list
                elif name == b"sluice-client-id":
                    scope["sluice.client_id"] = checked_client_id(value)
            if accept not in (b"", b"*/*"):
                scope["sluice.media"] = media_type(scope["path"], accept.decode("latin-1"))
        except SluiceError as error:
            return error
        return None

    def _count(self, scope: Scope, status: int, seconds: float, sent: int) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        received, metrics = scope.get("sluice.bytes_in", 0), self._service.metrics
        metrics.request(_method(scope["method"]), route, status, seconds)
        metrics.bytes_in += received
        metrics.bytes_out += sent
        if status >= 400:
            metrics.error(scope.get("sluice.error") or f"HTTP_{status}")
        access_log.write(scope, status=status, seconds=seconds, bytes_in=received, bytes_out=sent, route=route)


def _headers(scope: Scope, headers: list[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    more = [(b"x-request-id", request_id.encode())]
    if throttle_ms := scope.get("sluice.throttle_ms"):
        more.append((b"sluice-throttle-time-ms", str(throttle_ms).encode()))
    if scope.get("sluice.close"):
        more.append((b"connection", b"close"))
    media = scope.get("sluice.media")
    if media is not None and _JSON in headers:
        # Only where JSON is what came out: a client that asked for Arrow gets its errors in JSON.
        named = (b"content-type", media.encode() if media.endswith("json") else _JSON[1])
        headers = [named if header == _JSON else header for header in headers]
    return [*headers, *more]


def _may_not_end(scope: Scope, most: int) -> bool:
    """Whether more of a body may come than is read to its end after a refusal: nobody must reuse the connection."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return True
        if name == b"content-length" and value.isdigit():
            return len(value) > 18 or int(value) > most
    return False


def _named(request_id: str) -> dict[str, str]:
    return {"request_id": request_id}


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN_ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return new_request_id()


def new_request_id() -> str:
    """One of a kind: a random number for the process, and a running one."""
    return f"{_PROCESS}-{next(_NUMBERS):x}"


def _method(method: str) -> str:
    """Clients may invent methods; metrics may not grow with them."""
    return method if method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS") else "OTHER"
