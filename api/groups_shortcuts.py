"""The shortcut of plain commits and heartbeats: what members send most, answered without a task each.

Whatever is not plain, or would be refused, takes the ordinary way, which knows all refusals. Nothing was done then: a
commit is one decision, and a heartbeat may be repeated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import msgspec

from sluice.api import group_models as models
from sluice.api.auth import Principal
from sluice.api.errors import error_response
from sluice.api.groups_offsets import COMMIT_DECODER, COMMIT_ROUTE, judged, outcomes
from sluice.api.groups_protocol import HEARTBEAT_DECODER, HEARTBEAT_ROUTE
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.api.shortcuts import Answer, Headers, Recognise, Reply
from sluice.api.small_produce import JSON_HEAD, PLAIN
from sluice.log_store.errors import RequestTimedOut, SluiceError
from sluice.log_store.tokens_grants import Operation, Resource
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups import Refusal
from sluice.streaming.groups.events import Commit, Heartbeat

SMALL_BYTES = 64 << 10
_ADDRESS = re.compile(
    rb"/v3/clusters/([A-Za-z0-9-]{1,64})/consumer-groups/([A-Za-z0-9._-]{1,249})/(offsets|members:heartbeat)"
)
_ALIVE = Reply(200, JSON_HEAD, b"{}")


class _Plain:
    """What both have in common."""

    method = "POST"
    _ROUTE: RawRoute

    def __init__(self, service: Service, params: Mapping[str, str], principal: Principal) -> None:
        self._service = service
        self._principal = principal
        self.params = params

    @property
    def route(self) -> RawRoute:
        return self._ROUTE


class PlainHeartbeat(_Plain):
    _ROUTE = HEARTBEAT_ROUTE

    def begin(self, body: bytes, answer: Answer) -> Callable[[], None] | None:
        answer(_ALIVE if self._is_good(body) else None)
        return None

    def _is_good(self, body: bytes) -> bool:
        groups, group_id = self._service.groups, self.params["g"]
        try:
            said = HEARTBEAT_DECODER.decode(body)
            beat = Heartbeat(
                member_id=said.member_id, generation=said.generation_id, instance_id=said.group_instance_id
            )
            return groups.opening(group_id) is None and not isinstance(groups.say(group_id, beat), Refusal)
        except (SluiceError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False


class PlainCommit(_Plain):
    _ROUTE = COMMIT_ROUTE

    def begin(self, body: bytes, answer: Answer) -> Callable[[], None] | None:
        try:
            said = COMMIT_DECODER.decode(body)
            if not self._commit(said, answer):
                answer(None)
        except (SluiceError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            answer(None)
        return None  # what was accepted is committed, whoever waits for it

    def _commit(self, said: models.CommitOffsets, answer: Answer) -> bool:
        service, group_id, grants = self._service, self.params["g"], self._principal.grants
        if not said.offsets or service.groups.opening(group_id, write=True) is not None:
            return False
        if not all(grants.allow(Operation.CONSUME, Resource.TOPIC, row.topic_name) for row in said.offsets):
            return False
        offsets, errors = judged(service, said)
        if errors:
            return False
        loop = asyncio.get_running_loop()
        service.bell.attach(loop)
        waiting = _Waiting(answer, [TopicPartition(row.topic_name, row.partition_id) for row in said.offsets])
        who = Commit(member_id=said.member_id, generation=said.generation_id, instance_id=said.group_instance_id)

        def done(error: SluiceError | None) -> None:
            service.bell.ring(partial(waiting.told, error))

        service.groups.commit(group_id, who, offsets, done, service.flush_soon)
        waiting.timer = loop.call_later(service.settings.request_timeout_ms / 1000, waiting.too_late)
        return True


class _Waiting:
    """A commit on its way; on the event loop."""

    __slots__ = ("_answer", "_places", "timer")

    def __init__(self, answer: Answer, places: list[TopicPartition]) -> None:
        self._answer: Answer | None = answer
        self._places = places
        self.timer: asyncio.TimerHandle | None = None

    def too_late(self) -> None:
        self.told(RequestTimedOut("it could not be committed in time; whether it holds is not known"))

    def told(self, error: SluiceError | None) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self.timer is not None:
            self.timer.cancel()
        if error is None:
            answer(Reply(200, JSON_HEAD, outcomes(self._places, {})))
            return
        response = error_response(error)
        head = b"".join(
            name + b": " + value + b"\r\n" for name, value in response.raw_headers if name != b"content-length"
        )
        answer(Reply(response.status_code, head, bytes(response.body), error.error))


def recogniser(service: Service) -> Recognise:
    kinds: Mapping[bytes, type[PlainCommit] | type[PlainHeartbeat]] = {
        b"offsets": PlainCommit,
        b"members:heartbeat": PlainHeartbeat,
    }

    @lru_cache(maxsize=4096)
    def address_of(url: bytes) -> tuple[type[PlainCommit] | type[PlainHeartbeat], Mapping[str, str]] | None:
        found = _ADDRESS.fullmatch(url)
        if found is None or found[1].decode() not in ("-", service.log.cluster_id):
            return None
        return kinds[found[3]], {"c": found[1].decode(), "g": found[2].decode()}

    def recognise(url: bytes, headers: Headers) -> PlainCommit | PlainHeartbeat | None:
        address = address_of(url) if url.startswith(b"/v3/") else None
        if address is None or not _is_plain(headers):
            return None
        try:
            principal = service.access.authenticate({"headers": headers})
        except SluiceError:
            return None
        return address[0](service, address[1], principal)

    return recognise


def either(*recognisers: Recognise) -> Recognise:
    """The first that knows the request."""

    def recognise(url: bytes, headers: Headers) -> object:
        for one in recognisers:
            found = one(url, headers)
            if found is not None:
                return found
        return None

    return recognise  # type: ignore[return-value]  # each of them is a Shortcut


def _is_plain(headers: Headers) -> bool:
    size = b""
    for name, value in headers:
        if name == b"content-length":
            size = value
        elif name == b"content-type":
            if value != b"application/json":
                return False
        elif name not in PLAIN and (name != b"accept" or value not in (b"*/*", b"application/json")):
            return False
    return size.isdigit() and len(size) < 8 and 0 < int(size) <= SMALL_BYTES
