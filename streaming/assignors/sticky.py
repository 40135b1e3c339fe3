"""Sticky: balance first, then everybody keeps what it has. Cooperative: what moves is given up before it is given."""

from __future__ import annotations

from sluice.streaming.assignors.claims import Claims, settled
from sluice.streaming.assignors.group import NOBODY, Group, Owners
from sluice.streaming.assignors.mixed import share_by_subscription
from sluice.streaming.assignors.uniform import share_evenly


def sticky(group: Group) -> Owners:
    return _balanced(group, settled(group))


def cooperative_sticky(group: Group) -> Owners:
    """As sticky, but a partition that changes its owner is given to nobody in this round.

    Its owner sees that it lost it, stops reading it and joins again; the next round gives it to the new owner.
    """
    claims = settled(group)
    owners = _balanced(group, claims)
    for partition, owner in claims.owner.items():
        if owners[partition] != owner:
            owners[partition] = NOBODY
    for partition in claims.contested:
        owners[partition] = NOBODY
    return owners


def _balanced(group: Group, claims: Claims) -> Owners:
    # Topics that do not exist count here, too: so it is in Kafka, and it decides which of the two rules is used.
    alike = len({member.topics for member in group.members}) < 2
    return share_evenly(group, claims) if alike else share_by_subscription(group, claims)
