"""Consumers as the group machine meets them: they answer for themselves and know nothing of each other."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.log_store.values import TopicPartition
from sluice.streaming.groups import Refusal, Response
from sluice.streaming.groups.effects import Joined, Synced
from sluice.streaming.groups.events import Join, Sync
from sluice.streaming.groups.state import ProtocolOffer
from sluice.streaming.groups.subscription import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

PARTITIONS = [TopicPartition("t", n) for n in range(5)]
SESSION_MS, REBALANCE_MS = 6_000, 20_000


@dataclass(eq=False)
class Client:
    """Does what a consumer does. Its request of `token` waits for an answer; it sends no other meanwhile."""

    name: str
    instance_id: str | None
    protocols: tuple[str, ...]
    topics: tuple[str, ...] = ("t",)
    by_coordinator: bool = False
    """Whether it leaves assignments to the coordinator."""
    member_id: str = ""
    generation: int = -1
    joined: Joined | None = None
    last_generation: int = -1
    owned: frozenset[TopicPartition] | None = None
    token: str | None = None

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    def restart(self) -> None:
        self.member_id, self.token = "", None
        self.rejoin()

    def rejoin(self) -> None:
        self.generation, self.joined, self.owned = -1, None, None

    def join(self, token: str, new_id: str) -> Join:
        metadata = encode_subscription(Subscription(self.topics))
        return Join(
            token=token,
            member_id=self.member_id,
            new_member_id=new_id,
            instance_id=self.instance_id,
            client_id=self.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=tuple(ProtocolOffer(name, metadata) for name in self.protocols),
        )

    def sync(self, token: str, deal: int) -> Sync:
        assert self.joined
        leads = self.joined.leader == self.member_id and not self.joined.skip_assignment
        members = [member.member_id for member in self.joined.members]
        return Sync(
            token=token,
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
            protocol=self.joined.protocol,
            strategy="test" if leads and self.by_coordinator else None,
            assignments=dealt(members, deal) if leads and not self.by_coordinator else None,
        )

    def hear(self, response: Response) -> None:
        self.token = None
        if isinstance(response, Joined):
            self.member_id, self.generation, self.joined = response.member_id, response.generation, response
            self.last_generation = response.generation
        elif isinstance(response, Synced):
            self.owned = frozenset(decode_assignment(response.assignment).partitions)
        elif isinstance(response, Refusal):
            self.rejoin()
            error = response.error.error
            assert error != "FENCED_INSTANCE_ID", "the newest process of an instance was fenced"
            if error in ("UNKNOWN_MEMBER_ID", "GROUP_MAX_SIZE_REACHED"):
                self.member_id = ""
            if error == "MEMBER_ID_REQUIRED":
                self.member_id = response.member_id


def dealt(member_ids: list[str], deal: int) -> dict[str, bytes]:
    """All partitions, to others than in the deal before: an assignment computed twice is not the same twice."""
    first = deal % len(member_ids)
    order = sorted(member_ids)[first:] + sorted(member_ids)[:first]
    hands = {member_id: PARTITIONS[at :: len(order)] for at, member_id in enumerate(order)}
    return {member_id: encode_assignment(Assignment(tuple(hand))) for member_id, hand in hands.items()}
