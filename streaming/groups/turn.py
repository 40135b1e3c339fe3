"""One step at work. A `Turn` is the only thing of this package that changes, and it does not outlive its step."""

from __future__ import annotations

import logging
from typing import Any

from sluice.streaming.groups.effects import Effect, Log, Persist, Reply, Response
from sluice.streaming.groups.state import (
    PREDECESSORS,
    Group,
    GroupMetadata,
    Now,
    Phase,
    Store,
    Token,
)


class Turn:
    __slots__ = ("effects", "group", "now")

    def __init__(self, group: Group, now: Now) -> None:
        self.group = group
        self.now = now
        self.effects: list[Effect] = []

    def change(self, **changes: Any) -> None:
        self.group = self.group._replace(**changes)

    def move(self, phase: Phase) -> None:
        if self.group.phase not in PREDECESSORS[phase]:
            raise AssertionError(f"group {self.group.group_id} cannot go from {self.group.phase} to {phase}")
        self.change(phase=phase, changed_wall_ms=self.now.wall_ms)

    def reply(self, token: Token, response: Response) -> None:
        self.effects.append(Reply(token, response))

    def log(self, text: str, level: int = logging.INFO) -> None:
        self.effects.append(Log(f"group {self.group.group_id}: {text}", level))

    def persist(self, metadata: GroupMetadata | None, store: Store) -> None:
        ticket = self.group.next_ticket
        self.change(stores={**self.group.stores, ticket: store}, next_ticket=ticket + 1)
        self.effects.append(Persist(ticket, metadata))
