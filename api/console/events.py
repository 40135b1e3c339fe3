"""`GET /console/events`: server-sent events, one a second, of what the token may see. A stream costs no thread.

Pages read it with `fetch`, because an EventSource cannot send the header Authorization. `?topic=` and `?group=` ask
for details of one of each, `?samples=N` ends it after so many. Events: `history` (points of the past, first), `sample`,
`end` (the service stops), `refused` (the token is not valid any more).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sluice.api.auth import Principal, principal_of
from sluice.api.console.assets import POLICY, check_enabled
from sluice.api.console.figures import Json, Sample, Sight, told
from sluice.api.console.gathering import GroupLook
from sluice.api.console.pulse import Pulse
from sluice.api.errors import body_of
from sluice.api.groups_requests import all_ready
from sluice.api.groups_resources import partitions_of
from sluice.api.limits import whole_number
from sluice.api.service import Service, service_of
from sluice.api.static_files import guarding
from sluice.log_store.errors import SluiceError
from sluice.log_store.tokens_grants import Resource

MEDIA = "text/event-stream"
DETAILS = 1_000
"""Partitions and members that a sample lists one by one."""


async def events(request: Request) -> Response:
    check_enabled(request)
    service = service_of(request)
    pulse = service.pulse
    samples = whole_number(request.query_params, "samples", low=1)
    sight = _sight(principal_of(request), request.query_params.get("topic"), request.query_params.get("group"))
    if sight.topic is not None and sight.topic_visible(sight.topic):
        service.log.topic(sight.topic)  # a name that is none is refused before the stream begins
    with suppress(SluiceError):  # samples say why there are no groups
        await all_ready(service)
    pulse.check_room()
    return _Stream(service, pulse, sight, request.scope, samples)


def _sight(principal: Principal, topic: str | None, group: str | None) -> Sight:
    grants = principal.grants
    return Sight(
        lambda name: grants.allow(None, Resource.TOPIC, name),
        lambda name: grants.allow(None, Resource.GROUP, name),
        topic,
        group,
    )


class _Stream(Response):
    def __init__(self, service: Service, pulse: Pulse, sight: Sight, scope: Scope, samples: int | None) -> None:
        super().__init__(None, 200, {**guarding(POLICY), "Cache-Control": "no-store"}, MEDIA)
        del self.headers["content-length"]  # it ends when it ends
        self._service = service
        self._pulse = pulse
        self._sight = sight
        self._scope = scope
        self._left = samples

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            with self._pulse.watching():
                await self._tell(send, gone)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _tell(self, send: Send, gone: asyncio.Future[None]) -> None:
        past = self._pulse.samples()
        points = [told(before, after, self._sight, lists=False) for before, after in pairwise(past)]
        await _send(send, "history", {"points": points})
        # The newest one at once, unless it is from when somebody else watched.
        number = past[-1].number - int(self._pulse.fresh) if past else 0
        while self._left != 0:
            if not await _unless(gone, self._pulse.next(number)):
                return
            refused = self._refused()
            if self._pulse.stopping or refused is not None:
                await _send(send, "end" if refused is None else "refused", refused or {}, more=False)
                return
            newest = self._pulse.samples()[-2:]
            number = newest[-1].number
            self._left = None if self._left is None else self._left - 1
            await _send(send, "sample", self._sample(newest), more=self._left != 0)

    def _refused(self) -> Json | None:
        """A token may be revoked, or expire, while it is used. What it may do never changes."""
        try:
            self._service.access.enter(self._scope)
        except SluiceError as error:
            body: Json = msgspec.to_builtins(body_of(error))
            return body
        return None

    def _sample(self, newest: list[Sample]) -> Json:
        before = newest[0] if len(newest) == 2 else None
        body = told(before, newest[-1], self._sight, lists=True)
        sight = self._sight
        if body.get("topic") is not None and sight.topic is not None:
            body["topic"]["list"] = _partitions(self._service, self._pulse, sight.topic)
        if body.get("group") is not None and sight.group is not None:
            look = self._pulse.groups.get(sight.group)
            body["group"] |= {} if look is None else _group(look, sight)
        return body


async def _unless(gone: asyncio.Future[None], wait: Any) -> bool:
    """Await it; False as soon as nobody is there to be told."""
    waiting = asyncio.ensure_future(wait)
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        return not gone.done()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, event: str, body: Json, *, more: bool = True) -> None:
    data = b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(body))
    await send({"type": "http.response.body", "body": data, "more_body": more})


# --- details -------------------------------------------------------------------------------------


def _partitions(service: Service, pulse: Pulse, topic: str) -> list[Json]:
    """Those in use; the others follow as they are loaded."""
    try:
        meta = service.log.topic(topic)
        led = [service.log.partition(topic, number) for number in range(min(meta.partitions, DETAILS))]
    except SluiceError:
        return []
    return [
        {
            "partition": one.ref.partition,
            "log_start_offset": one.log_start,
            "high_watermark": one.high_watermark,
            "log_end_offset": one.log_end,
            "size_bytes": pulse.gatherer.size_of(one),
            "version": one.state.version,
            "problem": None if one.problem is None else one.problem.message,
        }
        for one in led
        if one.opened
    ]


def _group(look: GroupLook, sight: Sight) -> Json:
    lags = [
        {
            "topic": lag.where.topic,
            "partition": lag.where.partition,
            "current_offset": lag.current_offset,
            "log_end_offset": lag.log_end_offset,
            "lag": lag.lag,
            "lag_seconds": lag.lag_seconds,
            "status": lag.status,
            "member": None if lag.member is None else lag.member.member_id,
        }
        for lag in look.lags
        if sight.topic_visible(lag.where.topic)
    ]
    group = look.view.group
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.client_host,
            "partitions": list(_pairs(member, sight)),
        }
        for member in list(group.members.values())[:DETAILS]
    ]
    return {
        "generation": group.generation,
        "assignor": group.protocol,
        "lags": lags[:DETAILS],
        "member_list": members,
    }


def _pairs(member: Any, sight: Sight) -> Iterable[tuple[str, int]]:
    return ((one.topic, one.partition) for one in partitions_of(member) if sight.topic_visible(one.topic))
