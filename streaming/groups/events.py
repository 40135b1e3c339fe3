"""What can happen to a group: requests of members and administrators, passing time, outcomes of stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sluice.log_store.errors import SluiceError
from sluice.streaming.groups.state import NO_GENERATION, GroupMetadata, ProtocolOffer, Token

# --- requests of members -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    token: Token
    member_id: str = ""
    """Empty: the sender is no member yet, or a static member that has just started."""
    new_member_id: str
    """What the sender will be called if it needs an id. Made up by the caller, never used before."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[ProtocolOffer, ...]
    member_id_required: bool = True
    """Whether a dynamic member must come again with the id it is given, so that a lost answer leaves no ghost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The leader brings `assignments`, or names a `strategy`: then the caller asks `assignment_task` first,
    computes what it answers, and puts the result into `assignments`."""

    token: Token
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    strategy: str | None = None
    assignments: Mapping[str, bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """One who leaves. An administrator names a static member by its instance id alone."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    members: tuple[Leaving, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """May these offsets be committed? A member's commit also keeps its session."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The request was given up by its sender: nobody will hear the answer."""

    token: Token


# --- requests of administrators ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delete:
    token: Token


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    """May the offsets of these topics be deleted?"""

    topics: frozenset[str]


# --- what happens by itself --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went by; whatever is due by `now` happens."""


@dataclass(frozen=True, slots=True)
class Persisted:
    ticket: int


@dataclass(frozen=True, slots=True)
class PersistFailed:
    ticket: int
    error: SluiceError


@dataclass(frozen=True, slots=True)
class Restore:
    """The coordinator starts and found this. Only for a group just created."""

    metadata: GroupMetadata


@dataclass(frozen=True, slots=True)
class Unload:
    """This process no longer coordinates the group. What is stored stays."""


Event: TypeAlias = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | Commit
    | ClientGone
    | Delete
    | OffsetDelete
    | Tick
    | Persisted
    | PersistFailed
    | Restore
    | Unload
)
