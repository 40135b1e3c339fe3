"""From decoded records to offsets: hooks, rules of the topic, partitions, append, acknowledgement.

Everything here happens on the event loop, unless it would wait: a topic that is to be created, a partition that is
not open yet, hooks of the deployer, and bodies so large that they would hold up everybody else.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from sluice.api.limits import room_for_parts
from sluice.api.service import Service
from sluice.api.waiting import settled
from sluice.ingest import partitioner
from sluice.ingest.hooks import NO_HOOKS, HookChain
from sluice.ingest.limits import IngestLimits
from sluice.ingest.partitioner import Part
from sluice.ingest.request import NOT_GIVEN, Decoded, Int64s
from sluice.ingest.validate import validate
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.errors import InvalidRequest, InvalidTopic, RequestTimedOut, SluiceError
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.producers import null_key_start
from sluice.log_store.topic import TopicConfig
from sluice.log_store.topic_log import TopicAppend
from sluice.log_store.values import ProducerStamp

LARGE_BYTES = 512 << 10
"""Bodies from which on decoding takes long enough to be given to a thread."""
LARGE_COLUMNS = 4 << 20
"""The same for what is in columns already: a millisecond of work, where handing it over costs as much in switches."""
LONGEST_SPELLING, SPELLING_SLACK = 8, 1 << 20
"""Bytes of JSON for one that is stored: of base64, each character escaped. And for names, numbers, white space."""


@dataclass(frozen=True, slots=True)
class PartOutcome:
    indices: Int64s
    """Place of each record in the request."""
    result: AppendResult | SluiceError


@dataclass(frozen=True, slots=True)
class Outcome:
    count: int
    acks: Acks
    parts: Mapping[int, PartOutcome] = field(default_factory=dict)
    below_window: bool = False
    """A repeat of something so old that its offsets are forgotten: it was done long ago."""

    @property
    def duplicate(self) -> bool:
        """All of it was in the log already."""
        results = [part.result for part in self.parts.values()]
        return self.below_window or all(isinstance(one, AppendResult) and one.duplicate for one in results)

    @property
    def first_error(self) -> SluiceError | None:
        return next((part.result for part in self.parts.values() if isinstance(part.result, SluiceError)), None)

    @property
    def all_failed(self) -> bool:
        return bool(self.parts) and all(isinstance(part.result, SluiceError) for part in self.parts.values())


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes and how it is to be acknowledged."""

    topic: str
    partition: int | None
    """None: the partitioner decides."""
    acks: Acks | None
    """None: as the topic says, else the server."""
    timeout_s: float
    stamp: ProducerStamp | None = None


async def topic_of(service: Service, name: str) -> TopicMeta:
    """The topic of a produce request, created where that is allowed."""
    found = service.log.catalog.state.find(name)
    if found is None:
        found = await service.blocking(lambda: service.log.topic(name, create=True))
    return found


def limits_of(service: Service, topic: str) -> IngestLimits:
    """What a large body may ask for: a text that is too long for the topic, however it is spelled, is never parsed."""
    meta, limits = service.log.catalog.state.find(topic), service.limits
    config = TopicConfig() if meta is None else meta.config()
    chain = service.hooks.chain(config)
    if chain.interceptors or chain.serializer is not None:  # they may make a record smaller
        return limits
    longest = LONGEST_SPELLING * config.max_message_bytes + SPELLING_SLACK
    return replace(limits, max_text_bytes=min(longest, limits.max_text_bytes))


