"""New producers, deletion of records, maintenance plans and segments."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from sluice.api.errors import body_of, headers_of, status_of
from sluice.api.models import DeleteRecords, NewProducer, PlanBody
from sluice.api.resource_models import AppliedPlan, DeletedRecords, ProducerModel, SegmentList
from sluice.api.resources import Json
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service
from sluice.api.topics import V3, led_partition, links_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import SluiceError
from sluice.log_store.plans import Plan, PlanKind

router = APIRouter(tags=["admin"], route_class=LimitedRoute)
_TOPIC = f"{V3}/{{c}}/topics/{{t}}"


@router.post(f"{V3}/{{c}}/producers", summary="A new idempotent producer", response_model=ProducerModel)
async def new_producer(request: Request, c: str, body: NewProducer) -> JSONResponse:
    service, _ = links_of(request, c)
    producer_id, epoch = await service.blocking(lambda: service.log.new_producer(body.mode, body.name))
    return JSONResponse({"producer_id": producer_id, "producer_epoch": epoch})


@router.post(
    f"{_TOPIC}/records:delete",
    summary="Delete records before an offset",
    response_model=DeletedRecords,
    responses={207: {"model": DeletedRecords, "description": "Some partitions refused"}},
)
async def delete_records(request: Request, c: str, t: str, body: DeleteRecords) -> JSONResponse:
    """207 when some partitions refuse; when all do, the status is that of the first error, beside what each said."""
    service, _ = links_of(request, c)
    meta = service.log.topic(t)
    for wanted in body.offsets:
        meta.partition(wanted.partition)
    found = [await _delete_before(service, t, wanted.partition, wanted.before_offset) for wanted in body.offsets]
    offsets = [_told(wanted.partition, one) for wanted, one in zip(body.offsets, found, strict=True)]
    errors = [one for one in found if isinstance(one, SluiceError)]
    if errors and len(errors) == len(found):
        request.scope["sluice.error"] = errors[0].error
        refused = msgspec.to_builtins(body_of(errors[0])) | {"offsets": offsets}
        return JSONResponse(refused, status_of(errors[0])[0], headers_of(errors[0]))
    return JSONResponse({"offsets": offsets}, 207 if errors else 200)


async def _delete_before(service: Service, topic: str, number: int, before: int) -> int | SluiceError:
    """Where the partition begins now, or why not."""
    try:
        return await service.blocking(lambda: service.log.delete_records(topic, number, before))
    except SluiceError as error:
        return error


def _told(number: int, found: int | SluiceError) -> Json:
    if not isinstance(found, SluiceError):
        return {"partition": number, "low_watermark": found}
    told = body_of(found)
    return {"partition": number, "error_code": told.error_code, "error": told.error, "message": told.message}


@router.post(f"{_TOPIC}/partitions/{{p}}/plans", summary="Apply a maintenance plan", response_model=AppliedPlan)
async def apply_plan(request: Request, c: str, t: str, p: int, body: PlanBody) -> JSONResponse:
    service, _ = links_of(request, c)
    plan = Plan(
        plan_id=body.plan_id,
        kind=PlanKind(body.kind),
        reason=body.reason,
        base_version=body.base_version,
        removes=tuple(body.removes),
        adds=tuple(DataFile(**file.model_dump()) for file in body.adds),
        log_start=body.log_start,
        first_dirty=body.first_dirty,
        continues_at=body.continues_at,
        end=body.end,
        rolls=tuple(body.rolls),
        empties_log=body.empties_log,
    )
    version = await service.blocking(lambda: service.log.apply_plan(t, p, plan, topic_id=body.topic_id))
    return JSONResponse({"plan_id": body.plan_id, "version": version})


@router.get(f"{_TOPIC}/partitions/{{p}}/segments", summary="Live files of a partition", response_model=SegmentList)
async def segments(request: Request, c: str, t: str, p: int) -> JSONResponse:
    service, links = links_of(request, c)
    led = await led_partition(service, t, p)
    files, count, log_start, _ = led.view()
    path = ("topics", t, "partitions", p, "segments")
    found = [
        links.resource(
            "SluiceSegment",
            (*path, file.path),
            {
                "path": file.path,
                "base_offset": file.base_offset,
                "end_offset": file.end_offset,
                "records": file.records,
                "size_bytes": file.size,
                "min_timestamp": file.min_ms,
                "max_timestamp": file.max_ms,
                "modified_ms": file.modified_ms,
                "state": "trimmed" if file.base_offset < log_start else "live",
            },
        )
        for file in files[:count]
    ]
    listed = links.listed("SluiceSegmentList", path, found)
    listed["metadata"] |= {"version": led.state.version, "log_start_offset": log_start, "folder": led.ref.folder}
    return JSONResponse(listed)
