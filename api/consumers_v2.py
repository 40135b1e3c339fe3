"""v2 consumers over HTTP: instances that poll for their clients, as Confluent's REST proxy has them.

An explicit commit names the last record that was dealt with, as there: offset 7 commits 8, the next one to read. What
is shown as committed or as a position is the next offset to read.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec
import re2
from fastapi import APIRouter, Request
from starlette.responses import Response

from sluice.api import consumers_v2_models as models
from sluice.api import openapi_consumers as shapes
from sluice.api.auth import check_topic, principal_of
from sluice.api.consumers_v2_instance import Instance, Matches
from sluice.api.consumers_v2_offsets import InstanceOptions
from sluice.api.consumers_v2_records import FORMATS, answer, check_accept
from sluice.api.consumers_v2_registry import instances_of, new_name
from sluice.api.groups_requests import body_of, json_response
from sluice.api.limits import whole_number
from sluice.api.openapi_consumers import takes
from sluice.api.quotas import sit_out
from sluice.api.routing import LimitedRoute
from sluice.api.service import service_of
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.tokens_grants import Operation, Resource
from sluice.log_store.values import TopicPartition

router = APIRouter(tags=["consumers"], route_class=LimitedRoute)
_GROUP = "/consumers/{g}"
_INSTANCE = f"{_GROUP}/instances/{{i}}"
MAX_WAIT_MS = 10 * 60_000
MAX_BYTES = 64 << 20
MAX_PATTERN = 1_000
_RE2 = re2.Options()
_RE2.log_errors = False
_RE2.max_mem = 1 << 20
_NAME = re.compile(r"[^\x00-\x1f/]{1,200}")

_NEW = msgspec.json.Decoder(models.NewConsumer)
_SUBSCRIPTION = msgspec.json.Decoder(models.NewSubscription)
_PLACES = msgspec.json.Decoder(models.Places)
_OFFSETS = msgspec.json.Decoder(models.Offsets)
_SEEKS = msgspec.json.Decoder(models.Seeks)


def _done() -> Response:
    return Response(status_code=204)


# --- instances -----------------------------------------------------------------------------------


@router.post(_GROUP, summary="Make a consumer instance", openapi_extra=takes(models.NewConsumer, **shapes.MADE))
async def create(request: Request, g: str) -> Response:
    service = service_of(request)
    options = await _options(request)
    instances_of(service).create(g, options)
    base = f"{request.url.scheme}://{request.url.netloc}/consumers/{quote(g, safe='')}"
    return json_response({"instance_id": options.name, "base_uri": f"{base}/instances/{quote(options.name, safe='')}"})


async def _options(request: Request) -> InstanceOptions:
    service = service_of(request)
    try:
        body = await body_of(request, service, _NEW)
    except InvalidRequest as error:
        raise models.as_config_error(error) from None
    if body.format not in FORMATS:
        known = " or ".join(FORMATS)
        raise models.InvalidConsumerConfig(f"format: must be {known}; schemas are not supported", field="format")
    if body.auto_offset_reset not in ("earliest", "latest", "none"):
        raise models.InvalidConsumerConfig(
            "auto.offset.reset: must be earliest, latest or none", field="auto.offset.reset"
        )
    name = body.name or new_name()
    if _NAME.fullmatch(name) is None:
        raise models.InvalidConsumerConfig("name: must have 1 to 200 characters and no slash", field="name")
    return InstanceOptions(
        name=name,
        format=body.format,
        reset=body.auto_offset_reset,
        auto_commit=models.truth(body.auto_commit_enable),
        min_bytes=models.whole(body.fetch_min_bytes, "fetch.min.bytes", -1, MAX_BYTES),
        timeout_ms=models.whole(body.request_timeout_ms, "consumer.request.timeout.ms", 0, MAX_WAIT_MS),
    )


@router.delete(_INSTANCE, summary="Delete a consumer instance", status_code=204)
async def delete(request: Request, g: str, i: str) -> Response:
    await instances_of(service_of(request)).delete(g, i)
    return _done()


# --- what to read --------------------------------------------------------------------------------


@router.post(
    f"{_INSTANCE}/subscription", summary="Subscribe", status_code=204, openapi_extra=takes(models.NewSubscription)
)
async def subscribe(request: Request, g: str, i: str) -> Response:
    """To topics, or to all whose whole name matches a pattern of RE2's syntax."""
    service = service_of(request)
    with instances_of(service).using(g, i) as instance:
        body = await body_of(request, service, _SUBSCRIPTION)
        if (body.topics is None) == (body.topic_pattern is None):
            raise InvalidRequest("topics: give topics or topic_pattern, not both", field="topics")
        for topic in body.topics or ():
            check_topic(request, Operation.CONSUME, topic)
        grants = principal_of(request).grants
        instance.subscribe(
            body.topics or (),
            None if body.topic_pattern is None else _pattern(body.topic_pattern),
            lambda topic: grants.allow(Operation.CONSUME, Resource.TOPIC, topic),
        )
    return _done()


