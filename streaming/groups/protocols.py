"""Which protocol a group speaks: one that every member knows, chosen by vote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sluice.log_store.errors import InvalidRequest
from sluice.streaming.groups.state import Group, Member, ProtocolOffer
from sluice.streaming.groups.subscription import CONSUMER, decode_subscription


def common_protocols(members: Iterable[Member]) -> frozenset[str]:
    """Names that every member offers."""
    distinct = {member.protocol_names for member in members}
    return frozenset.intersection(*distinct) if distinct else frozenset()


def accepts(group: Group, protocol_type: str, protocols: tuple[ProtocolOffer, ...]) -> bool:
    """Whether a member with these protocols leaves the group one that all can speak."""
    if not group.members:
        return bool(protocol_type and protocols)
    if protocol_type != group.protocol_type:
        return False
    return not group.common_protocols.isdisjoint(offer.name for offer in protocols)


def chosen_protocol(members: Iterable[Member]) -> str:
    """Each member votes for the common protocol it likes best. A tie goes to the one voted for first."""
    electorate = tuple(members)
    candidates = common_protocols(electorate)
    votes = Counter(next(o.name for o in member.protocols if o.name in candidates) for member in electorate)
    return votes.most_common(1)[0][0]


def subscribed_topics(
    protocol_type: str | None, protocol: str | None, members: Iterable[Member]
) -> frozenset[str] | None:
    """Topics of all members of a consumer group. None when a member's subscription cannot be read."""
    if protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in members:
        try:
            topics.update(decode_subscription(member.metadata(protocol)).topics)
        except InvalidRequest:
            return None
    return frozenset(topics)
