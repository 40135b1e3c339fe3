"""The HTTP calls of a member of a group, each tried once: who calls decides whether and when to try again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection
from sluice.streaming.http_errors import RequestFailed
from sluice.streaming.http_paths import CLUSTER, group_path
from sluice.streaming.membership.offsets import ONCE, CommittedOffset, committed_of, send_offsets
from sluice.streaming.membership.options import MemberOptions

MARGIN_S = 10.0
"""More than a long request takes on the server, so that its own answer comes first."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commits. A generation that is over is refused by the group."""

    member_id: str = ""
    generation: int = -1


@dataclass(frozen=True, slots=True)
class QueryLabel:
    """Written beside a commit: the Spark query that it speaks for, and as of which of its batches."""

    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class Joined:
    member_id: str
    generation: int
    protocol: str
    is_leader: bool
    skip_assignment: bool
    topics: frozenset[str]
    """Of all members; only the leader is told."""


def is_transient(error: RequestFailed) -> bool:
    """Worth another try later: the network, a restart, an overload. A topic that is not there is not."""
    return error.worth_repeating


class GroupCalls:
    def __init__(self, connection: Connection, options: MemberOptions) -> None:
        self._connection = connection
        self._options = options

    @property
    def _group(self) -> str:
        if self._options.group is None:
            raise InvalidRequest("this consumer has no group: give it one to subscribe or commit", field="group")
        return group_path(self._options.group)

    def _json(self, method: str, path: str, **request: Any) -> Any:
        return self._connection.json(method, path, repeatable=False, policy=ONCE, **request)

    def topics(self) -> dict[str, int]:
        """Partitions of every topic that may be seen."""
        answer = self._json("GET", f"{CLUSTER}/topics")
        return {
            entry["topic_name"]: entry["partitions_count"]
            for entry in answer["data"]
            if not entry.get("is_internal", False)
        }

    # --- membership ------------------------------------------------------------------------------

    def join(self, member_id: str, metadata: Mapping[str, Mapping[str, Any]], reason: str) -> Joined:
        options = self._options
        body = {
            "member_id": member_id,
            "group_instance_id": options.group_instance_id,
            "session_timeout_ms": options.session_timeout_ms,
            "rebalance_timeout_ms": options.rebalance_timeout_ms,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name, data in metadata.items()],
            "client_id": options.client_id,
            "reason": reason[:250],
        }
        answer = self._json("POST", f"{self._group}/members:join", body=body, timeout_s=self._rebalance_s)
        members = answer.get("members") or ()
        topics = {topic for member in members for topic in member["metadata"]["topics"]}
        return Joined(
            member_id=answer["member_id"],
            generation=answer["generation_id"],
            protocol=answer["protocol_name"],
            is_leader=answer["leader"] == answer["member_id"],
            skip_assignment=bool(answer.get("skip_assignment", False)),
            topics=frozenset(topics),
        )

    def sync(self, joined: Joined) -> tuple[TopicPartition, ...]:
        """The leader leaves the computation to the service."""
        body: dict[str, Any] = {
            "generation_id": joined.generation,
            "member_id": joined.member_id,
            "group_instance_id": self._options.group_instance_id,
            "protocol_type": "consumer",
            "protocol_name": joined.protocol,
        }
        if joined.is_leader and not joined.skip_assignment:
            body["strategy"] = joined.protocol
        answer = self._json("POST", f"{self._group}/members:sync", body=body, timeout_s=self._rebalance_s)
        return tuple(TopicPartition(topic, partition) for topic, partition in answer["assignment"])

    def heartbeat(self, identity: Identity) -> None:
        body = {
            "generation_id": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": self._options.group_instance_id,
        }
        timeout_s = max(1.0, self._options.session_timeout_ms / 3000)
        self._json("POST", f"{self._group}/members:heartbeat", body=body, timeout_s=timeout_s)

    def leave(self, member_id: str, reason: str) -> None:
        member = {"member_id": member_id, "group_instance_id": None, "reason": reason[:250]}
        self._json("POST", f"{self._group}/members:leave", body={"members": [member]}, timeout_s=5.0)

    def instances(self) -> frozenset[str]:
        """The static members that the group has now."""
        answer = self._json("GET", f"{self._group}/consumers")
        return frozenset(entry["instance_id"] for entry in answer["data"] if entry.get("instance_id"))

    @property
    def _rebalance_s(self) -> float:
        return self._options.rebalance_timeout_ms / 1000 + MARGIN_S

    # --- offsets ---------------------------------------------------------------------------------

    def commit(
        self,
        identity: Identity,
        offsets: Mapping[TopicPartition, CommittedOffset],
        label: QueryLabel | None = None,
        timeout_s: float | None = None,
    ) -> None:
        body: dict[str, Any] = {
            "generation_id": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": self._options.group_instance_id if identity.member_id else None,
            "offsets": [
                {
                    "topic_name": one.topic,
                    "partition_id": one.partition,
                    "offset": committed.offset,
                    "metadata": committed.metadata,
                    "topic_id": committed.topic_id,
                }
                for one, committed in offsets.items()
            ],
        }
        if label is not None:
            body |= {"query": label.query, "batch": label.batch}
        send_offsets(self._connection, "POST", f"{self._group}/offsets", body, timeout_s=timeout_s)

    def committed(self, topics: Sequence[str]) -> dict[TopicPartition, CommittedOffset]:
        """Of the group; a single topic is asked for by name, several with one request for all."""
        params = {"topic": topics[0]} if len(topics) == 1 else {}
        return committed_of(self._json("GET", f"{self._group}/offsets", params=params))
