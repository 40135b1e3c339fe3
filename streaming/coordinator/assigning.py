"""The assignment that a leader leaves to the service: a strategy over what the members say and the topics there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sluice.streaming import assignors
from sluice.streaming.groups.subscription import Assignment, Subscription, decode_subscription, encode_assignment
from sluice.streaming.groups.syncing import AssignmentTask


def computed(task: AssignmentTask, partitions_of: Callable[[str], int]) -> dict[str, bytes]:
    """InvalidRequest for a strategy that there is not, or a member whose subscription cannot be read."""
    said = {member_id: decode_subscription(member.metadata) for member_id, member in task.members.items()}
    members = [_member(member_id, task.members[member_id].instance_id, one) for member_id, one in said.items()]
    counts = _counts(said, partitions_of)
    found = assignors.assign(assignors.strategy_named(task.strategy), counts, members)
    return {member_id: encode_assignment(Assignment(tuple(owned))) for member_id, owned in found.items()}


def _member(member_id: str, instance_id: str | None, said: Subscription) -> assignors.Member:
    return assignors.Member(
        member_id=member_id,
        topics=frozenset(said.topics),
        instance_id=instance_id,
        owned=frozenset(said.owned_partitions),
        generation=said.generation,
    )


def _counts(said: Mapping[str, Subscription], partitions_of: Callable[[str], int]) -> dict[str, int]:
    return {topic: partitions_of(topic) for one in said.values() for topic in one.topics}
