"""Committed offsets of a group: who may commit, what may be deleted, what expires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice.log_store.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups.effects import Refusal
from sluice.streaming.groups.membership import member_refusal
from sluice.streaming.groups.state import NO_GENERATION, Group, Phase

OFFSET_METADATA_MAX_BYTES = 4096

# --- committing --------------------------------------------------------------------------------


def commit_refusal(
    group: Group | None, member_id: str = "", generation: int = NO_GENERATION, instance_id: str | None = None
) -> Refusal | None:
    """Kafka's checks in Kafka's order. None: go on; a group that does not exist then comes to be, as a simple one.

    That a member owns the partition, or that the offset lies in the log, is not asked.
    """
    if group is None and generation >= 0:
        return Refusal(IllegalGeneration, f"there is no such group, so no generation {generation}")
    if group is None or (group.phase is Phase.EMPTY and generation < 0):
        return None
    if group.phase is Phase.DEAD:
        return Refusal(CoordinatorNotAvailable, "the group is being removed: try again")
    if generation < 0 and not member_id and instance_id is None:
        return Refusal(UnknownMemberId, "the group has members: only they may commit")
    refusal = member_refusal(group, member_id, instance_id, generation)
    if refusal is None and group.phase is Phase.COMPLETING:
        return Refusal(RebalanceInProgress, "the group rebalances: sync first")
    return refusal


def metadata_refusal(metadata: str, max_bytes: int = OFFSET_METADATA_MAX_BYTES) -> Refusal | None:
    """Judges the text committed with one partition; the others of the request are not touched."""
    size = len(metadata.encode("utf-8", "surrogatepass"))
    if size <= max_bytes:
        return None
    return Refusal(OffsetMetadataTooLarge, f"the metadata has {size} bytes; at most {max_bytes} are allowed")


# --- deleting ----------------------------------------------------------------------------------


def offset_delete_refusal(group: Group | None) -> Refusal | None:
    if group is None or group.phase is Phase.DEAD:
        return Refusal(GroupIdNotFound, "there is no such group")
    if group.phase is not Phase.EMPTY and not group.is_consumer_group:
        return Refusal(NonEmptyGroup, "the group has members, and it is not known what they read")
    return None


def topic_refusals(group: Group, topics: Iterable[str]) -> dict[str, Refusal]:
    """Topics that a member reads. As long as a consumer group's topics are not known, any might be."""
    return {
        topic: Refusal(GroupSubscribedToTopic, f"members of the group are subscribed to {topic!r}")
        for topic in sorted(topics)
        if is_subscribed(group, topic)
    }


def is_subscribed(group: Group, topic: str) -> bool:
    if group.subscribed_topics is None:
        return group.is_consumer_group
    return topic in group.subscribed_topics


# --- expiring ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommittedAt:
    wall_ms: int
    pending: bool = False
    """A transaction that would replace it is open: it stays."""


def expired(
    group: Group, offsets: Mapping[TopicPartition, CommittedAt], now_wall_ms: int, retention_ms: int
) -> frozenset[TopicPartition]:
    """Offsets that are to be forgotten.

    - Empty, once had members: all, counted from when it became empty.
    - Stable consumer group: of topics that nobody is subscribed to, counted from the commit.
    - Simple group: counted from the commit.
    - Otherwise none.
    """
    if group.phase is Phase.DEAD:
        return frozenset()
    if group.is_simple:
        return _older(offsets, now_wall_ms - retention_ms)
    if group.phase is Phase.EMPTY:
        due = now_wall_ms - group.changed_wall_ms >= retention_ms
        return frozenset(where for where, at in offsets.items() if due and not at.pending)
    if group.phase is Phase.STABLE and group.is_consumer_group and group.subscribed_topics is not None:
        unread = {where: at for where, at in offsets.items() if not is_subscribed(group, where.topic)}
        return _older(unread, now_wall_ms - retention_ms)
    return frozenset()


def _older(offsets: Mapping[TopicPartition, CommittedAt], latest_wall_ms: int) -> frozenset[TopicPartition]:
    return frozenset(where for where, at in offsets.items() if at.wall_ms <= latest_wall_ms and not at.pending)


def is_disposable(group: Group, remaining_offsets: int) -> bool:
    """Nothing is left to remember: the group itself may be deleted."""
    return group.phase is Phase.EMPTY and not group.pending and remaining_offsets == 0
