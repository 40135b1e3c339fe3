"""Is the process up, can it append and read, and the figures."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from sluice.api import metrics_groups, metrics_log
from sluice.api.errors import body_of, headers_of
from sluice.api.models import NotReady
from sluice.api.prometheus import CONTENT_TYPE, NONE, histograms, single
from sluice.api.resource_models import Health
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service, service_of
from sluice.log_store.errors import StorageError

router = APIRouter(tags=["operations"], route_class=LimitedRoute)


@router.get("/healthz", summary="The process is up", response_model=Health)
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="It can append and read", response_model=Health, responses={503: {"model": NotReady}})
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
    most = service.groups.context.settings.metrics_max_partitions
    groups = await service.reading(lambda: metrics_groups.lines(service.groups, service.lags, most))
    return Response("\n".join((*_figures(service), *groups, "")), media_type=CONTENT_TYPE)


def _figures(service: Service) -> Iterator[str]:
    yield from service.metrics.lines({meta.name for meta in service.log.topics(internal=True)})
    waiting, lag = service.waiting.count, service.lag.lateness
    yield from single("sluice_long_polls_waiting", "gauge", "Long polls that wait now.", waiting)
    yield from single("sluice_http_requests_active", "gauge", "Requests at work, with long polls.", service.active)
    yield from single("sluice_request_memory_bytes", "gauge", "Bodies of requests at work.", service.bodies_bytes)
    yield from single("sluice_quota_meters", "gauge", "Owners of quotas that are being measured.", len(service.meters))
    yield from histograms("sluice_event_loop_lag_seconds", "How late timers of the event loop ring.", [(NONE, lag)])
    yield from metrics_log.lines(service.log, service.settings.metrics_max_partitions)