def _pattern(text: str) -> Matches:
    """By RE2, whose time is linear: a pattern of Python's own kind could hold up everybody for hours."""
    try:
        if len(text) > MAX_PATTERN:
            raise ValueError(f"must have at most {MAX_PATTERN} characters")
        found = re2.compile(text, _RE2)
    except (re2.error, ValueError) as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise InvalidRequest(f"topic_pattern: {why}", field="topic_pattern") from None
    return lambda topic: found.fullmatch(topic) is not None


@router.get(f"{_INSTANCE}/subscription", summary="What the instance is subscribed to", openapi_extra=shapes.SUBSCRIBED)
async def subscription(request: Request, g: str, i: str) -> Response:
    with instances_of(service_of(request)).using(g, i) as instance:
        return json_response({"topics": instance.subscribed_topics()})


@router.delete(f"{_INSTANCE}/subscription", summary="Unsubscribe", status_code=204)
async def unsubscribe(request: Request, g: str, i: str) -> Response:
    with instances_of(service_of(request)).using(g, i) as instance:
        await instance.unsubscribe()
    return _done()


@router.post(f"{_INSTANCE}/assignments", status_code=204, openapi_extra=takes(models.Places))
async def assign(request: Request, g: str, i: str) -> Response:
    """Read these partitions, whatever the group does"""
    with instances_of(service_of(request)).using(g, i) as instance:
        instance.assign(await _places(request))
    return _done()


@router.get(f"{_INSTANCE}/assignments", summary="The partitions that the instance reads", openapi_extra=shapes.ASSIGNED)
async def assignments(request: Request, g: str, i: str) -> Response:
    with instances_of(service_of(request)).using(g, i) as instance:
        return json_response({"partitions": [models.shown(where) for where in _sorted(instance)]})


def _sorted(instance: Instance) -> list[TopicPartition]:
    return sorted(instance.positions.assigned, key=lambda one: (one.topic, one.partition))


async def _places(request: Request) -> list[TopicPartition]:
    body = await body_of(request, service_of(request), _PLACES)
    for topic in {place.topic for place in body.partitions}:
        check_topic(request, Operation.CONSUME, topic)
    return [place.where for place in body.partitions]


# --- records -------------------------------------------------------------------------------------


@router.get(
    f"{_INSTANCE}/records",
    summary="Poll: records of the assigned partitions",
    response_class=Response,
    openapi_extra=shapes.RECORDS,
)
async def records(request: Request, g: str, i: str) -> Response:
    service = service_of(request)
    with instances_of(service).using(g, i) as instance:
        media = check_accept(request, instance.options.format)
        given = request.query_params
        timeout_ms = whole_number(given, "timeout", instance.options.timeout_ms)
        max_bytes = whole_number(given, "max_bytes", MAX_BYTES) or 0
        wait_s = min(MAX_WAIT_MS, timeout_ms or 0) / 1000
        for topic in {where.topic for where in instance.positions.assigned}:
            check_topic(request, Operation.CONSUME, topic)
            if await sit_out(request, service, topic, wait_s):
                return await answer(request, (), instance.options.format, media)
        found = await instance.poll(wait_s, min(MAX_BYTES, max_bytes) if max_bytes > 0 else MAX_BYTES)
        return await answer(request, found, instance.options.format, media)


