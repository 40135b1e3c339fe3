"""The ASGI application over an open log."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from sluice.api import admin, configs, errors, fetch, health, produce, records_v3, topics
from sluice.api.middleware import RequestMiddleware
from sluice.api.models import ErrorModel
from sluice.api.openapi import RAW_PATHS
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.log_store.errors import SluiceError

RAW_ROUTES = [*produce.ROUTES, *fetch.ROUTES, *records_v3.ROUTES]


def build_app(service: Service) -> ASGIApp:
    app = FastAPI(
        title="Sluice",
        version=version("sluice"),
        description="A streaming log on Delta tables.",
        redoc_url=None,
        responses={"4XX": {"model": ErrorModel}, "5XX": {"model": ErrorModel}},
    )
    app.state.service = service
    errors.install(app)
    # Here they only answer a wrong method with 405: `_Front` takes what fits.
    app.router.routes[:0] = RAW_ROUTES
    for module in (health, topics, configs, admin):
        app.include_router(module.router)
    _document_raw_routes(app)
    return RequestMiddleware(_Front(app), service)


class _Front:
    """The hot paths go straight to their handlers; everything else to FastAPI, whose layers cost more than they do."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in RAW_ROUTES:
                match, child = route.matches(scope)
                if match is Match.FULL:
                    scope.update(child, app=self._app)
                    await _handle(route, Request(scope, receive, send), send)
                    return
        await self._app(scope, receive, send)


async def _handle(route: RawRoute, request: Request, send: Send) -> None:
    try:
        response = await route.handler(request)
    except SluiceError as error:
        response = errors.refusal(request, error)
    await response(request.scope, request.receive, send)


def _document_raw_routes(app: FastAPI) -> None:
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            for path, operations in RAW_PATHS.items():
                schema["paths"].setdefault(path, {}).update(operations)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend its schema
