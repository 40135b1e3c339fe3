"""The group protocol over HTTP: join, sync, heartbeat, leave. Joins and syncs wait without a thread."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sluice.api import group_models as models
from sluice.api.auth import check_topic
from sluice.api.errors import status_of
from sluice.api.groups_requests import answered, body_of, granted, group_of, json_response, ready
from sluice.api.routing import RawRoute
from sluice.log_store.errors import InvalidRequest, MessageTooLarge
from sluice.log_store.tokens_grants import Operation
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups import Refusal, events
from sluice.streaming.groups.effects import Joined, Leaver, Left, Synced
from sluice.streaming.groups.state import ProtocolOffer
from sluice.streaming.groups.subscription import CONSUMER, Assignment, decode_subscription, encode_assignment

MAX_BYTES = 1 << 20
"""One subscription, or the assignment of one member."""
NAME_CHARS = 200
"""Of a client's name that its member id begins with."""

_JOIN = msgspec.json.Decoder(models.Join)
_SYNC = msgspec.json.Decoder(models.Sync)
HEARTBEAT_DECODER = msgspec.json.Decoder(models.Heartbeat)
_LEAVE = msgspec.json.Decoder(models.Leave)


async def join(request: Request) -> Response:
    service, group_id = group_of(request)
    body = await body_of(request, service, _JOIN)
    protocols = tuple(_offer(request, body.protocol_type, offer) for offer in body.protocols)
    await ready(service, group_id, write=True)
    name = (body.group_instance_id or body.client_id or "consumer")[:NAME_CHARS]
    host = request.client.host if request.client else ""
    answer = await answered(
        request,
        service,
        group_id,
        lambda waiter: service.groups.join(
            group_id,
            events.Join(
                token=waiter,
                member_id=body.member_id,
                new_member_id=f"{name}-{uuid.uuid4()}",
                instance_id=body.group_instance_id,
                client_id=body.client_id,
                client_host=host,
                session_timeout_ms=body.session_timeout_ms,
                rebalance_timeout_ms=body.rebalance_timeout_ms,
                protocol_type=body.protocol_type,
                protocols=protocols,
            ),
        ),
    )
    joined = granted(answer)
    assert isinstance(joined, Joined)  # noqa: S101 - the machine answers a join with nothing else
    return json_response(_joined(joined))


def _offer(request: Request, protocol_type: str, offer: models.Offer) -> ProtocolOffer:
    """InvalidRequest for what is no subscription; AuthorizationFailed for topics that may not be read."""
    metadata = b"" if offer.metadata is None else _compact(offer.metadata, f"the metadata of {offer.name[:80]!r}")
    if protocol_type == CONSUMER:
        for topic in decode_subscription(metadata).topics:
            check_topic(request, Operation.CONSUME, topic)
    return ProtocolOffer(offer.name, metadata)


def _compact(value: Any, what: str) -> bytes:
    try:
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{what} cannot be stored: {error}"[:300]) from None
    if len(data) > MAX_BYTES:
        raise MessageTooLarge(f"{what} has {len(data)} bytes; at most {MAX_BYTES} are allowed", limit=MAX_BYTES)
    return data


def _joined(joined: Joined) -> models.Joined:
    return models.Joined(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        member_id=joined.member_id,
        skip_assignment=joined.skip_assignment,
        members=[
            models.JoinedMember(member.member_id, member.instance_id, msgspec.Raw(member.metadata or b"null"))
            for member in joined.members
        ],
    )


async def sync(request: Request) -> Response:
    service, group_id = group_of(request)
    body = await body_of(request, service, _SYNC)
    if body.strategy is not None and body.assignments:
        raise InvalidRequest("strategy: must not come with assignments", field="strategy")
    assignments = None if body.assignments is None else _assignments(body.assignments)
    await ready(service, group_id, write=True)
    answer = await answered(
        request,
        service,
        group_id,
        lambda waiter: service.groups.sync(
            group_id,
            events.Sync(
                token=waiter,
                member_id=body.member_id,
                generation=body.generation_id,
                instance_id=body.group_instance_id,
                protocol_type=body.protocol_type,
                protocol=body.protocol_name,
                strategy=body.strategy,
                # An empty list is what followers send, and a leader that assigns nothing.
                assignments=assignments if assignments or body.strategy is None else None,
            ),
        ),
        in_thread=body.strategy is not None,
    )
    synced = granted(answer)
    assert isinstance(synced, Synced)  # noqa: S101 - the machine answers a sync with nothing else
    return json_response(models.Synced(synced.protocol_type, synced.protocol, assignment_shown(synced.assignment)))


def _assignments(given: Sequence[models.MemberAssignment]) -> dict[str, bytes]:
    return {one.member_id: _assignment(one) for one in given}


def _assignment(one: models.MemberAssignment) -> bytes:
    what = f"the assignment of {one.member_id[:80]!r}"
    if isinstance(one.assignment, dict):
        return _compact(one.assignment, what)
    data = encode_assignment(Assignment(tuple(TopicPartition(*pair) for pair in one.assignment)))
    if len(data) > MAX_BYTES:
        raise MessageTooLarge(f"{what} has {len(data)} bytes; at most {MAX_BYTES} are allowed", limit=MAX_BYTES)
    return data


def assignment_shown(data: bytes) -> Any:
    """Partitions as a plain list; what is more than that as it was given."""
    if not data:
        return []
    found = json.loads(data)
    return found["partitions"] if isinstance(found, dict) and found.keys() == {"partitions"} else found


async def heartbeat(request: Request) -> Response:
    service, group_id = group_of(request)
    body = await body_of(request, service, HEARTBEAT_DECODER)
    await ready(service, group_id)
    beat = events.Heartbeat(member_id=body.member_id, generation=body.generation_id, instance_id=body.group_instance_id)
    granted(service.groups.say(group_id, beat))
    return json_response({})


async def leave(request: Request) -> Response:
    service, group_id = group_of(request)
    body = await body_of(request, service, _LEAVE)
    await ready(service, group_id, write=True)
    leaving = tuple(events.Leaving(member_id=one.member_id, instance_id=one.group_instance_id) for one in body.members)
    left = granted(service.groups.say(group_id, events.Leave(leaving)))
    assert isinstance(left, Left)  # noqa: S101 - the machine answers a leave with nothing else
    return json_response(models.Left([_leaver(one) for one in left.members]))


def _leaver(one: Leaver) -> models.Leaver:
    refusal: Refusal | None = one.refusal
    error = None if refusal is None else refusal.exception()
    code, name = (None, None) if error is None else (status_of(error)[1], error.error)
    return models.Leaver(one.member_id, one.instance_id, code, name)


_MEMBERS = "/v3/clusters/{c}/consumer-groups/{g}/members"
HEARTBEAT_ROUTE = RawRoute("POST", f"{_MEMBERS}:heartbeat", heartbeat)
ROUTES = [
    HEARTBEAT_ROUTE,
    RawRoute("POST", f"{_MEMBERS}:join", join),
    RawRoute("POST", f"{_MEMBERS}:sync", sync),
    RawRoute("POST", f"{_MEMBERS}:leave", leave),
]
