"""Around every request: an id, a time, a count, and an answer in our shape whatever happens inside."""

from __future__ import annotations

import logging
import re
import uuid
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluice.api.errors import bug_response
from sluice.api.service import Service

_log = logging.getLogger("sluice.access")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLIENT_GONE = 499


class RequestMiddleware:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, started, status = _request_id(scope), perf_counter(), 0
        scope["sluice.request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            status = status or CLIENT_GONE
        except Exception:
            _log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"][:200])
            if not status:
                await bug_response(scope)(scope, receive, send_with_id)
            elif scope.get("sluice.error") is None:
                raise  # in the middle of an answer: the connection must break, or it would look complete
        finally:
            self._count(scope, status, perf_counter() - started, request_id)

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        self._service.metrics.request(_method(scope["method"]), route, status, seconds)
        if status >= 400:
            self._service.metrics.error(scope.get("sluice.error") or f"HTTP_{status}")
        if _log.isEnabledFor(logging.INFO):
            _log.info(
                "%s %s %d %.1f ms request=%s", scope["method"], scope["path"][:200], status, seconds * 1000, request_id
            )


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN_ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return uuid.uuid4().hex


def _method(method: str) -> str:
    """Clients may invent methods; metrics may not grow with them."""
    return method if method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS") else "OTHER"
