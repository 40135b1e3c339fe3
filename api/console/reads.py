"""Calls that the console needed and others may use: a picture of a log, records by key, runs of jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from sluice.api.console import models
from sluice.api.console.layout import lay_out
from sluice.api.console.search import Found, key_bytes, partition_of, search
from sluice.api.errors import JSON
from sluice.api.fetch import RecordOut, records_out
from sluice.api.metrics_log import COMPACTION, HOUSEKEEPING, RETENTION
from sluice.api.quotas import count_fetched, sit_out
from sluice.api.resources import Json, Links
from sluice.api.routing import LimitedRoute
from sluice.api.service import Service
from sluice.api.topics import V3, led_partition, links_of
from sluice.conf.declare import keys_of
from sluice.conf.settings import JobSettings
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import Overloaded, ResourceNotFound
from sluice.log_store.job_reports import (
    Report,
    is_job_name,
    jobs_that_ran,
    last_report,
    newest_reports,
    running_report,
)
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import PartitionReads

router = APIRouter(tags=["console"], route_class=LimitedRoute)
_TOPIC = f"{V3}/{{c}}/topics/{{t}}"
_JOBS = f"{V3}/{{c}}/jobs"
_SCHEDULE = "jobs.schedule."


# --- the picture of a log ------------------------------------------------------------------------


@router.get(
    f"{_TOPIC}/partitions/{{p}}/layout",
    summary="The log of a partition as a picture",
    response_model=models.LayoutResource,
)
async def layout(request: Request, c: str, t: str, p: int) -> JSONResponse:
    """Files, or stretches of them, with their kind; segments, and which of them retention takes next."""
    service, links = links_of(request, c)
    led = await led_partition(service, t, p)
    body = await service.reading(lambda: _layout(service.log, led))
    path = ("topics", t, "partitions", p, "layout")
    return JSONResponse(links.resource("SluiceLayout", path, {"topic_name": t, "partition_id": p, **body}))


def _layout(log: LogStore, led: PartitionLog) -> Json:
    runtime, shape, dirty = log.runtime, led.shape(), led.state.first_dirty
    now_ms = runtime.clock.wall_ms() if runtime.wall.trusted() else None
    return {
        "version": shape.version,
        "log_start_offset": shape.log_start,
        "high_watermark": shape.end,
        "log_end_offset": led.log_end,
        "first_dirty_offset": dirty,
        **asdict(lay_out(shape, led.config, dirty, now_ms)),
    }


# --- records by key ------------------------------------------------------------------------------


@router.get(f"{_TOPIC}/records:search", summary="Records of one key, newest first", response_model=models.FoundRecords)
async def search_records(
    request: Request,
    c: str,
    t: str,
    key: Annotated[str, Query(description="The key, in the form that key_format says")],
    key_format: Annotated[
        Literal["json", "string", "binary"], Query(description="json as it was sent, text, or base64")
    ] = "json",
    partition: Annotated[
        int | None, Query(ge=0, le=2**31 - 1, description="Where to look; without it where the key belongs")
    ] = None,
    before: Annotated[int | None, Query(ge=0, le=2**63 - 1, description="Only older offsets: `next_before`")] = None,
    max_records: Annotated[int, Query(ge=1, le=100, description="At most so many")] = 20,
    max_scan: Annotated[int, Query(ge=1, le=2_000_000, description="Records to look at, about")] = 500_000,
    format: Annotated[Literal["json", "string", "binary"], Query(description="How records are shown")] = "json",
) -> Response:
    """A topic has no index of keys: keys are read backwards from the end, up to `max_scan` of them in one answer."""
    service, _ = links_of(request, c)
    wanted, meta = key_bytes(key, key_format), service.log.topic(t)
    led = await led_partition(service, t, partition_of(wanted, meta.partitions) if partition is None else partition)
    if await sit_out(request, service, t, 0.0):
        raise Overloaded("the quota of this reader is used up", retry_after_s=1)

    def look() -> tuple[Found, list[RecordOut]]:
        found = search(led, wanted, before=before, most=max_records, max_scan=max_scan)
        reads = PartitionReads(led)
        batches = [batch for at in found.offsets for batch in reads.fetch(at, max_records=1).rows.batches]
        return found, [record for batch in batches for record in records_out(batch, format)]

    found, records = await service.reading(look)
    body = {
        "topic_name": t,
        "partition_id": led.ref.partition,
        "scanned": found.scanned,
        "next_before": found.next_before,
        "data": records,
    }
    content = msgspec.json.encode(body)
    service.metrics.fetched(t, len(records), len(content))
    count_fetched(request, service, t, len(content))
    return Response(content, 200, media_type=JSON)


# --- jobs ----------------------------------------------------------------------------------------


def _schedules(service: Service) -> dict[str, str]:
    settings = service.log.settings.jobs
    found = {}
    for attribute, key in keys_of(JobSettings):
        name = key.name.removeprefix(_SCHEDULE).replace(".", "-")
        if key.name.startswith(_SCHEDULE) and is_job_name(name) and name != "jitter-ms":
            found[name] = str(getattr(settings, attribute))
    return found


@router.get(_JOBS, summary="Maintenance jobs and their last runs", response_model=models.JobList)
async def list_jobs(request: Request, c: str) -> JSONResponse:
    service, links = links_of(request, c)
    schedules, store = _schedules(service), service.log.runtime.store

    def look() -> dict[str, tuple[Report | None, Report | None]]:
        names = sorted(schedules.keys() | set(jobs_that_ran(store)))
        return {name: (last_report(store, name), running_report(store, name)) for name in names}

    found = await service.blocking(look)
    rows = [_job(links, name, schedules.get(name, ""), *reports) for name, reports in found.items()]
    return JSONResponse(links.listed("SluiceJobList", ("jobs",), rows) | {"service": _work(service)})


def _job(links: Links, name: str, schedule: str, last: Report | None, running: Report | None) -> Json:
    body = {"job": name, "schedule": schedule, "last": last, "running": running}
    return links.resource("SluiceJob", ("jobs", name), body)


def _work(service: Service) -> list[Json]:
    housekeeping, retention = service.log.background.housekeeping, service.log.retention.counters
    groups = (
        ("", HOUSEKEEPING, housekeeping.counters),
        ("compaction_", COMPACTION, housekeeping.compaction.counters),
        ("retention_", RETENTION, retention),
    )
    return [
        {"name": prefix + name, "count": getattr(counters, name), "doc": doc}
        for prefix, docs, counters in groups
        for name, doc in docs.items()
    ]


@router.get(f"{_JOBS}/{{job}}/runs", summary="Reports of a job, newest first", response_model=models.JobRunList)
async def list_runs(
    request: Request,
    c: str,
    job: str,
    max_runs: Annotated[int, Query(ge=1, le=50, description="At most so many")] = 20,
) -> JSONResponse:
    service, links = links_of(request, c)
    store = service.log.runtime.store
    if not is_job_name(job):
        raise ResourceNotFound(f"there is no job {job[:80]!r}")
    found = await service.blocking(lambda: newest_reports(store, job, max_runs))
    if not found and job not in _schedules(service):
        raise ResourceNotFound(f"there is no job {job[:80]!r}")
    rows = [links.resource("SluiceJobRun", ("jobs", job, "runs", str(one.get("run_id"))), one) for one in found]
    return JSONResponse(links.listed("SluiceJobRunList", ("jobs", job, "runs"), rows))
