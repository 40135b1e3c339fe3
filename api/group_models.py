"""Bodies and answers of the calls about consumer groups. Unknown members of a body are refused by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1

Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]
Int32 = Annotated[int, msgspec.Meta(ge=-1, le=INT_MAX)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
TimeoutMs = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
Pair = tuple[Text, PartitionNumber]
"""[topic, partition]"""


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


# --- members -------------------------------------------------------------------------------------


class Offer(Body):
    """A protocol that the member speaks. Of type `consumer` its metadata is a subscription."""

    name: Text
    metadata: Any = None


class Join(Body):
    protocols: list[Offer]
    member_id: Text = ""
    group_instance_id: Text | None = None
    session_timeout_ms: TimeoutMs = 45_000
    rebalance_timeout_ms: TimeoutMs = 300_000
    protocol_type: Text = "consumer"
    client_id: Text = ""
    reason: Text | None = None


class JoinedMember(msgspec.Struct):
    member_id: str
    group_instance_id: str | None
    metadata: msgspec.Raw


class Joined(msgspec.Struct):
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    member_id: str
    skip_assignment: bool
    members: list[JoinedMember]


class MemberAssignment(Body):
    member_id: Text
    assignment: list[Pair] | dict[str, Any]
    """Partitions; or any object, which is handed on as it is."""


class Sync(Body):
    generation_id: Int32
    member_id: Text
    group_instance_id: Text | None = None
    protocol_type: Text | None = None
    protocol_name: Text | None = None
    assignments: list[MemberAssignment] | None = None
    strategy: Text | None = None
    """Of the leader: the service is to compute the assignment."""


class Synced(msgspec.Struct):
    protocol_type: str | None
    protocol_name: str | None
    assignment: Any


class Heartbeat(Body):
    generation_id: Int32
    member_id: Text
    group_instance_id: Text | None = None


class Leaving(Body):
    member_id: Text = ""
    group_instance_id: Text | None = None
    reason: Text | None = None


class Leave(Body):
    members: Annotated[list[Leaving], msgspec.Meta(min_length=1)]


class Leaver(msgspec.Struct):
    member_id: str
    group_instance_id: str | None
    error_code: int | None
    error: str | None


class Left(msgspec.Struct):
    members: list[Leaver]


# --- offsets -------------------------------------------------------------------------------------


class NewOffset(Body):
    topic_name: Text
    partition_id: PartitionNumber
    offset: Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]
    metadata: str | None = None
    leader_epoch: Int32 | None = None
    topic_id: Text | None = None
    """Of the topic that was read; a commit for one that was made anew since then is refused (R-8)."""


class CommitOffsets(Body):
    offsets: list[NewOffset]
    generation_id: Int32 = -1
    member_id: Text = ""
    group_instance_id: Text | None = None
    query: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    """The Spark query that commits, and up to which of its batches."""
    batch: Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)] | None = None


class CommittedOffset(msgspec.Struct, omit_defaults=True):
    topic_name: str
    partition_id: int
    offset: int
    metadata: str
    commit_timestamp: int
    topic_id: str
    leader_epoch: int | None = None
    query: str | None = None
    batch: int | None = None


class CommittedOffsets(msgspec.Struct):
    offsets: list[CommittedOffset]


class Place(Body):
    topic_name: Text
    partition_id: PartitionNumber


class DeleteOffsets(Body):
    offsets: Annotated[list[Place], msgspec.Meta(min_length=1)]


class OffsetOutcome(msgspec.Struct):
    topic_name: str
    partition_id: int
    error_code: int | None = None
    error: str | None = None
    message: str | None = None


class OffsetOutcomes(msgspec.Struct):
    offsets: list[OffsetOutcome]


class AllRefused(msgspec.Struct):
    """The first error as any refusal has it, and that of each partition."""

    error_code: int
    message: str
    error: str
    retriable: bool
    offsets: list[OffsetOutcome]


# --- reset ---------------------------------------------------------------------------------------


class ResetOffsets(Body, omit_defaults=True):
    """Exactly one scenario. Partitions are named by `topics`, `all_topics`, or the rows of `from_file`."""

    to_earliest: Any = None
    to_latest: Any = None
    to_current: Any = None
    to_offset: Any = None
    shift_by: Any = None
    to_datetime: Any = None
    by_duration: Any = None
    from_file: Any = None
    topics: Annotated[list[Text], msgspec.Meta(max_length=100_000)] = []
    all_topics: bool = False
    dry_run: bool = True


class PlanRow(msgspec.Struct):
    topic_name: str
    partition_id: int
    current_offset: int | None
    new_offset: int


class ResetPlan(msgspec.Struct, omit_defaults=True):
    plan: list[PlanRow]
    executed: bool
    message: str | None = None
