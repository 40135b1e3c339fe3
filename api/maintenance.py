"""What jobs ask of the leader beside plans: deletion of files that left the log, expiry of offsets, its clock."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from sluice.api.groups_requests import all_ready
from sluice.api.models import SweepFiles
from sluice.api.resource_models import ClockModel, ExpiredOffsets, SweptFiles
from sluice.api.resources import Json
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service
from sluice.api.topics import V3, links_of

router = APIRouter(tags=["admin"], route_class=LimitedRoute)


@router.post(
    f"{V3}/{{c}}/topics/{{t}}/partitions/{{p}}/files:sweep",
    summary="Delete files that left the log",
    response_model=SweptFiles,
)
async def sweep_files(request: Request, c: str, t: str, p: int, body: SweepFiles) -> JSONResponse:
    """Only after `file.delete.delay.ms`. Nothing while the wall clock cannot be trusted (R-13)."""
    service, _ = links_of(request, c)
    led = service.log.maintained(t, p, body.topic_id)
    housekeeping = service.log.background.housekeeping
    found = await service.blocking(lambda: housekeeping.sweep(led, thorough=body.orphans))
    return JSONResponse(
        {"removed": list(found.removed), "orphans": list(found.orphans), "next_due_ms": found.next_due_ms}
    )


@router.post(
    f"{V3}/{{c}}/consumer-groups:expire",
    summary="Forget expired offsets now",
    response_model=ExpiredOffsets,
)
async def expire_offsets(request: Request, c: str) -> JSONResponse:
    """The rule is that of `offsets.retention.minutes`; the service also applies it by itself."""
    service, _ = links_of(request, c)
    await all_ready(service)
    found = await service.blocking(service.groups.expire)
    return JSONResponse({"groups": found.groups, "offsets": found.offsets})


@router.get(f"{V3}/{{c}}/clock", summary="The clock that records are deleted by", response_model=ClockModel)
async def get_clock(request: Request, c: str) -> JSONResponse:
    service, _ = links_of(request, c)
    return JSONResponse(_clock(service))


@router.post(f"{V3}/{{c}}/clock:confirm", summary="Trust the clock again", response_model=ClockModel)
async def confirm_clock(request: Request, c: str) -> JSONResponse:
    """An operator says that the present time of day is right: deletion by age goes on (R-13)."""
    service, _ = links_of(request, c)
    service.log.runtime.wall.confirm()
    return JSONResponse(_clock(service))


def _clock(service: Service) -> Json:
    runtime = service.log.runtime
    return {"wall_ms": runtime.clock.wall_ms(), "trusted": runtime.wall.trusted()}
