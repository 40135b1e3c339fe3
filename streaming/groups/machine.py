"""The group as a function: what is known and what happens give what is known next, what to do, and the answer.

`step` has no clock, no storage and no randomness: the same state, event and time always give the same result. The
caller steps the events of one group one after the other, carries out the effects in order, and brings the outcome of
each `Persist` back as an event.
"""

from __future__ import annotations

from typing import NamedTuple

from sluice.streaming.groups import events
from sluice.streaming.groups.effects import Effect, Response
from sluice.streaming.groups.joining import on_join
from sluice.streaming.groups.state import Group, Now
from sluice.streaming.groups.storing import on_persist_failed, on_persisted
from sluice.streaming.groups.syncing import on_sync
from sluice.streaming.groups.turn import Turn
from sluice.streaming.groups.upkeep import (
    on_client_gone,
    on_commit,
    on_delete,
    on_heartbeat,
    on_leave,
    on_offset_delete,
    on_restore,
    on_tick,
    on_unload,
)


class Step(NamedTuple):
    group: Group
    effects: tuple[Effect, ...]
    reply: Response | None
    """The answer to the event itself. None: there is nothing to answer, or a later `Reply` with its token will."""


def step(group: Group, event: events.Event, now: Now) -> Step:
    turn = Turn(group, now)
    reply = _answer(turn, event)
    return Step(turn.group, tuple(turn.effects), reply)


def _answer(turn: Turn, event: events.Event) -> Response | None:
    match event:
        case events.Heartbeat():
            return on_heartbeat(turn, event)
        case events.Join():
            return on_join(turn, event)
        case events.Sync():
            return on_sync(turn, event)
        case events.Leave():
            return on_leave(turn, event)
        case events.Commit():
            return on_commit(turn, event)
        case events.Delete():
            return on_delete(turn, event)
        case events.OffsetDelete():
            return on_offset_delete(turn, event)
        case _:
            _happen(turn, event)
            return None


def _happen(turn: Turn, event: events.Event) -> None:
    match event:
        case events.Tick():
            on_tick(turn)
        case events.Persisted():
            on_persisted(turn, event)
        case events.PersistFailed():
            on_persist_failed(turn, event)
        case events.ClientGone():
            on_client_gone(turn, event)
        case events.Restore():
            on_restore(turn, event)
        case events.Unload():
            on_unload(turn)
        case _:
            raise TypeError(f"{event!r} is no event of a group")
