"""Quotas at the door: who asks, may they, and what it counts.

Refused is refused before the body is read. `scope["sluice.throttle_ms"]` becomes the header `Sluice-Throttle-Time-Ms`.
"""

from __future__ import annotations

import re
from typing import NoReturn

from starlette.requests import Request
from starlette.types import Scope

from sluice.api.errors import clean
from sluice.api.quotas_meters import Client
from sluice.api.service import Service
from sluice.log_store.catalog_quotas import CONSUMER_RATE, MUTATION_RATE, PRODUCER_RATE
from sluice.log_store.errors import InvalidRequest, Overloaded

ANONYMOUS, DEFAULT_CLIENT = "anonymous", "default"
_CLIENT_ID = re.compile(rb"[A-Za-z0-9._-]{1,100}")
EARLY_MS = 5
"""By so much a timer may ring too early, at most."""


def checked_client_id(given: bytes) -> str:
    """The header `Sluice-Client-Id`."""
    if not _CLIENT_ID.fullmatch(given):
        raise InvalidRequest(
            "Sluice-Client-Id: must have 1 to 100 letters, digits, '.', '_' or '-'", field="Sluice-Client-Id"
        )
    return given.decode()


def client_of(scope: Scope) -> Client:
    """Who asks: the name of the token, if there is one, and the client id that was sent."""
    return Client(scope.get("sluice.user") or ANONYMOUS, scope.get("sluice.client_id") or DEFAULT_CLIENT)


def admit_produce(request: Request, service: Service) -> None:
    """Refuse a produce request whose sender is over a quota. Costs one look where there are no quotas."""
    scope = request.scope
    if not service.meters.active or "sluice.admitted" in scope:
        return
    scope["sluice.admitted"] = True
    topic = str(request.path_params.get("t", ""))
    _refuse_muted(scope, service, PRODUCER_RATE, topic)
    if service.topics.auto_create_topics_enable and service.log.catalog.state.find(topic) is None:
        admit_mutation(request, service, service.topics.num_partitions)


def count_produced(request: Request, service: Service, size: int) -> int:
    """Bytes of a produce request as they were sent. The throttle time, in milliseconds."""
    if not service.meters.active:
        return 0
    return _count(request.scope, service, PRODUCER_RATE, str(request.path_params.get("t", "")), size)


def admit_produce_to(request: Request, service: Service, topic: str) -> None:
    """The same for a topic that stands in the body."""
    if not service.meters.active:
        return
    _refuse_muted(request.scope, service, PRODUCER_RATE, topic)
    if service.topics.auto_create_topics_enable and service.log.catalog.state.find(topic) is None:
        admit_mutation(request, service, service.topics.num_partitions)


def count_produced_to(request: Request, service: Service, topic: str, size: int) -> None:
    if service.meters.active:
        _count(request.scope, service, PRODUCER_RATE, topic, size)


async def sit_out(request: Request, service: Service, topic: str, max_wait_s: float) -> int:
    """A reader over its quota waits as a poll waits for records, for as long as it asked to. What is left of the
    throttle time then, in milliseconds: with anything left it gets no records."""
    if not service.meters.active:
        return 0
    clock, who = service.log.runtime.clock, client_of(request.scope)
    wait_ms = service.meters.wait_ms(CONSUMER_RATE, who, topic, clock.boottime())
    if wait_ms:
        await service.waiting.pause(min(wait_ms / 1000, max_wait_s))
        wait_ms = service.meters.wait_ms(CONSUMER_RATE, who, topic, clock.boottime())
    if 0 < wait_ms <= EARLY_MS and max_wait_s > 0:  # timers may ring a moment early
        await service.waiting.pause(2 * EARLY_MS / 1000)
        wait_ms = service.meters.wait_ms(CONSUMER_RATE, who, topic, clock.boottime())
    if wait_ms:
        tell_throttled(request.scope, service, CONSUMER_RATE, wait_ms)
    return wait_ms


def count_fetched(request: Request, service: Service, topic: str, size: int) -> int:
    if not service.meters.active:
        return 0
    return _count(request.scope, service, CONSUMER_RATE, topic, size)


def admit_mutation(request: Request, service: Service, mutations: int) -> None:
    """`mutations`: partitions that are created or deleted. Kafka's rule: a burst passes, then they are refused."""
    if not service.meters.active:
        return
    _refuse_muted(request.scope, service, MUTATION_RATE, None)
    now = service.log.runtime.clock.boottime()
    service.meters.charge(MUTATION_RATE, client_of(request.scope), None, mutations, now)


def _count(scope: Scope, service: Service, kind: str, topic: str, size: int) -> int:
    now = service.log.runtime.clock.boottime()
    wait_ms = service.meters.charge(kind, client_of(scope), topic, size, now)
    if wait_ms:
        tell_throttled(scope, service, kind, wait_ms)
    return wait_ms


def tell_throttled(scope: Scope, service: Service, kind: str, wait_ms: int) -> None:
    scope["sluice.throttle_ms"] = wait_ms
    service.metrics.throttled(kind)


def _refuse_muted(scope: Scope, service: Service, kind: str, topic: str | None) -> None:
    who, now = client_of(scope), service.log.runtime.clock.boottime()
    wait_ms = service.meters.wait_ms(kind, who, topic, now)
    if wait_ms:
        tell_throttled(scope, service, kind, wait_ms)
        _refuse(kind, who, wait_ms)


def _refuse(kind: str, who: Client, wait_ms: int) -> NoReturn:
    raise Overloaded(
        clean(f"{kind} of user {who.user!r}, client {who.client_id!r} or the topic is used up: wait {wait_ms} ms"),
        retry_after_s=-(-wait_ms // 1000),
        throttle_time_ms=wait_ms,
    )
