"""Committed offsets over HTTP: commit, look, delete, reset."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sluice.api import group_models as models
from sluice.api.auth import check_topic, sees_topic
from sluice.api.errors import JSON, clean, status_of
from sluice.api.groups_requests import Later, body_of, group_of, in_time, json_response, ready
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.log_store.errors import (
    GroupIdNotFound,
    InvalidRequest,
    NonEmptyGroup,
    SluiceError,
    UnknownMemberId,
    UnknownTopicId,
)
from sluice.log_store.tokens_grants import Operation
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import Committed
from sluice.streaming.coordinator.reset import PlanRow, Scenario, refuse_active
from sluice.streaming.coordinator.resetting import ResetRequest, parse_request, planned, scope
from sluice.streaming.groups import Refusal
from sluice.streaming.groups.events import Commit
from sluice.streaming.groups.offsets import metadata_refusal

COMMIT_DECODER = msgspec.json.Decoder(models.CommitOffsets)
_DELETE = msgspec.json.Decoder(models.DeleteOffsets)
_RESET = msgspec.json.Decoder(models.ResetOffsets)

Errors = Mapping[TopicPartition, SluiceError]

# --- commit --------------------------------------------------------------------------------------


async def commit(request: Request) -> Response:
    service, group_id = group_of(request)
    body = await body_of(request, service, COMMIT_DECODER)
    await ready(service, group_id, write=True)
    forbidden = _forbidden(request, body)
    offsets, errors = judged(service, body, forbidden)
    who = Commit(member_id=body.member_id, generation=body.generation_id, instance_id=body.group_instance_id)
    await _commit(service, group_id, who, offsets)
    return _outcomes(request, [TopicPartition(row.topic_name, row.partition_id) for row in body.offsets], errors)


def _forbidden(request: Request, body: models.CommitOffsets) -> dict[str, SluiceError]:
    """Topics that the sender may not read."""
    found: dict[str, SluiceError] = {}
    for topic in {row.topic_name for row in body.offsets}:
        try:
            check_topic(request, Operation.CONSUME, topic)
        except SluiceError as error:
            found[topic] = error
    return found


def judged(
    service: Service, body: models.CommitOffsets, forbidden: Mapping[str, SluiceError] | None = None
) -> tuple[dict[TopicPartition, Committed], dict[TopicPartition, SluiceError]]:
    """What can be committed, and why the rest cannot. One bad partition does not spoil the others."""
    now_ms, refused = service.log.runtime.clock.wall_ms(), forbidden or {}
    good: dict[TopicPartition, Committed] = {}
    bad: dict[TopicPartition, SluiceError] = {}
    for row in body.offsets:
        where = TopicPartition(row.topic_name, row.partition_id)
        try:
            if row.topic_name in refused:
                raise refused[row.topic_name]
            good[where] = _committed(service, body, row, now_ms)
        except SluiceError as error:
            bad[where] = error
    return {where: one for where, one in good.items() if where not in bad} if bad else good, bad


def _committed(service: Service, body: models.CommitOffsets, row: models.NewOffset, now_ms: int) -> Committed:
    meta = service.log.catalog.state.get(row.topic_name)
    if row.partition_id >= meta.partitions:
        meta.partition(row.partition_id)  # says what is wrong
    if row.topic_id is not None and row.topic_id != meta.topic_id:
        raise UnknownTopicId(f"{row.topic_name} now has the id {meta.topic_id}: the topic was made anew")
    metadata = row.metadata or ""
    refusal = metadata and metadata_refusal(metadata, service.groups.context.settings.offset_metadata_max_bytes)
    if refusal:
        raise refusal.exception()
    return Committed(
        offset=row.offset,
        metadata=metadata,
        commit_ms=now_ms,
        topic_id=meta.topic_id,
        leader_epoch=row.leader_epoch,
        query=body.query,
        batch=body.batch,
    )


async def _commit(service: Service, group_id: str, who: Commit, offsets: Mapping[TopicPartition, Committed]) -> None:
    later: Later[SluiceError | None] = Later(service)
    service.groups.commit(group_id, who, offsets, later.set, service.flush_soon)
    error = await in_time(service, later)
    if error is not None:
        raise error


def _outcomes(request: Request, places: list[TopicPartition], errors: Errors) -> Response:
    """200, 207 when some failed; when all did it is an error like any other, the first one's, with all of them."""
    if not errors:
        return Response(outcomes(places, errors), 200, media_type=JSON)
    first = next(iter(errors.values()))
    request.scope["sluice.error"] = first.error
    if not all(where in errors for where in places):
        return Response(outcomes(places, errors), 207, media_type=JSON)
    status, code = status_of(first)
    rows = [_outcome(where, errors[where]) for where in places]
    return json_response(models.AllRefused(code, clean(first.message), first.error, first.retriable, rows), status)


