"""The HTTP calls of a consumer, each tried once: who calls decides whether and when to try again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.api.client_codec import ARROW, fetched_table
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_consumer_positions import Question
from sluice.api.client_groups import ONCE, CommittedOffset, committed_of, group_path, send_offsets
from sluice.api.client_topics import CLUSTER, topic_path
from sluice.api.client_values import FetchedTable
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection
from sluice.streaming.http_errors import RequestFailed

MOST_RECORDS = 100_000
MARGIN_S = 10.0
"""More than a long request takes on the server, so that its own answer comes first."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who commits. A generation that is over is refused by the group."""

    member_id: str = ""
    generation: int = -1


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


class ConsumerCalls:
    def __init__(self, connection: Connection, options: ConsumerOptions) -> None:
        self._connection = connection
        self._options = options

    @property
    def _group(self) -> str:
        if self._options.group is None:
            raise InvalidRequest("this consumer has no group: give it one to subscribe or commit", field="group")
        return group_path(self._options.group)

    def _json(self, method: str, path: str, **request: Any) -> Any:
        return self._connection.json(method, path, repeatable=False, policy=ONCE, **request)

    # --- records ---------------------------------------------------------------------------------

    def fetch(self, question: Question, max_bytes: int, wait_ms: int) -> FetchedTable:
        one = question.partition
        response = self._connection.call(
            "GET",
            f"{topic_path(one.topic)}/partitions/{one.partition}/records",
            params={
                "offset": question.offset,
                "max_records": MOST_RECORDS,
                "max_bytes": max_bytes,
                "min_bytes": self._options.fetch_min_bytes,
                "max_wait_ms": wait_ms,
            },
            headers={"Accept": ARROW},
            timeout_s=wait_ms / 1000 + MARGIN_S,
            repeatable=False,
            policy=ONCE,
        )
        return fetched_table(response)

    def ends(self, one: TopicPartition) -> tuple[int, int]:
        """Where the partition begins and ends."""
        path = f"{topic_path(one.topic)}/partitions/{one.partition}/offset"
        found = self._json("GET", path, params={"offset_type": "earliest_and_latest"})
        return found["earliest_offset"], found["latest_offset"]

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
            "rebalance_timeout_ms": options.max_poll_interval_ms,
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

    @property
    def _rebalance_s(self) -> float:
        return self._options.max_poll_interval_ms / 1000 + MARGIN_S

    # --- offsets ---------------------------------------------------------------------------------

    def commit(self, identity: Identity, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        body = {
            "generation_id": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": self._options.group_instance_id if identity.member_id else None,
            "offsets": [
                {
                    "topic_name": one.topic,
                    "partition_id": one.partition,
                    "offset": committed.offset,
                    "metadata": committed.metadata,
                }
                for one, committed in offsets.items()
            ],
        }
        send_offsets(self._connection, "POST", f"{self._group}/offsets", body)

    def committed(self, topics: Sequence[str]) -> dict[TopicPartition, CommittedOffset]:
        """Of the group; a single topic is asked for by name, several with one request for all."""
        params = {"topic": topics[0]} if len(topics) == 1 else {}
        return committed_of(self._json("GET", f"{self._group}/offsets", params=params))
