"""Consumer groups put into `__consumer_offsets` as a coordinator would have stored them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.log_store.engine import LogStore
from sluice.log_store.topic import CONSUMER_OFFSETS
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.loading import OFFSETS_CONFIGS
from sluice.streaming.coordinator.records import Committed, batch_of, encode_committed, group_key, offset_key
from sluice.streaming.groups import GroupMetadata, partition_of_group
from sluice.streaming.groups.metadata import encode_metadata
from sluice.streaming.groups.state import Member, ProtocolOffer
from sluice.streaming.groups.subscription import Assignment, Subscription, encode_assignment, encode_subscription


def member(name: str, topics: Sequence[str], owned: Sequence[tuple[str, int]], protocol: str = "range") -> Member:
    return Member(
        member_id=name,
        instance_id=None,
        client_id="c",
        client_host="h",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocols=(ProtocolOffer(protocol, encode_subscription(Subscription(tuple(topics)))),),
        assignment=encode_assignment(Assignment(tuple(TopicPartition(*one) for one in owned))),
    )


def metadata(*members: Member, generation: int = 3, protocol: str = "range", since_ms: int = 0) -> GroupMetadata:
    return GroupMetadata(
        generation=generation,
        protocol_type="consumer",
        protocol=protocol if members else None,
        leader=members[0].member_id if members else None,
        members=members,
        current_state_timestamp_ms=since_ms,
    )


def store_group(
    log: LogStore,
    group: str,
    stored: GroupMetadata | None = None,
    offsets: Mapping[TopicPartition, Committed] | None = None,
) -> None:
    meta = log.internal_topic(CONSUMER_OFFSETS, partitions=3, configs=OFFSETS_CONFIGS)
    rows = [] if stored is None else [(group_key(group), encode_metadata(stored))]
    rows += [(offset_key(group, where), encode_committed(one)) for where, one in (offsets or {}).items()]
    led = log.partition(meta.name, partition_of_group(group, meta.partitions))
    led.append(batch_of(rows, log.runtime.clock.wall_ms())).result(60)
