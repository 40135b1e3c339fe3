"""A reset on a live log: looks up what the rules in `reset` choose from. Blocks: asked from a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.records import Committed
from sluice.streaming.coordinator.reset import (
    PlanRow,
    Position,
    Scenario,
    chosen,
    flag,
    in_order,
    parse_scope,
    plan,
    whole_number,
)
from sluice.streaming.coordinator.reset_texts import datetime_ms, duration_ms, file_offsets


@dataclass(frozen=True, slots=True)
class ResetRequest:
    scenario: Scenario
    number: int = 0
    time_ms: int = 0
    offsets: Mapping[TopicPartition, int] | None = None
    """Of from_file, which names its partitions itself."""
    topics: Sequence[str] = ()
    all_topics: bool = False


def parse_request(
    given: Mapping[Scenario, object], topics: Sequence[str], *, all_topics: bool, group_id: str, now_ms: int
) -> ResetRequest:
    scenario, value = chosen(given)
    if scenario is Scenario.FROM_FILE:
        if topics or all_topics:
            raise InvalidRequest("topics: from_file names its partitions itself", field="topics")
        return ResetRequest(scenario, offsets=file_offsets(value, group_id))
    if bool(topics) == all_topics:
        raise InvalidRequest("topics: name some, or set all_topics, not both", field="topics")
    number = time_ms = 0
    if scenario in (Scenario.TO_OFFSET, Scenario.SHIFT_BY):
        number = whole_number(scenario, value)
    elif scenario is Scenario.TO_DATETIME:
        time_ms = datetime_ms(value)
    elif scenario is Scenario.BY_DURATION:
        time_ms = now_ms - duration_ms(value)
    else:
        flag(scenario, value)
    return ResetRequest(scenario, number, time_ms, None, tuple(topics), all_topics)


def scope(log: LogStore, request: ResetRequest, committed: Mapping[TopicPartition, Committed]) -> list[TopicPartition]:
    """UnknownTopicOrPartition for what there is not."""
    if request.offsets is not None:
        found = list(request.offsets)
    elif request.all_topics:
        found = list(committed)
    else:
        found = []
        for text in request.topics:
            topic, numbers = parse_scope(text)
            all_of_it = range(log.topic(topic).partitions)
            found += [TopicPartition(topic, number) for number in (all_of_it if numbers is None else numbers)]
    for where in found:
        log.topic(where.topic).partition(where.partition)
    return list(dict.fromkeys(found))


def planned(
    log: LogStore,
    request: ResetRequest,
    where: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
) -> list[PlanRow]:
    positions = {one: _position(log, request, one, committed.get(one)) for one in where}
    return in_order(plan(request.scenario, positions, request.number, request.offsets))


def _position(log: LogStore, request: ResetRequest, where: TopicPartition, committed: Committed | None) -> Position:
    reads = PartitionReads(log.partition(where.topic, where.partition))
    start, latest = reads.earliest().offset, reads.latest().offset
    found = reads.at_time(request.time_ms).offset if request.scenario.by_time else -1
    return Position(start, latest, None if committed is None else committed.offset, None if found < 0 else found)
