"""What the coordinator knows about one group. Values only: `step` makes the next one out of an event.

Nothing here is changed in place, mappings included; whoever holds an old `Group` may step it again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from sluice.streaming.groups.deadlines import NEVER, NO_DEADLINES, Deadlines
from sluice.streaming.groups.ids import validate_group_id
from sluice.streaming.groups.subscription import CONSUMER

Token: TypeAlias = Hashable
"""Names a request whose answer may come later."""

NO_GENERATION = -1


class Phase(StrEnum):
    """The five states, under Kafka's names. `docs/groups.md` has the answer to every event in every state."""

    EMPTY = "Empty"
    """No members. Lingers for its offsets; also a group that only ever committed."""
    PREPARING = "PreparingRebalance"
    """Joins are collected until every known member is back or the time is over."""
    COMPLETING = "CompletingRebalance"
    """The generation is set; the leader's assignment is awaited, then stored."""
    STABLE = "Stable"
    """Every member has, or may fetch, its stored assignment."""
    DEAD = "Dead"
    """Being deleted, or no longer led here. Asks everybody to come again."""


PREDECESSORS: Mapping[Phase, frozenset[Phase]] = {
    # From Dead: a deletion that could not be written is withdrawn.
    Phase.EMPTY: frozenset({Phase.PREPARING, Phase.DEAD}),
    Phase.PREPARING: frozenset({Phase.EMPTY, Phase.COMPLETING, Phase.STABLE}),
    Phase.COMPLETING: frozenset({Phase.PREPARING}),
    # From Empty: only a group just created, which takes over what was stored.
    Phase.STABLE: frozenset({Phase.COMPLETING, Phase.EMPTY}),
    Phase.DEAD: frozenset(Phase),
}


class Now(NamedTuple):
    """Durations are measured by the machine's uptime, dates are wall time (R-13)."""

    boot_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 5_000
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    """How long the first join of a member may wait: nobody would miss it, it sends no heartbeats yet."""


class ProtocolOffer(NamedTuple):
    """A protocol that a member can speak, and what it says in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What is known of a member, and stored."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[ProtocolOffer, ...]
    """In order of preference."""
    assignment: bytes = b""

    @property
    def protocol_names(self) -> frozenset[str]:
        return frozenset(offer.name for offer in self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((offer.metadata for offer in self.protocols if offer.name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """What a group is after a restart: the value of its record in `__consumer_offsets`."""

    generation: int
    protocol_type: str | None
    protocol: str | None = None
    leader: str | None = None
    members: tuple[Member, ...] = ()
    current_state_timestamp_ms: int
    """Wall time of the last change of state: of an Empty group, when it became so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTimer:
    """When the join phase ends by itself."""

    deadline: int
    initial: bool = False
    """The first rebalance of an Empty group: never ends early, and is put off while members arrive."""
    delay_ms: int = 0
    remaining_ms: int = 0
    grew: bool = False
    """A member arrived since the deadline was set."""


# --- what is being stored, by ticket -----------------------------------------------------------


class AssignmentStore(NamedTuple):
    generation: int
    assignments: Mapping[str, bytes]


class StaticStore(NamedTuple):
    """A static member came back under a new id; `previous` is what it was, should the store fail."""

    generation: int
    member_id: str
    previous: Member


class EmptyStore(NamedTuple):
    generation: int


class TombstoneStore(NamedTuple):
    token: Token


Store: TypeAlias = AssignmentStore | StaticStore | EmptyStore | TombstoneStore


_NONE: Mapping[Any, Any] = MappingProxyType({})


class Group(NamedTuple):
    """A tuple, because every heartbeat and every commit makes a new one: a dataclass takes six times as long."""

    group_id: str
    changed_wall_ms: int
    """When the phase last changed."""
    rules: GroupRules = GroupRules()
    phase: Phase = Phase.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    """None: a simple group, which never had members."""
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, Member] = _NONE
    """By member id, in order of arrival."""
    common_protocols: frozenset[str] = frozenset()
    """Names that every member offers. Never empty while there are members."""
    instances: Mapping[str, str] = _NONE
    """Member id of each static member, by instance id."""
    pending: frozenset[str] = frozenset()
    """Ids given out with MEMBER_ID_REQUIRED that did not join yet. A join phase waits for them."""
    newcomers: frozenset[str] = frozenset()
    """Members whose first join phase is not over."""
    unheard: frozenset[str] = frozenset()
    """Static members that were restored and said nothing since: the id that was stored may not be their newest."""
    slots: Mapping[str, int] = _NONE
    """Where the session deadline of a member or of a pending id is."""
    deadlines: Deadlines = NO_DEADLINES
    join_waiters: Mapping[str, Token] = _NONE
    """Joins that wait for an answer, by member id. Being here is what "has joined" means."""
    sync_waiters: Mapping[str, Token] = _NONE
    unsynced: frozenset[str] = frozenset()
    """Members that did not ask for their assignment in this generation."""
    join_timer: JoinTimer | None = None
    sync_deadline: int = NEVER
    stores: Mapping[int, Store] = _NONE
    next_ticket: int = 0
    subscribed_topics: frozenset[str] | None = None
    """Of a consumer group, as of the current generation. None: not known."""

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def is_simple(self) -> bool:
        return self.protocol_type is None

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return len(self.join_waiters) == len(self.members) and not self.pending

    def session_deadline(self, member_id: str) -> int:
        """Boot time at which a member or a pending id expires; `NEVER` while its request waits here."""
        return self.deadlines.get(self.slots[member_id])


def new_group(group_id: str, now: Now, rules: GroupRules | None = None) -> Group:
    return Group(group_id=validate_group_id(group_id), rules=rules or GroupRules(), changed_wall_ms=now.wall_ms)


def next_deadline(group: Group) -> int | None:
    """Boot time at which the group wants a `Tick`; None when nothing can happen by itself. O(1)."""
    join = group.join_timer.deadline if group.join_timer else NEVER
    earliest = min(group.deadlines.earliest, join, group.sync_deadline)
    return None if earliest == NEVER else earliest


def metadata_of(group: Group) -> GroupMetadata:
    return GroupMetadata(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(group.members.values()),
        current_state_timestamp_ms=group.changed_wall_ms,
    )
