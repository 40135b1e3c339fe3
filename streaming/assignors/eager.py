"""Range and round robin: they look at nothing but the members' order and what these subscribe to."""

from __future__ import annotations

from bisect import bisect_left

from sluice.streaming.assignors.group import NOBODY, Group, Member, Owners
from sluice.streaming.assignors.java_order import string_key


def by_range(group: Group) -> Owners:
    """Each topic by itself: neighbouring partitions to each subscriber, one more to the first ones.

    Topics with the same number of partitions and the same subscribers are cut at the same places, so a member gets
    the same partitions of each: what joining such topics needs.
    """
    places = _places(group)
    owners = [NOBODY] * group.total
    for topic, subscribers in enumerate(group.subscribers):
        partitions = group.partitions_of(topic)
        each, more = divmod(len(partitions), len(subscribers))
        start = partitions.start
        for position, member in enumerate(sorted(subscribers, key=places.__getitem__)):
            end = start + each + (position < more)
            owners[start:end] = [member] * (end - start)
            start = end
    return owners


def round_robin(group: Group) -> Owners:
    """All partitions of all topics are dealt in turn; who does not subscribe to a topic is passed over.

    The turn goes on from topic to topic with whoever comes after the last receiver.
    """
    places = _places(group)
    member_at = sorted(range(len(group.members)), key=places.__getitem__)
    owners = [NOBODY] * group.total
    turn = 0
    for topic, subscribers in enumerate(group.subscribers):
        seats = sorted(places[member] for member in subscribers)
        seat = bisect_left(seats, turn) % len(seats)
        for partition in group.partitions_of(topic):
            owners[partition] = member_at[seats[seat]]
            turn = seats[seat] + 1
            seat = (seat + 1) % len(seats)
    return owners


def _places(group: Group) -> list[int]:
    """The place of each member: static ones by instance id, then the others by member id."""
    order = sorted(range(len(group.members)), key=lambda number: _rank(group.members[number]))
    places = [0] * len(order)
    for place, member in enumerate(order):
        places[member] = place
    return places


def _rank(member: Member) -> tuple[bool, bytes, bytes]:
    instance = member.instance_id
    # Two members with one instance id are a mistake of the group; the member id then keeps the order fixed.
    return instance is None, b"" if instance is None else string_key(instance), string_key(member.member_id)
