"""Who may lead, and when somebody else may (R-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import NotLeader
from sluice.log_store.object_store import MemoryStore
from sluice.log_store.records import make_batch
from tests.support.harness import SMALL, TOPIC, Process, boottime, check, settings_of

Start = Callable[..., Process]

AT_ONCE_S = 60.0
LONG: dict[str, Any] = SMALL | {"claim_timeout_ms": 120_000}
"""Who has to wait a claim out waits so long that even a busy machine cannot be taken for it."""
SPEC: dict[str, Any] = {
    "producers": [["bare", "plain", "1", 0]],
    "settings": LONG | {"advertised_address": "first:8080"},
}


def test_local_root_refuses_a_second_leader_and_takes_over_a_dead_one(
    start: Start, tmp_root: Path, history: Path
) -> None:
    """R-1: the file lock of a local root decides at once, both ways."""
    leader = start(**SPEC)
    leader.wait_for("ack", count=5)
    begun = boottime()
    with pytest.raises(NotLeader, match="first:8080") as refused:
        LogStore.open(settings_of(str(tmp_root), **LONG))
    assert refused.value.fields["leader"] == "first:8080"
    assert boottime() - begun < AT_ONCE_S
    assert not (tmp_root / "_sluice" / "wal-1").exists(), "whoever is refused leaves nothing behind"
    second = start(to=history.with_name("second.jsonl"), **SPEC)
    assert second.wait() == 3
    (refusal,) = second.events("refused")
    assert refusal["leader"] == "first:8080"
    assert refusal["seconds"] < AT_ONCE_S
    leader.wait_for("ack", count=len(leader.events("ack")) + 1)
    leader.kill()
    heir = start(**SPEC)
    assert heir.wait_for("opened")["seconds"] < AT_ONCE_S
    heir.wait_for("ack")
    heir.stop()
    check(tmp_root, history)


def test_leader_that_died_before_its_first_renewal(start: Start, tmp_root: Path, history: Path) -> None:
    """R-1: a claim says itself that its maker held the lock, so its death is known without a renewal."""
    leader = start(**SPEC)
    epoch = leader.wait_for("opened")["epoch"]
    leader.wait_for("ack")
    leader.kill()
    (tmp_root / "_sluice" / "claims" / f"{epoch:020d}.renewal").unlink()
    heir = start(**SPEC)
    assert heir.wait_for("opened")["seconds"] < AT_ONCE_S
    heir.stop()
    check(tmp_root, history)


# --- where no file lock helps ------------------------------------------------------------------------------

RENEW_MS, SILENT_MS, PATIENT_MS = 100, 800, 60_000


@pytest.fixture
def opened() -> Iterator[list[LogStore]]:
    logs: list[LogStore] = []
    yield logs
    for log in logs:
        log.close(drain=False)


def _lead(store: MemoryStore, opened: list[LogStore], address: str, timeout_ms: int = PATIENT_MS) -> LogStore:
    """Whoever comes waits for `timeout_ms` without a renewal."""
    claims = {"claim_renew_ms": RENEW_MS, "claim_timeout_ms": timeout_ms}
    opened.append(LogStore.open(settings_of("memory://", advertised_address=address, **claims), store=store))
    return opened[-1]


def test_renewed_claim_is_never_taken(opened: list[LogStore]) -> None:
    """R-1: as long as renewals are seen to change, the claim stands; the refusal names the leader."""
    store = MemoryStore()
    first = _lead(store, opened, "first:1")
    for _ in range(3):
        with pytest.raises(NotLeader, match="first:1"):
            _lead(store, opened, "second:2")
    first.append(TOPIC, 0, make_batch([{"value": b"a"}], default_ms=1)).result(60)
    assert not first.fenced


def test_silent_claim_is_waited_out(opened: list[LogStore]) -> None:
    """R-1: without a renewal for the time-out by one's own clock another process claims; the silent one is fenced."""
    store = MemoryStore()
    first = _lead(store, opened, "first:1")
    first.append(TOPIC, 0, make_batch([{"value": b"a"}], default_ms=1)).result(60)
    first.runtime.leadership._stop.set()  # as if its machine were gone: no renewal, no release
    begun = boottime()
    second = _lead(store, opened, "second:2", SILENT_MS)
    assert boottime() - begun >= SILENT_MS / 1000
    second.append(TOPIC, 0, make_batch([{"value": b"b"}], default_ms=1)).result(60)
    with pytest.raises(NotLeader) as refused:
        first.append(TOPIC, 0, make_batch([{"value": b"c"}], default_ms=1)).result(60)
    assert refused.value.fields.get("leader", "second:2") == "second:2"
    assert first.fenced
    values = [v for batch in first.reads(TOPIC, 0).scan() for v in batch.column("value").to_pylist()]
    assert values == [b"a", b"b"]


def test_released_claim_is_taken_at_once(opened: list[LogStore]) -> None:
    """R-1: a leader that ended in order need not be waited out."""
    store = MemoryStore()
    _lead(store, opened, "first:1").close()
    begun = boottime()
    _lead(store, opened, "second:2")
    assert boottime() - begun < PATIENT_MS / 1000
