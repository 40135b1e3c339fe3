"""Two kinds of routes: raw ones for the hot paths (`openapi.py` documents them), and FastAPI's with a body limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope

from sluice.api.auth_needs import ADMIN, need_of
from sluice.api.errors import JSON, BodyTimedOut, UnsupportedMediaType
from sluice.api.service import service_of
from sluice.log_store.errors import RecordListTooLarge, SluiceError

ADMIN_MAX_BYTES = 8 << 20
"""Bodies of the JSON routes; the largest are maintenance plans."""

ADMIN_MAX_VALUES = 100_000
"""Values of such a body. Python needs up to a hundred bytes for one of three, so the size alone is no bound."""

Handler = Callable[[Request], Awaitable[Response]]


class RawRoute(Route):
    def __init__(self, method: str, path: str, handler: Handler) -> None:
        super().__init__(path, handler, methods=[method])
        (self.methods or set()).discard("HEAD")
        self.handler = handler
        self.need = need_of([method], path)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is Match.FULL:
            child["route"] = self  # what metrics call it
        return match, child


class LimitedRoute(APIRoute):
    """FastAPI keeps a whole body before it looks at it: too much of it, or too slowly, is refused on the way.

    Before any of it is taken, the sender must be allowed to call the route.
    """

    need = ADMIN

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler, takes_body = super().get_route_handler(), self.body_field is not None
        self.need = need_of(self.methods or (), self.path)

        async def limited(request: Request) -> Response:
            if takes_body:
                _check_media(request.headers.get("content-type"))
            settings = service_of(request).settings
            most = min(ADMIN_MAX_BYTES, settings.request_max_bytes)
            declared = request.headers.get("content-length", "0")
            if declared.isdecimal() and int(declared) > most:
                raise _too_large(most)
            counted = _counted(request.scope, request.receive, most, settings.request_timeout_ms / 1000)
            try:
                return await handler(Request(request.scope, counted))
            except HTTPException as error:
                if isinstance(error.__cause__, SluiceError):  # FastAPI takes whatever ends a body for bad JSON
                    raise error.__cause__ from None
                raise

        async def guarded(request: Request) -> Response:
            return await service_of(request).access.guard(request, limited)

        return guarded


def _check_media(given: str | None) -> None:
    media = (given or JSON).partition(";")[0].strip().lower()
    if media != JSON and not media.endswith("+json"):
        raise UnsupportedMediaType(f"Content-Type: must be {JSON}", field="Content-Type")


def _counted(scope: Scope, receive: Receive, most: int, timeout_s: float) -> Receive:
    got, values, deadline = 0, 0, asyncio.get_running_loop().time() + timeout_s

    async def counted() -> Message:
        nonlocal got, values
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise BodyTimedOut("body: did not arrive in time", field="body") from None
        piece = message.get("body", b"")
        got += len(piece)
        if got > most:
            raise _too_large(most)
        values += sum(map(piece.count, (b",", b"[", b"{")))  # one of them stands before every value but members' own
        if values > ADMIN_MAX_VALUES:
            raise RecordListTooLarge(
                f"body: must not have more than {ADMIN_MAX_VALUES} values", field="body", limit=ADMIN_MAX_VALUES
            )
        scope["sluice.bytes_in"] = got
        return message

    return counted


def _too_large(most: int) -> RecordListTooLarge:
    return RecordListTooLarge(f"body: must not be larger than {most} bytes", field="body", limit=most)
