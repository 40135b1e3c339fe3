"""A group held by hand: sends events, keeps answers and stores, moves time."""

from __future__ import annotations

from itertools import count
from typing import Any

from sluice.log_store.errors import SluiceError
from sluice.streaming.groups import (
    Group,
    GroupRules,
    Now,
    Persist,
    Phase,
    Refusal,
    Reply,
    new_group,
    next_deadline,
    step,
)
from sluice.streaming.groups.effects import GroupDead, Response
from sluice.streaming.groups.events import (
    ClientGone,
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    Leaving,
    Persisted,
    PersistFailed,
    Sync,
    Tick,
)
from sluice.streaming.groups.state import ProtocolOffer
from sluice.streaming.groups.subscription import Subscription, encode_subscription

SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 60_000, 3_000
START = Now(1_000_000, 1_700_000_000_000)
NAMES = ["a", "b", "c", "d"]


def offers(*names: str, topics: tuple[str, ...] = ("t",)) -> tuple[ProtocolOffer, ...]:
    return tuple(ProtocolOffer(name, encode_subscription(Subscription(topics))) for name in names)


def join_event(token: object, member_id: str = "", **changes: Any) -> Join:
    fields: dict[str, Any] = {
        "token": token,
        "member_id": member_id,
        "new_member_id": f"new-{token}",
        "client_id": "client",
        "client_host": "host",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": offers("range"),
    }
    return Join(**(fields | changes))


class GroupDriver:
    """Stores succeed at once unless `hold_stores` is set."""

    def __init__(self, rules: GroupRules | None = None, group: Group | None = None) -> None:
        self.now = START
        self.group = group or new_group("g", self.now, rules or GroupRules())
        self.answers: dict[object, Response] = {}
        self.stored: list[Persist] = []
        self.held: list[Persist] = []
        self.hold_stores = False
        self.dead = False
        self._tokens = count()

    # --- events ------------------------------------------------------------------------------

    def send(self, event: Event) -> Response | None:
        self.group, effects, reply = step(self.group, event, self.now)
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.answers, f"{effect.token} was answered twice"
                self.answers[effect.token] = effect.response
            elif isinstance(effect, Persist):
                self.held.append(effect)
            elif isinstance(effect, GroupDead):
                self.dead = True
        if not self.hold_stores:
            self.store_all()
        return reply

    def store_all(self) -> None:
        while self.held:
            self.stored.append(self.held.pop(0))
            self.send(Persisted(self.stored[-1].ticket))

    def fail_store(self, error: SluiceError) -> None:
        self.send(PersistFailed(self.held.pop(0).ticket, error))

    def join(self, member_id: str = "", **changes: Any) -> tuple[object, Response | None]:
        """The token, and what is known of the answer by now."""
        token = changes.pop("token", f"j{next(self._tokens)}")
        reply = self.send(join_event(token, member_id, **changes))
        return token, reply if reply is not None else self.answers.get(token)

    def sync(self, member_id: str, **changes: Any) -> tuple[object, Response | None]:
        token = f"s{next(self._tokens)}"
        fields: dict[str, Any] = {"token": token, "member_id": member_id, "generation": self.group.generation}
        reply = self.send(Sync(**(fields | changes)))
        return token, reply if reply is not None else self.answers.get(token)

    def heartbeat(self, member_id: str, generation: int | None = None, **changes: Any) -> Response | None:
        return self.send(
            Heartbeat(
                member_id=member_id, generation=self.group.generation if generation is None else generation, **changes
            )
        )

    def leave(self, *member_ids: str) -> Response | None:
        return self.send(Leave(tuple(Leaving(member_id=member_id) for member_id in member_ids)))

    def commit(self, member_id: str = "", generation: int = -1, **changes: Any) -> Response | None:
        return self.send(Commit(member_id=member_id, generation=generation, **changes))

    def gone(self, token: object) -> None:
        self.send(ClientGone(token))

    # --- time --------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        """Every deadline on the way gets its tick."""
        end = self.now.boot_ms + ms
        while (due := next_deadline(self.group)) is not None and due <= end:
            self._set_time(max(due, self.now.boot_ms))
            self.send(Tick())
        self._set_time(end)

    def _set_time(self, boot_ms: int) -> None:
        self.now = Now(boot_ms, self.now.wall_ms + boot_ms - self.now.boot_ms)

    # --- whole situations ----------------------------------------------------------------------

    def newcomer(self, member_id: str, **changes: Any) -> object:
        """A join of somebody new, by an id that the test knows."""
        return self.join(new_member_id=member_id, member_id_required=False, **changes)[0]

    def keep_alive(self) -> None:
        for member_id in self.group.members:
            self.heartbeat(member_id)

    def completing(self, *member_ids: str, **changes: Any) -> None:
        """The members have joined; nobody has synced."""
        for member_id in member_ids:
            self.newcomer(member_id, **changes)
        while self.group.phase is not Phase.COMPLETING:
            due = next_deadline(self.group)
            assert due is not None
            self.pass_time(due - self.now.boot_ms)

    def stable(self, *member_ids: str, **changes: Any) -> None:
        """All members have synced; each owns its own name."""
        self.completing(*member_ids, **changes)
        assignments = {member_id: member_id.encode() for member_id in self.group.members}
        for member_id in self.group.members:
            self.sync(member_id, assignments=assignments if member_id == self.group.leader else None)
        assert self.group.phase is Phase.STABLE


def error_of(response: Response | None) -> str | None:
    """Kafka's name of a refusal."""
    return response.error.error if isinstance(response, Refusal) else None
