"""What a step asks its caller to do, and what requests are answered."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sluice.log_store.errors import SluiceError
from sluice.streaming.groups.state import GroupMetadata, Token

# --- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value, not an exception: the state may have changed all the same (MEMBER_ID_REQUIRED)."""

    error: type[SluiceError]
    message: str
    member_id: str = ""

    def exception(self) -> SluiceError:
        return self.error(self.message, **({"member_id": self.member_id} if self.member_id else {}))


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    member_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[JoinedMember, ...] = ()
    """Told to the leader only."""
    skip_assignment: bool = False
    """To a leader that came back under a new id: the assignment stands, do not compute another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """The heartbeat is good."""


class Leaver(NamedTuple):
    member_id: str
    instance_id: str | None
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Left:
    members: tuple[Leaver, ...]
    """In the order of the request."""


@dataclass(frozen=True, slots=True)
class CommitAllowed:
    pass


@dataclass(frozen=True, slots=True)
class OffsetDeleteAllowed:
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Topics whose offsets must stay."""


@dataclass(frozen=True, slots=True)
class Deleted:
    pass


Response: TypeAlias = Joined | Synced | Alive | Left | CommitAllowed | OffsetDeleteAllowed | Deleted | Refusal

# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request that waited."""

    token: Token
    response: Response


@dataclass(frozen=True, slots=True)
class Persist:
    """Store this as the group's record, then say `Persisted(ticket)` or `PersistFailed(ticket, error)`.

    Records of one group are stored in the order of their tickets. Answers that depend on a record are not among the
    effects beside it: they come out of the step of `Persisted`, so they cannot be sent too early.
    """

    ticket: int
    metadata: GroupMetadata | None
    """None: a tombstone for the group, together with one for each of its offsets."""


@dataclass(frozen=True, slots=True)
class GroupDead:
    """Forget the group in memory."""


@dataclass(frozen=True, slots=True)
class Log:
    text: str
    level: int = logging.INFO


Effect: TypeAlias = Reply | Persist | GroupDead | Log
