"""Every event in every state, allowed and refused: the table of docs/groups.md, walked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from sluice.log_store.errors import StorageError
from sluice.streaming.groups import GroupMetadata, Phase, Refusal, events, new_group, step
from sluice.streaming.groups.effects import Left, OffsetDeleteAllowed
from sluice.streaming.groups.events import (
    ClientGone,
    Commit,
    Delete,
    Event,
    Heartbeat,
    Leave,
    Leaving,
    OffsetDelete,
    Persisted,
    PersistFailed,
    Restore,
    Sync,
    Tick,
    Unload,
)
from sluice.streaming.groups.state import PREDECESSORS, Member, Now
from tests.support.groups import START, GroupDriver, error_of, join_event, offers

DOCUMENT = Path(__file__).parents[4] / "docs" / "groups.md"
TOKEN = "token"


# --- a group in each state, with the members a (leader) and b where there are members ------------


def _empty() -> GroupDriver:
    """Had members; its record is being stored."""
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.hold_stores = True
    driver.leave("a", "b")
    return driver


def _preparing() -> GroupDriver:
    """a has joined again, b has not; an assignment of the generation before is still being stored."""
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.hold_stores = True
    driver.sync("a")
    driver.join("a", protocols=offers("range", topics=("t", "u")))
    return driver


def _completing() -> GroupDriver:
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.hold_stores = True
    return driver


def _stable() -> GroupDriver:
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.hold_stores = True
    return driver


def _dead() -> GroupDriver:
    """Its deletion is being stored."""
    driver = _empty()
    driver.store_all()
    driver.send(Delete("deletion"))
    return driver


STATES: dict[Phase, Callable[[], GroupDriver]] = {
    Phase.EMPTY: _empty,
    Phase.PREPARING: _preparing,
    Phase.COMPLETING: _completing,
    Phase.STABLE: _stable,
    Phase.DEAD: _dead,
}


# --- events ------------------------------------------------------------------------------------


def _other(driver: GroupDriver, member_id: str) -> Event:
    return join_event(TOKEN, member_id, protocols=offers("range", topics=("u",)))


def _same(driver: GroupDriver, member_id: str) -> Event:
    known = driver.group.members.get(member_id)
    return join_event(TOKEN, member_id, protocols=known.protocols if known else offers("range"))


def _pending(driver: GroupDriver) -> Event:
    driver.join(new_member_id="p")
    return join_event(TOKEN, "p")


def _sync(driver: GroupDriver, member_id: str, back: int = 0) -> Event:
    return Sync(token=TOKEN, member_id=member_id, generation=driver.group.generation - back)


def _stored(driver: GroupDriver) -> int:
    """The store that runs; in a state that has none, the one that it can have."""
    if driver.group.phase is Phase.COMPLETING:
        driver.sync("a")
    if driver.group.phase is Phase.STABLE:
        driver.newcomer("s", instance_id="i")
        for member_id in ("a", "b"):
            driver.join(member_id)
        driver.sync("a")
        driver.store_all()
        driver.hold_stores = True
        driver.join(new_member_id="s2", instance_id="i")
    return driver.held[-1].ticket


def _late(driver: GroupDriver) -> Event:
    driver.now = Now(START.boot_ms + 3_600_000, START.wall_ms + 3_600_000)
    return Tick()


def _snapshot() -> GroupMetadata:
    member = Member(member_id="a", session_timeout_ms=9, rebalance_timeout_ms=9, protocols=offers("range"))
    return GroupMetadata(
        generation=4,
        protocol_type="consumer",
        protocol="range",
        leader="a",
        members=(member,),
        current_state_timestamp_ms=5,
    )


EVENTS: dict[str, Callable[[GroupDriver], Event]] = {
    "Join, dynamic, no id": lambda d: join_event(TOKEN),
    "Join, with the id given": _pending,
    "Join, new instance": lambda d: join_event(TOKEN, instance_id="i"),
    "Join, leader": lambda d: _same(d, "a"),
    "Join, follower": lambda d: _same(d, "b"),
    "Join, follower, other metadata": lambda d: _other(d, "b"),
    "Join, other protocol type": lambda d: join_event(TOKEN, "b", protocol_type="connect"),
    "Join, unknown id": lambda d: join_event(TOKEN, "x"),
    "Sync, leader": lambda d: _sync(d, "a"),
    "Sync, follower": lambda d: _sync(d, "b"),
    "Sync, old generation": lambda d: _sync(d, "b", back=1),
    "Heartbeat": lambda d: Heartbeat(member_id="b", generation=d.group.generation),
    "Heartbeat, old generation": lambda d: Heartbeat(member_id="b", generation=d.group.generation - 1),
    "Leave, follower": lambda d: Leave((Leaving(member_id="b"),)),
    "Leave, everybody": lambda d: Leave((Leaving(member_id="a"), Leaving(member_id="b"))),
    "Commit, member": lambda d: Commit(member_id="b", generation=d.group.generation),
    "Commit, old generation": lambda d: Commit(member_id="b", generation=d.group.generation - 1),
    "Commit, no member": lambda d: Commit(),
    "ClientGone": lambda d: ClientGone("j3"),
    "Delete": lambda d: Delete(TOKEN),
    "OffsetDelete, topic read": lambda d: OffsetDelete(frozenset({"t"})),
    "OffsetDelete, other topic": lambda d: OffsetDelete(frozenset({"z"})),
    "Tick, nothing due": lambda d: Tick(),
    "Tick, sessions over": _late,
    "Persisted": lambda d: Persisted(_stored(d)),
    "PersistFailed": lambda d: PersistFailed(_stored(d), StorageError("disk")),
    "Restore": lambda d: Restore(_snapshot()),
    "Unload": lambda d: Unload(),
}

AWAY = "COORDINATOR_NOT_AVAILABLE"
UNKNOWN, OLD, BUSY = "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"
PREPARING, COMPLETING, DEAD = "→ PreparingRebalance", "→ CompletingRebalance", "→ Dead"
TYPE = "INCONSISTENT_GROUP_PROTOCOL"

# Empty, PreparingRebalance, CompletingRebalance, Stable, Dead
TABLE: dict[str, list[str]] = {
    "Join, dynamic, no id": [*["MEMBER_ID_REQUIRED"] * 4, AWAY],
    "Join, with the id given": [f"waits {PREPARING}", "waits", *[f"waits {PREPARING}"] * 2, AWAY],
    "Join, new instance": [f"waits {PREPARING}", "waits", *[f"waits {PREPARING}"] * 2, AWAY],
    "Join, leader": [UNKNOWN, "waits", "Joined", f"waits {PREPARING}", AWAY],
    "Join, follower": [UNKNOWN, f"Joined {COMPLETING}", "Joined", "Joined", AWAY],
    "Join, follower, other metadata": [
        UNKNOWN,
        f"Joined {COMPLETING}",
        f"waits {PREPARING}",
        f"waits {PREPARING}",
        AWAY,
    ],
    "Join, other protocol type": [UNKNOWN, TYPE, TYPE, TYPE, AWAY],
    "Join, unknown id": [*[UNKNOWN] * 4, AWAY],
    "Sync, leader": [UNKNOWN, BUSY, "waits", "Synced", AWAY],
    "Sync, follower": [UNKNOWN, BUSY, "waits", "Synced", AWAY],
    "Sync, old generation": [UNKNOWN, OLD, OLD, OLD, AWAY],
    "Heartbeat": [UNKNOWN, BUSY, "Alive", "Alive", AWAY],
    "Heartbeat, old generation": [UNKNOWN, OLD, OLD, OLD, AWAY],
    "Leave, follower": [UNKNOWN, f"Left {COMPLETING}", f"Left {PREPARING}", f"Left {PREPARING}", AWAY],
    "Leave, everybody": [UNKNOWN, *["Left → Empty"] * 3, AWAY],
    "Commit, member": [UNKNOWN, "CommitAllowed", BUSY, "CommitAllowed", AWAY],
    "Commit, old generation": [UNKNOWN, OLD, OLD, OLD, AWAY],
    "Commit, no member": ["CommitAllowed", *[UNKNOWN] * 3, AWAY],
    "ClientGone": ["–"] * 5,
    "Delete": [f"waits {DEAD}", *["NON_EMPTY_GROUP"] * 3, "GROUP_ID_NOT_FOUND"],
    "OffsetDelete, topic read": ["OffsetDeleteAllowed", *["GROUP_SUBSCRIBED_TO_TOPIC"] * 3, "GROUP_ID_NOT_FOUND"],
    "OffsetDelete, other topic": [*["OffsetDeleteAllowed"] * 4, "GROUP_ID_NOT_FOUND"],
    "Tick, nothing due": ["–"] * 5,
    "Tick, sessions over": ["–", f"– {COMPLETING}", "– → Empty", "– → Empty", "–"],
    "Persisted": ["–", "–", "– → Stable", "–", "–"],
    "PersistFailed": ["–", "–", f"– {PREPARING}", "–", "– → Empty"],
    "Restore": ["not possible"] * 5,
    "Unload": [f"– {DEAD}"] * 4 + ["–"],
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("phase", Phase)
def test_every_event_in_every_state(phase: Phase, name: str):
    assert _outcome(phase, name) == TABLE[name][list(Phase).index(phase)]


def _outcome(phase: Phase, name: str) -> str:
    driver = STATES[phase]()
    event = EVENTS[name](driver)
    assert driver.group.phase is phase
    try:
        answer = _spelled(driver, event)
    except ValueError:
        return "not possible"
    return answer if driver.group.phase is phase else f"{answer} → {driver.group.phase}"


def _spelled(driver: GroupDriver, event: Event) -> str:
    """A single refusal inside an answer stands for the answer."""
    reply = driver.send(event) or driver.answers.get(TOKEN)
    if isinstance(reply, Left):
        reply = next((leaver.refusal for leaver in reply.members if leaver.refusal), reply)
    if isinstance(reply, OffsetDeleteAllowed):
        reply = next(iter(reply.refused.values()), reply)
    if isinstance(reply, Refusal):
        return str(error_of(reply))
    if reply is None:
        return "waits" if getattr(event, "token", None) == TOKEN else "–"
    return type(reply).__name__


def test_a_step_changes_nothing_in_place_and_can_be_repeated():
    for phase, make in STATES.items():
        for name, event_of in EVENTS.items():
            driver = make()
            event = event_of(driver)
            if name == "Restore":
                continue
            before, kept = driver.group, repr(driver.group)
            first = step(before, event, driver.now)
            assert repr(before) == kept, (phase, name)
            assert step(before, event, driver.now) == first, (phase, name)


def test_the_table_knows_every_event():
    assert TABLE.keys() == EVENTS.keys()
    kinds = {type(make(_stable())) for make in EVENTS.values()}
    assert kinds == set(get_args(events.Event))


def test_the_document_has_the_same_table():
    rows = {f"| {name} | {' | '.join(cells)} |" for name, cells in TABLE.items()}
    written = set(
        re.findall(
            r"^\| (?:Join|Sync|Heartbeat|Leave|Commit|ClientGone|\w*Delete|Tick|\w*Persist\w*|Restore|Unload)\b.*$",
            DOCUMENT.read_text(),
            re.MULTILINE,
        )
    )
    assert written == rows


def test_only_legal_changes_of_state_happen():
    """The table holds every change there is, except that of a group just created, which takes over what was stored."""
    seen = {
        (Phase(cell.partition("→ ")[2]), phase)
        for cells in TABLE.values()
        for phase, cell in zip(Phase, cells, strict=True)
        if "→" in cell
    }
    legal = {(phase, before) for phase, befores in PREDECESSORS.items() for before in befores if phase is not before}
    assert seen - legal == {(Phase.EMPTY, Phase.COMPLETING), (Phase.EMPTY, Phase.STABLE)}  # in two changes
    assert legal - seen == {(Phase.STABLE, Phase.EMPTY)}


def test_a_new_group_takes_over_what_was_stored():
    driver = GroupDriver(group=new_group("g", START))
    driver.send(Restore(_snapshot()))
    assert driver.group.phase is Phase.STABLE
    assert driver.group.generation == 4