async def append(service: Service, target: Target, decoded: Decoded) -> Outcome:
    """Refusals of the whole request are raised; those of a partition are in the outcome."""
    meta = await topic_of(service, target.topic)
    if meta.internal:  # before its rules for records are told
        raise InvalidTopic(f"{meta.name!r} is an internal topic: clients may not write to it", topic=meta.name)
    meta.partition(target.partition or 0)
    config = service.log.partition(meta.name, 0).config
    chain = service.hooks.chain(config)
    now_ms = service.log.runtime.clock.wall_ms()

    def check() -> Decoded:
        ready = chain.transform(meta.name, decoded)
        validate(ready.batch, config, now_ms)
        return ready

    direct = chain is NO_HOOKS and decoded.batch.nbytes < LARGE_COLUMNS
    checked = check() if direct else await service.reading(check)
    acks = target.acks if target.acks is not None else default_acks(service, config)
    if target.partition is None:
        with room_for_parts(service, min(checked.count, meta.partitions)):
            return await _to_topic(service, target, checked, chain, meta, acks)
    return await _to_partition(service, target, checked, target.partition, acks)


def default_acks(service: Service, config: TopicConfig) -> Acks:
    return Acks.parse(config.acks or service.topics.default_acks)


async def _to_partition(service: Service, target: Target, decoded: Decoded, number: int, acks: Acks) -> Outcome:
    wished = decoded.explicit_partitions
    if wished is not None and bool(((wished != NOT_GIVEN) & (wished != number)).any()):
        raise InvalidRequest("records.partition: must be the partition of the address", field="records.partition")
    log = service.log

    def hand_over() -> Future[AppendResult]:
        return log.append(target.topic, number, decoded.batch, acks=acks, stamp=target.stamp)

    future = hand_over() if log.partition(target.topic, number).ready else await service.blocking(hand_over)
    parts = {number: Part(decoded.batch, np.arange(decoded.count))}
    return await _outcome(service, target, decoded, acks, parts, {number: future})


async def _to_topic(
    service: Service, target: Target, decoded: Decoded, chain: HookChain, meta: TopicMeta, acks: Acks
) -> Outcome:
    log, stamp = service.log, target.stamp
    cuts: dict[int, Mapping[int, Part]] = {}

    def cut(n: int) -> Mapping[int, Part]:
        if n not in cuts:
            start = random.randrange(n) if stamp is None else null_key_start(stamp.producer_id, stamp.sequence, n)
            cuts[n] = partitioner.split(decoded.batch, chain.assign(meta.name, decoded, n, start))
        return cuts[n]

    def split(n: int) -> Mapping[int, pa.RecordBatch]:
        return {number: part.batch for number, part in cut(n).items()}

    def hand_over() -> TopicAppend:
        return log.append_topic(meta.name, split, acks=acks, stamp=stamp)

    # The windows of a topic need all of its partitions; a plain request only those that it goes to.
    direct = decoded.batch.nbytes < LARGE_COLUMNS and chain is NO_HOOKS
    concerned = range(meta.partitions) if stamp is not None or not direct else cut(meta.partitions)
    ready = direct and all(log.partition(meta.name, number).ready for number in concerned)
    appended = hand_over() if ready else await service.blocking(hand_over)
    if appended.below_window:
        return Outcome(decoded.count, acks, below_window=True)
    return await _outcome(service, target, decoded, acks, cut(appended.partitions), appended.parts)


async def _outcome(
    service: Service,
    target: Target,
    decoded: Decoded,
    acks: Acks,
    parts: Mapping[int, Part],
    futures: Mapping[int, Future[AppendResult]],
) -> Outcome:
    await settled(service.bell, list(futures.values()), target.timeout_s)
    outcome = Outcome(
        decoded.count,
        acks,
        {number: PartOutcome(parts[number].indices, _result(future)) for number, future in futures.items()},
    )
    records = sum(len(part.indices) for part in outcome.parts.values() if isinstance(part.result, AppendResult))
    if records:
        service.metrics.produced(target.topic, records, decoded.batch.nbytes * records // max(1, decoded.count))
    return outcome


def _result(future: Future[AppendResult]) -> AppendResult | SluiceError:
    if not future.done():
        return too_late()
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, SluiceError):
        return error
    raise error


def too_late() -> RequestTimedOut:
    return RequestTimedOut("the acknowledgement did not come in time: the records may still be committed")
