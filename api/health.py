"""Is the process up, can it append and read, and the figures."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from sluice.api.errors import body_of, headers_of
from sluice.api.metrics import CONTENT_TYPE
from sluice.api.routing import LimitedRoute
from sluice.api.service import service_of
from sluice.log_store.errors import StorageError

router = APIRouter(tags=["operations"], route_class=LimitedRoute)


@router.get("/healthz", summary="The process is up")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="It can append and read")
async def readyz(request: Request) -> JSONResponse:
    """503 with what is wrong, in words."""
    service = service_of(request)
    troubles = ["the service is stopping"] if service.waiting.stopping else service.log.troubles()
    if not troubles:
        return JSONResponse({"status": "ready"})
    error = StorageError("; ".join(troubles)[:2000])
    told = body_of(error)
    body = {"error_code": told.error_code, "message": told.message, "error": told.error, "retriable": True}
    return JSONResponse(body | {"troubles": troubles}, 503, headers_of(error))


@router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    service = service_of(request)
    return Response(service.metrics.render(service.log, service.waiting.count), media_type=CONTENT_TYPE)
