"""Spark sinks: upload of parts, the commit of a batch, what is known of a query.

A commit may take longer than a request may wait: then it is answered 504, goes on, and a repeat waits for the same
work. So a driver repeats until it is told the end, and nothing is appended twice.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Request
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, Response

from sluice.api.auth import check_topic, principal_of
from sluice.api.errors import JSON, UnsupportedMediaType
from sluice.api.limits import received, whole_number
from sluice.api.quotas import admit_produce_to, count_produced_to
from sluice.api.routing import LimitedRoute, RawRoute
from sluice.api.service import Service, service_of
from sluice.api.sinks_append import Appended, SinkBatch
from sluice.api.sinks_models import CommitSinkBatch, DroppedBatch, SinkBatchResult, SinkResource
from sluice.api.sinks_owners import SinkOwners
from sluice.ingest.arrow_body import CONTENT_TYPE as ARROW
from sluice.log_store import staging
from sluice.log_store.errors import InvalidRequest, NotLeader, Overloaded, RequestTimedOut
from sluice.log_store.sinks import MAX_BATCH, check_query_id
from sluice.log_store.staging import HTTP_SUFFIX, Part
from sluice.log_store.tokens_grants import Operation

_log = logging.getLogger(__name__)
COMMITS = 2
"""Batches that are appended at the same time; the others wait. Each may hold some parts in memory."""
SWEEP_EVERY_S, FIRST_SWEEP_S = 3_600.0, 60.0

router = APIRouter(tags=["sinks"], route_class=LimitedRoute)
_QUERY = "/v3/clusters/{c}/sinks/{query}"
_BATCH = f"{_QUERY}/batches/{{batch}}"
PART_PATH = "/v3/clusters/{c}/topics/{t}/sinks/{query}/batches/{batch}/parts/{part}"
BatchId = Annotated[int, Path(ge=0, le=MAX_BATCH)]


class Sinks:
    """Belongs to the event loop, but for the work itself."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pool = ThreadPoolExecutor(COMMITS, thread_name_prefix="sluice-sink")
        self._stopping = threading.Event()
        self._at_work: dict[str, tuple[int, Future[Appended]]] = {}
        self.owners = SinkOwners(service.log.runtime.store)
        service.at_stop.append(self.stop)
        self._sweep_after(FIRST_SWEEP_S)

    def at_work(self, query: str) -> bool:
        found = self._at_work.get(query)
        return found is not None and not found[1].done()

    def commit(self, query: str, batch: int, parts: Sequence[Part]) -> Future[Appended]:
        """The work on this batch: that which is going on, or new."""
        found = self._at_work.get(query)
        if found is not None and not found[1].done():
            if found[0] != batch:
                raise Overloaded(f"batch {found[0]} of query {query} is still being appended", retry_after_s=1)
            return found[1]
        service = self._service
        work = SinkBatch(service.log, service.hooks, service.limits, query, batch, self._stopping)
        future = self._pool.submit(work.commit, parts)
        self._at_work[query] = (batch, future)
        future.add_done_callback(lambda done: service.bell.ring(lambda: self._ended(query, done)))
        return future

    def _ended(self, query: str, future: Future[Appended]) -> None:
        if (found := self._at_work.get(query)) is not None and found[1] is future:
            del self._at_work[query]
        if not future.cancelled() and future.exception() is None:
            done = future.result()
            for topic, records in done.records.items():
                self._service.metrics.produced(topic, records, done.size[topic])

    def _sweep_after(self, seconds: float) -> None:
        self._service.log.background.later(seconds, self._sweep_again, "the sweep of staged batches")

    def _sweep_again(self) -> None:
        if not self._stopping.is_set() and not self._service.log.runtime.closing:
            try:
                self.sweep()
            finally:
                self._sweep_after(SWEEP_EVERY_S)

    def sweep(self) -> None:
        """Delete what was staged and never committed. Nothing while wall time is not to be trusted (R-13)."""
        runtime = self._service.log.runtime
        if not runtime.wall.trusted() or runtime.leadership.fenced:
            return
        runtime.leadership.confirm(0)
        gone = staging.sweep(runtime.store, runtime.clock.wall_ms(), runtime.settings.orphan_retention_ms)
        if gone:
            self.owners.forget()
            _log.info("swept %d staged batches and marks of sinks that nobody came back for", gone)

    def stop(self) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


# --- parts ---------------------------------------------------------------------------------------


