"""`GET /console/session`: who the token is, so that a page can say so, and what this service is."""

from __future__ import annotations

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from sluice.api.auth import principal_of
from sluice.api.console.assets import asset, check_enabled, page
from sluice.api.console.events import events
from sluice.api.groups_requests import json_response
from sluice.api.routing import RawRoute
from sluice.api.service import service_of


async def session(request: Request) -> Response:
    """Of a token its name and grants, never its text."""
    check_enabled(request)
    service, principal = service_of(request), principal_of(request)
    log = service.log
    token = None if principal.token_id is None else log.catalog.tokens.find(principal.token_id)
    return json_response(
        {
            "cluster_id": log.cluster_id,
            "version": version("sluice"),
            "storage_root": log.runtime.store.url,
            "tokens_in_use": service.access.asks,
            "token_id": principal.token_id,
            "name": principal.name,
            "grants": ["admin"] if token is None else [str(grant) for grant in token.grants],
            "admin": principal.grants.admin,
            "expires_ms": principal.expires_ms,
            "now_ms": log.runtime.clock.wall_ms(),
        }
    )


ROUTES = [
    RawRoute("GET", "/console", page),
    RawRoute("GET", "/console/", page),
    RawRoute("GET", "/console/assets/{file}", asset),
    RawRoute("GET", "/console/session", session),
    RawRoute("GET", "/console/events", events),
]