def outcomes(places: list[TopicPartition], errors: Errors) -> bytes:
    return msgspec.json.encode(models.OffsetOutcomes([_outcome(where, errors.get(where)) for where in places]))


def _outcome(where: TopicPartition, error: SluiceError | None) -> models.OffsetOutcome:
    if error is None:
        return models.OffsetOutcome(where.topic, where.partition)
    return models.OffsetOutcome(where.topic, where.partition, status_of(error)[1], error.error, error.message)


# --- look and delete -----------------------------------------------------------------------------


async def get_offsets(request: Request) -> Response:
    service, group_id = group_of(request)
    await ready(service, group_id)
    wanted = request.query_params.get("topic")
    found = service.groups.offsets(group_id)
    places = sorted(found, key=lambda one: (one.topic, one.partition))
    rows = [
        _row(where, found[where])
        for where in places
        if wanted in (None, where.topic) and sees_topic(request, where.topic)
    ]
    return json_response(models.CommittedOffsets(rows))


def _row(where: TopicPartition, one: Committed) -> models.CommittedOffset:
    return models.CommittedOffset(
        topic_name=where.topic,
        partition_id=where.partition,
        offset=one.offset,
        metadata=one.metadata,
        commit_timestamp=one.commit_ms,
        topic_id=one.topic_id,
        leader_epoch=one.leader_epoch,
        query=one.query,
        batch=one.batch,
    )


async def delete_offsets(request: Request) -> Response:
    service, group_id = group_of(request)
    body = await body_of(request, service, _DELETE)
    places = [TopicPartition(row.topic_name, row.partition_id) for row in body.offsets]
    for topic in {where.topic for where in places}:
        check_topic(request, Operation.CONSUME, topic)
    await ready(service, group_id)
    if service.groups.find(group_id) is None:
        raise GroupIdNotFound(f"there is no group {group_id!r}")
    await ready(service, group_id, write=True)
    later: Later[tuple[SluiceError | None, Mapping[str, Refusal]]] = Later(service)
    service.groups.delete_offsets(group_id, places, lambda error, refused: later.set((error, refused)))
    error, refused = await in_time(service, later)
    if error is not None:
        raise error
    stay = {where: refused[where.topic].exception() for where in places if where.topic in refused}
    return _outcomes(request, places, stay)


# --- reset ---------------------------------------------------------------------------------------


async def reset(request: Request) -> Response:
    """Moves a group that nobody is a member of; only shows what it would do unless `dry_run` is false."""
    service, group_id = group_of(request)
    body = await body_of(request, service, _RESET)
    wanted = _wanted(service, body, group_id)
    await ready(service, group_id)
    view = service.groups.find(group_id)
    refuse_active(None if view is None else view.group)
    committed = service.groups.offsets(group_id)
    places = scope(service.log, wanted, committed)
    for topic in {where.topic for where in places}:
        check_topic(request, Operation.CONSUME, topic)
    rows = await service.reading(lambda: planned(service.log, wanted, places, committed))
    if rows and not body.dry_run:
        await _execute(service, group_id, rows)
    shown = [models.PlanRow(row.where.topic, row.where.partition, row.current, row.new) for row in rows]
    message = None if rows else f"nothing to reset: no partition of group {group_id!r} is named"
    return json_response(models.ResetPlan(shown, bool(rows) and not body.dry_run, message))


def _wanted(service: Service, body: models.ResetOffsets, group_id: str) -> ResetRequest:
    given = {one: value for one in Scenario if (value := getattr(body, one.value)) is not None and value is not False}
    now_ms = service.log.runtime.clock.wall_ms()
    return parse_request(given, body.topics, all_topics=body.all_topics, group_id=group_id, now_ms=now_ms)


async def _execute(service: Service, group_id: str, rows: list[PlanRow]) -> None:
    now_ms, topics = service.log.runtime.clock.wall_ms(), service.log.catalog.state
    offsets = {
        row.where: Committed(
            offset=row.new, metadata="", commit_ms=now_ms, topic_id=topics.get(row.where.topic).topic_id
        )
        for row in rows
    }
    if any(row.new < 0 for row in rows):
        raise InvalidRequest("an offset below 0 cannot be committed")
    await ready(service, group_id, write=True)
    try:
        await _commit(service, group_id, Commit(), offsets)
    except UnknownMemberId:
        # A member joined while the plan was made. The commit is one decision, so nothing was changed.
        raise NonEmptyGroup("offsets can only be reset while the group is inactive; it has members now") from None


_OFFSETS = "/v3/clusters/{c}/consumer-groups/{g}/offsets"
COMMIT_ROUTE = RawRoute("POST", _OFFSETS, commit)
ROUTES = [
    COMMIT_ROUTE,
    RawRoute("GET", _OFFSETS, get_offsets),
    RawRoute("DELETE", _OFFSETS, delete_offsets),
    RawRoute("POST", f"{_OFFSETS}:reset", reset),
]