async def upload(request: StarletteRequest) -> Response:
    service, at = service_of(request), request.path_params
    service.check_cluster(at["c"])
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != ARROW:
        raise UnsupportedMediaType(f"Content-Type: must be {ARROW}", field="Content-Type")
    batch = whole_number(at, "batch", high=MAX_BATCH) or 0
    path = staging.part_path(at["query"], batch, at["part"])
    if not path.endswith(HTTP_SUFFIX):
        raise InvalidRequest(f"part: must end with {HTTP_SUFFIX}", field="part")
    # A part of the same name replaces the first, so it must be the same user's.
    await service.blocking(lambda: service.sinks.owners.claim(at["query"], principal_of(request)))
    async with received(request, service) as sent:
        if not sent:
            raise InvalidRequest("body: must not be empty", field="body")
        body = bytes(sent)
        # The same name with the same bytes after an answer that was lost: whole again, and harmless.
        await service.reading(lambda: service.log.runtime.store.replace(path, body))
    return Response(msgspec.json.encode({"part": at["part"], "size": len(body)}), 200, media_type=JSON)


ROUTES = [RawRoute("PUT", PART_PATH, upload)]


# --- batches -------------------------------------------------------------------------------------


@router.post(_BATCH, summary="Commit a batch of a Spark sink", response_model=SinkBatchResult)
async def commit_batch(request: Request, c: str, query: str, batch: BatchId, body: CommitSinkBatch) -> JSONResponse:
    """All of its records are appended once, whatever happens on the way and however often it is called.

    504: it is still being appended; repeat the call. A batch at or below the last one that is complete appends
    nothing. A record that breaks a rule refuses the batch before anything of it is appended. 403: another user's token
    began the query.
    """
    service = service_of(request)
    service.check_cluster(c)
    check_query_id(query)
    parts = [Part(staging.check_part_name(part.name), *_facts(part)) for part in body.parts]
    topics = dict.fromkeys(part.topic for part in parts)
    for topic in topics:
        check_topic(request, Operation.PRODUCE, topic)
    if not service.sinks.at_work(query):
        for topic in topics:
            admit_produce_to(request, service, topic)
    await service.blocking(lambda: service.sinks.owners.claim(query, principal_of(request)))
    appended = await _until_done(service, service.sinks.commit(query, batch, parts))
    if appended.count:
        for part in parts:
            if not part.counted:
                count_produced_to(request, service, part.topic, part.size)
    answer = {"query_id": query, "batch_id": batch, "records": appended.count, "duplicate": not appended.count}
    return JSONResponse(answer)


def _facts(part: Any) -> tuple[str, int, int, int]:
    return part.topic, part.rows, part.size, part.crc


async def _until_done(service: Service, work: Future[Appended]) -> Appended:
    """Its outcome. The work goes on when the time is over, or when nobody waits any more."""
    service.bell.attach(asyncio.get_running_loop())
    ended = asyncio.wrap_future(work)
    ended.add_done_callback(lambda future: future.cancelled() or future.exception())  # somebody has looked
    try:
        async with service.waiting.timeout(service.settings.request_timeout_ms / 1000):
            await asyncio.wait([ended])
    except TimeoutError:
        raise RequestTimedOut("the batch is still being appended: repeat the commit to hear the end") from None
    if ended.cancelled():
        raise NotLeader("the service is stopping; repeat the commit: it goes on where it is")
    return ended.result()


@router.delete(_BATCH, summary="Drop what an aborted batch staged", response_model=DroppedBatch)
async def drop_batch(request: Request, c: str, query: str, batch: BatchId) -> JSONResponse:
    service = service_of(request)
    service.check_cluster(c)
    check_query_id(query)

    def drop() -> bool:
        return staging.drop(service.log.runtime.store, query, batch)

    # What is nobody's yet was written to storage by tasks, and nothing tells whose they are: the sweep gets it.
    known = await service.blocking(lambda: service.sinks.owners.check(query, principal_of(request)))
    dropped = known and not service.sinks.at_work(query) and await service.blocking(drop)
    return JSONResponse({"query_id": query, "batch_id": batch, "dropped": dropped})


@router.get(_QUERY, summary="What is known of a query that writes", response_model=SinkResource)
async def get_sink(request: Request, c: str, query: str) -> JSONResponse:
    service = service_of(request)
    service.check_cluster(c)
    check_query_id(query)

    def last_done() -> int | None:
        service.sinks.owners.check(query, principal_of(request))
        return staging.last_done(service.log.runtime.store, query)

    last = await service.blocking(last_done)
    return JSONResponse({"query_id": query, "last_batch_id": last})
