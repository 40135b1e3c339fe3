"""Consumer groups over HTTP: what members send, and what people ask about groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection
from sluice.streaming.http_paths import CLUSTER, group_path
from sluice.streaming.membership.offsets import CommittedOffset, committed_of, send_offsets

SCENARIOS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    group: str
    state: str
    partition_assignor: str | None
    is_simple: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    member_id: str
    instance_id: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    topic: str
    partition: int
    current_offset: int | None
    """None: nothing is committed."""
    log_end_offset: int
    lag: int | None
    lag_seconds: float | None
    member_id: str | None
    instance_id: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffset:
    """One line of a reset."""

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


class Groups:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> list[GroupInfo]:
        answer = self._connection.json("GET", f"{CLUSTER}/consumer-groups", repeatable=True)
        return [_info(entry) for entry in answer["data"]]

    def describe(self, group: str) -> GroupInfo:
        return _info(self._connection.json("GET", group_path(group), repeatable=True))

    def members(self, group: str) -> Sequence[MemberInfo]:
        answer = self._connection.json("GET", f"{group_path(group)}/consumers", repeatable=True)
        return [
            MemberInfo(
                member_id=entry["consumer_id"],
                instance_id=entry.get("instance_id"),
                client_id=entry.get("client_id"),
            )
            for entry in answer["data"]
        ]

    def lags(self, group: str) -> Sequence[PartitionLag]:
        answer = self._connection.json("GET", f"{group_path(group)}/lags", repeatable=True)
        return [_lag(entry) for entry in answer["data"]]

    def lag_summary(self, group: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._connection.json("GET", f"{group_path(group)}/lag-summary", repeatable=True)
        return found

    def delete(self, group: str) -> None:
        """With all its offsets. Refused while it has members."""
        self._connection.call("DELETE", group_path(group), repeatable=False)

    def offsets(self, group: str, topic: str | None = None) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed."""
        params = {} if topic is None else {"topic": topic}
        answer = self._connection.json("GET", f"{group_path(group)}/offsets", params=params, repeatable=True)
        return committed_of(answer)

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        body = {"offsets": [{"topic_name": one.topic, "partition_id": one.partition} for one in partitions]}
        send_offsets(self._connection, "DELETE", f"{group_path(group)}/offsets", body)

    def reset(
        self,
        group: str,
        scenario: Mapping[str, Any],
        *,
        topics: Sequence[str] = (),
        all_topics: bool = False,
        execute: bool = False,
    ) -> Sequence[PlannedOffset]:
        """The plan, carried out only if told to. `scenario` has one entry: `{"to_offset": 7}`, `{"to_latest": True}`.

        `topics` are names, or names with partitions: `orders:0,2`.
        """
        if len(scenario) != 1 or next(iter(scenario)) not in SCENARIOS:
            raise InvalidRequest(f"a reset takes exactly one of {', '.join(SCENARIOS)}", field="scenario")
        body: dict[str, Any] = dict(scenario) | {"dry_run": not execute}
        if topics:
            body["topics"] = list(topics)
        if all_topics:
            body["all_topics"] = True
        answer = self._connection.json("POST", f"{group_path(group)}/offsets:reset", body=body, repeatable=False)
        return [
            PlannedOffset(
                topic=entry["topic_name"],
                partition=entry["partition_id"],
                current_offset=_known(entry.get("current_offset")),
                new_offset=entry["new_offset"],
            )
            for entry in answer["plan"]
        ]


def _known(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset


def _info(entry: Mapping[str, Any]) -> GroupInfo:
    return GroupInfo(
        group=entry["consumer_group_id"],
        state=entry.get("state", ""),
        partition_assignor=entry.get("partition_assignor") or None,
        is_simple=entry.get("is_simple", False),
    )


def _lag(entry: Mapping[str, Any]) -> PartitionLag:
    current = _known(entry.get("current_offset"))
    return PartitionLag(
        topic=entry["topic_name"],
        partition=entry["partition_id"],
        current_offset=current,
        log_end_offset=entry["log_end_offset"],
        lag=entry.get("lag"),
        lag_seconds=entry.get("lag_seconds"),
        member_id=entry.get("consumer_id") or None,
        instance_id=entry.get("instance_id") or None,
        client_id=entry.get("client_id") or None,
    )
