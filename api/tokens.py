"""Access tokens: create, list, look at, revoke. For admins, and for anybody at this machine while there are none."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from sluice.api.auth import from_loopback, principal_of
from sluice.api.models import CreateToken
from sluice.api.resource_models import NewTokenResource, TokenList, TokenResource
from sluice.api.resources import Json, Links
from sluice.api.routing import LimitedRoute
from sluice.api.topics import V3, links_of
from sluice.log_store.errors import ClusterAuthorizationFailed
from sluice.log_store.tokens import Token
from sluice.log_store.tokens_admin import issue, revoke

router = APIRouter(tags=["tokens"], route_class=LimitedRoute)
_TOKENS = f"{V3}/{{c}}/tokens"
_SECRET = {"Cache-Control": "no-store"}


def _shown(links: Links, token: Token, now_ms: int) -> Json:
    body = {
        "cluster_id": links.cluster_id,
        "token_id": token.token_id,
        "name": token.name,
        "grants": [str(grant) for grant in token.grants],
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
        "expired": token.expired(now_ms),
    }
    return links.resource("SluiceToken", ("tokens", token.token_id), body)


@router.post(_TOKENS, summary="Create an access token", status_code=201, response_model=NewTokenResource)
async def create_token(request: Request, c: str, body: CreateToken) -> JSONResponse:
    """`token` in the answer is shown this once. The first one must grant admin and be made from the same machine."""
    service, links = links_of(request, c)
    unknown = principal_of(request).token_id is None
    if unknown and not from_loopback(request.scope):
        raise ClusterAuthorizationFailed("the first token must be created from the machine that the service runs on")
    log, now_ms = service.log, service.log.runtime.clock.wall_ms()
    issued = await service.blocking(
        lambda: issue(
            log.catalog,
            body.name,
            body.grants,
            now_ms=now_ms,
            expires_in_ms=body.expires_in_ms,
            first_only=unknown,
        )
    )
    headers = {"Location": links.url("tokens", issued.token.token_id), **_SECRET}
    return JSONResponse(_shown(links, issued.token, now_ms) | {"token": issued.text}, 201, headers)


@router.get(_TOKENS, summary="List the access tokens", response_model=TokenList)
async def list_tokens(request: Request, c: str) -> JSONResponse:
    service, links = links_of(request, c)
    now_ms = service.log.runtime.clock.wall_ms()
    found = [_shown(links, token, now_ms) for token in service.log.catalog.tokens.all()]
    return JSONResponse(links.listed("SluiceTokenList", ("tokens",), found))


@router.get(f"{_TOKENS}/{{id}}", summary="One access token", response_model=TokenResource)
async def get_token(request: Request, c: str, id: str) -> JSONResponse:
    service, links = links_of(request, c)
    return JSONResponse(_shown(links, service.log.catalog.tokens.get(id), service.log.runtime.clock.wall_ms()))


@router.delete(f"{_TOKENS}/{{id}}", summary="Revoke an access token", status_code=204, response_class=Response)
async def revoke_token(request: Request, c: str, id: str) -> Response:
    """From the answer on it is refused. The last one that grants admin stays."""
    service, _ = links_of(request, c)
    now_ms = service.log.runtime.clock.wall_ms()
    await service.blocking(lambda: revoke(service.log.catalog, id, now_ms=now_ms))
    return Response(status_code=204)