# --- positions -----------------------------------------------------------------------------------


@router.get(f"{_INSTANCE}/positions", summary="The next offsets to be handed out", openapi_extra=shapes.POSITIONS)
async def positions(request: Request, g: str, i: str) -> Response:
    with instances_of(service_of(request)).using(g, i) as instance:
        await instance.offsets.place_all()
        at = instance.positions.current()
        return json_response(
            {"offsets": [models.shown(where, offset=at[where]) for where in _sorted(instance) if where in at]}
        )


@router.post(f"{_INSTANCE}/positions", status_code=204, openapi_extra=takes(models.Seeks))
async def seek(request: Request, g: str, i: str) -> Response:
    """Go on at these offsets, or at the first record of these times"""
    service = service_of(request)
    with instances_of(service).using(g, i) as instance:
        body = await body_of(request, service, _SEEKS)
        for one in body.offsets:
            instance.positions.seek(one.where, one.offset)
        for time in body.timestamps:
            instance.positions.seek(
                time.where, await instance.offsets.offset_at(time.where, models.milliseconds(time.timestamp))
            )
    return _done()


@router.post(f"{_INSTANCE}/positions/beginning", status_code=204, openapi_extra=takes(models.Places))
async def seek_to_beginning(request: Request, g: str, i: str) -> Response:
    """Go on at the beginning"""
    return await _seek_to(request, g, i, 0)


@router.post(f"{_INSTANCE}/positions/end", status_code=204, openapi_extra=takes(models.Places))
async def seek_to_end(request: Request, g: str, i: str) -> Response:
    """Go on at the end"""
    return await _seek_to(request, g, i, 1)


async def _seek_to(request: Request, group_id: str, name: str, which: int) -> Response:
    with instances_of(service_of(request)).using(group_id, name) as instance:
        for where in await _places(request):
            instance.positions.seek(where, await instance.offsets.end_of(where, which))
    return _done()


# --- commits -------------------------------------------------------------------------------------


@router.post(
    f"{_INSTANCE}/offsets", summary="Commit", openapi_extra=takes(models.Offsets, always=False, **shapes.COMMITTED_NOW)
)
async def commit(request: Request, g: str, i: str) -> Response:
    """Without a body: all that was handed out. Otherwise the last offset that was dealt with, for each partition"""
    service = service_of(request)
    with instances_of(service).using(g, i) as instance:
        if await request.body():
            body = await body_of(request, service, _OFFSETS)
            for topic in {one.topic for one in body.offsets}:
                check_topic(request, Operation.CONSUME, topic)
            wanted = {one.where: (one.offset + 1, one.metadata or "") for one in body.offsets}
        else:
            wanted = {where: (offset, "") for where, offset in instance.positions.current().items()}
        await instance.commit(wanted)
    return json_response(
        [models.shown(where, offset=offset, metadata=text) for where, (offset, text) in wanted.items()]
    )


@router.get(f"{_INSTANCE}/offsets", summary="What the group has committed", openapi_extra=shapes.COMMITTED)
async def committed(request: Request, g: str, i: str) -> Response:
    """Of the partitions that the body names, or that the instance reads"""
    with instances_of(service_of(request)).using(g, i) as instance:
        places = await _places(request) if await request.body() else _sorted(instance)
        found = await instance.offsets.committed()
        return json_response(
            {
                "offsets": [
                    models.shown(where, offset=found[where].offset, metadata=found[where].metadata)
                    for where in places
                    if where in found
                ]
            }
        )
