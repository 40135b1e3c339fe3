"""Who owned what before, when members may contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.streaming.assignors.group import Group
from sluice.streaming.assignors.java_order import in_table_order


@dataclass(frozen=True, slots=True)
class Claims:
    owner: Mapping[int, int]
    """For each partition the member that has the newest claim to it."""
    contested: frozenset[int]
    """Partitions whose newest claims are of several members in one generation: nobody is believed."""
    former: Mapping[int, int]
    """For partitions claimed in an older generation than the newest of the group: the latest of these claimants."""

    def owned_by_member(self, members: int) -> list[list[int]]:
        owned: list[list[int]] = [[] for _ in range(members)]
        for partition, member in self.owner.items():
            owned[member].append(partition)
        return owned


def settled(group: Group) -> Claims:
    """The newest generation wins. A claim of an older generation counts as long as nobody contradicts it."""
    newest: dict[int, int] = {}
    owner: dict[int, int] = {}
    contested: set[int] = set()
    claims = group.claims()
    for number, member in enumerate(group.members):
        for partition in claims[number]:
            known = newest.get(partition)
            if known is None or member.generation > known:
                newest[partition], owner[partition] = member.generation, number
                contested.discard(partition)
            elif member.generation == known:
                contested.add(partition)
    for partition in contested:
        del owner[partition]
    return Claims(owner, frozenset(contested), _former(group, claims))


def _former(group: Group, claims: list[list[int]]) -> dict[int, int]:
    current = max((member.generation for member in group.members), default=0)
    numbers = {member.member_id: number for number, member in enumerate(group.members)}
    former: dict[int, int] = {}
    for name in in_table_order(numbers):
        number = numbers[name]
        if group.members[number].generation == current:
            continue
        for partition in claims[number]:
            known = former.get(partition)
            if known is None or group.members[number].generation > group.members[known].generation:
                former[partition] = number
    return former
