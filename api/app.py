"""The ASGI application over an open log."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from sluice.api import (
    admin,
    api_docs,
    cluster,
    configs,
    consumers_v2,
    errors,
    fetch,
    groups,
    groups_offsets,
    groups_protocol,
    health,
    maintenance,
    produce,
    quotas_routes,
    records_v3,
    sinks,
    tokens,
    topics,
)
from sluice.api.auth_needs import OPEN_PATHS
from sluice.api.console import reads as console_reads
from sluice.api.console import session as console
from sluice.api.console.pulse import Pulse
from sluice.api.middleware import RequestMiddleware
from sluice.api.models import ErrorModel
from sluice.api.openapi import complete
from sluice.api.openapi_groups import GROUP_PATHS
from sluice.api.openapi_groups import schemas as group_schemas
from sluice.api.openapi_sinks import SINK_PATHS
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.log_store.errors import SluiceError

RAW_ROUTES = [*produce.ROUTES, *fetch.ROUTES, *records_v3.ROUTES, *groups_offsets.ROUTES, *groups_protocol.ROUTES]
RAW_ROUTES += [*sinks.ROUTES, *console.ROUTES, *api_docs.ROUTES]


def build_app(service: Service) -> ASGIApp:
    app = FastAPI(
        title="Sluice",
        version=version("sluice"),
        description="A streaming log on Delta tables.",
        docs_url=None,
        redoc_url=None,
        responses={"4XX": {"model": ErrorModel}, "5XX": {"model": ErrorModel}},
    )
    app.state.service = service
    service.sinks = sinks.Sinks(service)
    service.pulse = Pulse(service, service.settings.console_max_streams)
    errors.install(app)
    # Here they only answer a wrong method with 405: `_Front` takes what fits.
    app.router.routes[:0] = RAW_ROUTES
    for module in (
        health,
        cluster,
        topics,
        configs,
        admin,
        tokens,
        quotas_routes,
        groups,
        consumers_v2,
        sinks,
        maintenance,
        console_reads,
    ):
        app.include_router(module.router)
    _document_raw_routes(app)
    return RequestMiddleware(_Front(app, service), service)


class _Front:
    """The hot paths go straight to their handlers; everything else to FastAPI, whose layers cost more than they do.

    Nothing but the open paths gets past it without a valid token; routes then ask for the grant that they need.
    """

    def __init__(self, app: FastAPI, service: Service) -> None:
        self._app = app
        self._access = service.access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in RAW_ROUTES:
                match, child = route.matches(scope)
                if match is Match.FULL:
                    scope.update(child, app=self._app)
                    await self._handle(route, Request(scope, receive, send), send)
                    return
            if scope["path"] not in OPEN_PATHS:
                try:
                    self._access.authenticate(scope)
                except SluiceError as error:
                    await errors.refusal(Request(scope), error)(scope, receive, send)
                    return
        await self._app(scope, receive, send)

    async def _handle(self, route: RawRoute, request: Request, send: Send) -> None:
        try:
            response = await self._access.guard(request, route.handler)
        except SluiceError as error:
            response = errors.refusal(request, error)
        await response(request.scope, request.receive, send)


def _document_raw_routes(app: FastAPI) -> None:
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schema["components"]["schemas"].update(group_schemas())
            complete(schema, GROUP_PATHS | SINK_PATHS)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend its schema
