"""Assignments of a stored group by each strategy, side by side: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming import assignors
from sluice.streaming.assignors import Assignment, Comparison, Member, Strategy
from sluice.streaming.groups.state import GroupMetadata
from sluice.streaming.groups.state import Member as StoredMember
from sluice.streaming.groups.subscription import CONSUMER, decode_assignment, decode_subscription


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a strategy gives to whom, and what each of them would cost."""

    group: str
    generation: int
    strategy: Strategy
    assignment: Assignment
    instances: Mapping[str, str | None]
    owners: Mapping[TopicPartition, str]
    """Who reads what in the stored generation."""
    comparisons: tuple[Comparison, ...]


def propose(
    group_id: str, metadata: GroupMetadata | None, partitions_per_topic: Mapping[str, int], wanted: str | None
) -> Proposal:
    """InvalidRequest for a group that has no members, or whose members are no consumers."""
    if metadata is None or not metadata.members:
        raise InvalidRequest(f"group {group_id!r} has no members in its stored state: nothing to assign", field="group")
    if metadata.protocol_type != CONSUMER:
        raise InvalidRequest(f"group {group_id!r} is of type {metadata.protocol_type!r}, not {CONSUMER!r}")
    members = [_member(member, metadata) for member in metadata.members]
    strategy = assignors.strategy_named(wanted or _own_strategy(metadata))
    return Proposal(
        group=group_id,
        generation=metadata.generation,
        strategy=strategy,
        assignment=assignors.assign(strategy, partitions_per_topic, members),
        instances={member.member_id: member.instance_id for member in members},
        owners={where: member.member_id for member in members for where in member.owned},
        comparisons=tuple(assignors.compare(partitions_per_topic, members)),
    )


def _own_strategy(metadata: GroupMetadata) -> str:
    """What the group uses itself, where that is a strategy of ours."""
    return metadata.protocol if metadata.protocol in tuple(Strategy) else str(Strategy.RANGE)


def _member(stored: StoredMember, metadata: GroupMetadata) -> Member:
    offers = {offer.name: offer.metadata for offer in stored.protocols}
    said = decode_subscription(offers[metadata.protocol or ""])
    return Member(
        member_id=stored.member_id,
        topics=frozenset(said.topics),
        instance_id=stored.instance_id,
        owned=frozenset(decode_assignment(stored.assignment).partitions),
        generation=metadata.generation,
    )
