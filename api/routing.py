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

from sluice.api.service import service_of

ADMIN_MAX_BYTES = 8 << 20
"""Bodies of the JSON routes; the largest are maintenance plans."""

Handler = Callable[[Request], Awaitable[Response]]


class RawRoute(Route):
    def __init__(self, method: str, path: str, handler: Handler) -> None:
        super().__init__(path, handler, methods=[method])
        (self.methods or set()).discard("HEAD")
        self.handler = handler

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is Match.FULL:
            child["route"] = self  # what metrics call it
        return match, child


class LimitedRoute(APIRoute):
    """FastAPI keeps a whole body before it looks at it: too much of it, or too slowly, is refused on the way."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def limited(request: Request) -> Response:
            settings = service_of(request).settings
            most = min(ADMIN_MAX_BYTES, settings.request_max_bytes)
            declared = request.headers.get("content-length", "0")
            if declared.isdecimal() and int(declared) > most:
                raise _too_large(most)
            counted = _counted(request.receive, most, settings.request_timeout_ms / 1000)
            return await handler(Request(request.scope, counted))

        return limited


def _counted(receive: Receive, most: int, timeout_s: float) -> Receive:
    got = 0

    async def counted() -> Message:
        nonlocal got
        try:
            async with asyncio.timeout(timeout_s):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "body: did not arrive in time") from None
        got += len(message.get("body", b""))
        if got > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"body: must not be larger than {most} bytes")
