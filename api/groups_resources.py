"""v3 shapes of groups, their members and their lag."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from sluice.api.resources import Json, Links
from sluice.log_store.errors import SluiceError
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import GroupView
from sluice.streaming.coordinator.lag import LagSummary, PartitionLag
from sluice.streaming.groups import Phase
from sluice.streaming.groups.state import Member
from sluice.streaming.groups.subscription import decode_assignment

STATES = {
    Phase.EMPTY: "EMPTY",
    Phase.PREPARING: "PREPARING_REBALANCE",
    Phase.COMPLETING: "COMPLETING_REBALANCE",
    Phase.STABLE: "STABLE",
    Phase.DEAD: "DEAD",
}
"""Confluent's names."""


class GroupLinks:
    """The resources of one group, as this client sees them."""

    def __init__(self, links: Links, group_id: str) -> None:
        self._links = links
        self._base = {"cluster_id": links.cluster_id, "consumer_group_id": group_id}
        # A group id is any text: it must not break out of its place in an address.
        self._path: tuple[object, ...] = ("consumer-groups", quote(group_id, safe=""))

    def _resource(self, kind: str, path: tuple[object, ...], **body: Any) -> Json:
        return self._links.resource(kind, (*self._path, *path), {**self._base, **body})

    def listed(self, kind: str, path: tuple[object, ...], rows: list[Json]) -> Json:
        return self._links.listed(kind, (*self._path, *path), rows)

    def group(self, view: GroupView) -> Json:
        group = view.group
        return self._resource(
            "KafkaConsumerGroup",
            (),
            is_simple=group.is_simple,
            partition_assignor=group.protocol or "",
            state=STATES[group.phase],
            type="CLASSIC",
            is_mixed_consumer_group=False,
            protocol_type=group.protocol_type,
            generation_id=group.generation,
            coordinator=self._links.related("brokers", 0),
            consumers=self._links.related(*self._path, "consumers"),
            lag_summary=self._links.related(*self._path, "lag-summary"),
        )

    def consumer(self, member: Member) -> Json:
        path = ("consumers", quote(member.member_id, safe=""))
        return self._resource(
            "KafkaConsumer",
            path,
            consumer_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.client_host,
            assignments=self._links.related(*self._path, *path, "assignments"),
        )

    def assignment(self, member: Member, where: TopicPartition) -> Json:
        place = (where.topic, "partitions", where.partition)
        return self._resource(
            "KafkaConsumerAssignment",
            ("consumers", quote(member.member_id, safe=""), "assignments", *place),
            consumer_id=member.member_id,
            topic_name=where.topic,
            partition_id=where.partition,
            partition=self._links.related("topics", *place),
            lag=self._links.related(*self._path, "lags", *place),
        )

    def lag(self, lag: PartitionLag) -> Json:
        return self._resource(
            "KafkaConsumerLag",
            ("lags", lag.where.topic, "partitions", lag.where.partition),
            topic_name=lag.where.topic,
            partition_id=lag.where.partition,
            current_offset=lag.current_offset,
            log_end_offset=lag.log_end_offset,
            lag=lag.lag,
            lag_seconds=lag.lag_seconds,
            status=lag.status,
            **_reader(lag.member),
        )

    def lag_summary(self, found: LagSummary) -> Json:
        worst = found.worst
        reader = {f"max_lag_{name}": value for name, value in _reader(worst.member if worst else None).items()}
        place = (worst.where.topic, "partitions", worst.where.partition) if worst else None
        return self._resource(
            "KafkaConsumerGroupLagSummary",
            ("lag-summary",),
            max_lag=worst.lag if worst else 0,
            total_lag=found.total,
            max_lag_topic_name=worst.where.topic if worst else None,
            max_lag_partition_id=worst.where.partition if worst else None,
            max_lag_partition=self._links.related("topics", *place) if place else None,
            max_lag_seconds=found.seconds,
            status=found.status,
            **reader,
        )


def _reader(member: Member | None) -> Json:
    if member is None:
        return {"consumer_id": "", "instance_id": None, "client_id": ""}
    return {"consumer_id": member.member_id, "instance_id": member.instance_id, "client_id": member.client_id}


def partitions_of(member: Member) -> list[TopicPartition]:
    """What a member of a consumer group reads. Another kind of assignment names no partitions."""
    try:
        found = decode_assignment(member.assignment).partitions
    except SluiceError:
        return []
    return sorted(found, key=lambda one: (one.topic, one.partition))
