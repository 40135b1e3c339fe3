"""Sticky assignment when all members subscribe to the same topics: quotas, and nobody moves without need."""

from __future__ import annotations

from collections import deque

from sluice.streaming.assignors.claims import Claims
from sluice.streaming.assignors.group import NOBODY, Group, Owners
from sluice.streaming.assignors.java_order import in_table_order


def share_evenly(group: Group, claims: Claims) -> Owners:
    """Everybody keeps what fits into its quota; the rest goes in turn to those who have least.

    The quota is the average rounded down, and one more for as many members as the division leaves over.
    """
    owners = [NOBODY] * group.total
    if not group.total:
        return owners
    quota, over = divmod(group.total, len(group.members))
    short, full = _keep(group, claims, owners, quota, over)
    loads = [0] * len(group.members)
    for owner in owners:
        if owner != NOBODY:
            loads[owner] += 1
    waiting = deque(sorted(short))
    content = deque(sorted(full))
    for partition, owner in enumerate(owners):
        if owner != NOBODY:
            continue
        member = waiting.popleft() if waiting else content.popleft()
        owners[partition] = member
        loads[member] += 1
        if loads[member] < quota:
            waiting.append(member)
        elif loads[member] == quota:
            content.append(member)
    return owners


def _keep(group: Group, claims: Claims, owners: Owners, quota: int, over: int) -> tuple[list[int], list[int]]:
    """Leaves members what they may keep. Returns who is below the quota, and who is at it and may get one more."""
    owned = claims.owned_by_member(len(group.members))
    numbers = {member.member_id: number for number, member in enumerate(group.members)}
    short: list[int] = []
    full: list[int] = []
    for name in in_table_order(numbers):
        member = numbers[name]
        # By partition before topic: whoever must give some up then keeps a mixture of topics.
        mine = sorted(owned[member], key=lambda number: _partition_then_topic(group, number))
        if len(mine) < quota:
            kept = len(mine)
            short.append(member)
        elif len(mine) > quota and over:
            kept = quota + 1
            over -= 1
            if not over:
                full.clear()
        else:
            kept = quota
            if over:
                full.append(member)
        for number in mine[:kept]:
            owners[number] = member
    return short, full


def _partition_then_topic(group: Group, number: int) -> tuple[int, int]:
    topic = group.topic_of(number)
    return number - group.starts[topic], topic
