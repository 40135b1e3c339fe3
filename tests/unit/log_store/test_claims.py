"""Who leads: numbered claims, renewals, time-outs by one's own clock, the lock of a local root (R-1)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice.conf.settings import ClusterSettings
from sluice.log_store.claims import CLAIMS, Leadership, RootLock, claim_leadership, newest_claim
from sluice.log_store.clock import ManualClock
from sluice.log_store.errors import NotLeader, StorageError
from sluice.log_store.store import StoreConflict, open_store
from tests.support.faulty_store import FaultyStore

RENEWAL = f"{CLAIMS}/*.renewal"


class Root:
    def __init__(self, root: str | Path = "memory://") -> None:
        self.store = FaultyStore(open_store(root))
        self.clock = ManualClock()

    def claim(self, name: str, **options: Any) -> Leadership:
        settings = ClusterSettings(
            node_name=name, advertised_address=f"{name}:80", claim_renew_ms=100, claim_timeout_ms=15_000
        )
        return claim_leadership(self.store, self.clock, settings, wal_uuid=lambda: f"wal-{name}", **options)

    def time_passes_while_waiting(self) -> None:
        self.store.on("get", lambda _: self.clock.advance(1), RENEWAL, times=None)


@pytest.fixture
def root() -> Root:
    return Root()


def test_the_first_claim(root: Root) -> None:
    """R-1: epoch, node, address, WAL uuid, by put-if-absent."""
    leader = root.claim("a")

    assert leader.epoch == 1
    claim = newest_claim(root.store)
    assert claim is not None
    assert (claim.epoch, claim.node, claim.address, claim.wal, claim.purpose) == (1, "a", "a:80", "wal-a", "service")
    assert ("put_if_absent", f"{CLAIMS}/{1:020d}.json") in root.store.calls


def test_a_living_leader_is_left_alone(root: Root) -> None:
    """R-1: its renewals change, and the error says where it is."""
    leader = root.claim("a")
    root.store.on("get", lambda _: leader.renew(), RENEWAL, times=2)
    with pytest.raises(NotLeader, match="a:80 leads this cluster under epoch 1") as caught:
        root.claim("b")
    assert caught.value.fields["leader"] == "a:80"
    assert newest_claim(root.store) == leader.claim


def test_a_silent_leader_lapses_after_15_s(root: Root) -> None:
    """R-1: by the claimant's own boottime clock, however old the renewal says it is."""
    old = root.claim("a")
    begun = root.clock.boottime()
    root.time_passes_while_waiting()
    new = root.claim("b")

    assert new.epoch == 2
    assert 15 <= root.clock.boottime() - begun <= 18
    with pytest.raises(NotLeader) as caught:
        old.confirm(0)
    assert caught.value.fields["leader"] == "b:80"
    assert old.fenced


def test_wall_time_lapses_nothing(root: Root) -> None:
    """R-13: a jump of the wall clock is no silence."""
    leader = root.claim("a")
    root.store.on("get", lambda _: root.clock.jump(3600), RENEWAL, times=3)
    root.store.on("get", lambda _: leader.renew(), RENEWAL, times=1)
    with pytest.raises(NotLeader):
        root.claim("b")


def test_the_wait_can_be_cancelled(root: Root) -> None:
    root.claim("a")
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(NotLeader, match="cancelled"):
        root.claim("b", cancelled=cancelled)


def test_a_released_claim_needs_no_wait(root: Root) -> None:
    """R-1."""
    root.claim("a").release(clean=True)
    begun = root.clock.boottime()
    assert root.claim("b").epoch == 2
    assert root.clock.boottime() == begun


def test_a_leader_that_left_something_behind_is_waited_out(root: Root) -> None:
    """R-1, R-2: it may come back for its WAL."""
    root.claim("a").release(clean=False)
    begun = root.clock.boottime()
    root.time_passes_while_waiting()
    root.claim("b")
    assert root.clock.boottime() - begun >= 15


def test_released_while_waited_for(root: Root) -> None:
    leader = root.claim("a")
    root.store.on("get", lambda _: None, RENEWAL, times=2)
    root.store.on("get", lambda _: leader.release(clean=True), RENEWAL)
    assert root.claim("b").epoch == 2


def test_force_does_not_wait(root: Root) -> None:
    """R-1: and a forced claim counts as a newer one."""
    old = root.claim("a")
    assert root.claim("b", force=True).epoch == 2
    with pytest.raises(NotLeader):
        old.renew()


def test_two_claimants_one_number(root: Root) -> None:
    """R-1: who loses the race looks again, and takes the next number only under the same rules."""
    rival = msgspec.json.encode({"epoch": 1, "node": "r", "address": "r:80", "wal": "w", "purpose": "service"})

    def take(path: str) -> None:
        root.store.inner.put_if_absent(path, rival)
        raise StoreConflict(path)

    root.store.on("put_if_absent", take, f"{CLAIMS}/*")
    root.time_passes_while_waiting()
    begun = root.clock.boottime()
    assert root.claim("b").epoch == 2
    assert root.clock.boottime() - begun >= 15


def test_confirm_takes_a_young_check(root: Root) -> None:
    """R-3: how often storage is asked."""
    leader = root.claim("a")
    root.store.calls.clear()
    leader.confirm(1.0)
    assert root.store.calls == []
    root.clock.advance(1.5)
    leader.confirm(1.0)
    leader.confirm(1.0)
    assert root.store.counts["stat"] - 1 == len([c for c in root.store.calls if c[0] == "stat"]) == 1
    leader.confirm(0)
    assert len([c for c in root.store.calls if c[0] == "stat"]) == 2


def test_a_check_that_fails_is_no_check(root: Root) -> None:
    leader = root.claim("a")
    root.store.fail_before("stat")
    with pytest.raises(StorageError):
        leader.confirm(0)
    assert not leader.fenced
    leader.confirm(0)


def test_once_fenced_always_fenced(root: Root) -> None:
    """I-3: never writes again under its old epoch; everybody is told once."""
    told: list[int] = []
    leader = root.claim("a")
    leader.start(lambda: told.append(1))
    leader.fence("a test")
    leader.fence("again")
    assert told == [1]
    with pytest.raises(NotLeader):
        leader.confirm(100.0)
    leader.release(clean=True)
    root.time_passes_while_waiting()
    assert root.claim("b").epoch == 2  # a fenced leader releases nothing


def test_the_lock_of_a_local_root_decides_at_once(tmp_root: Path) -> None:
    """R-1: held is alive, free is dead."""
    root = Root(tmp_root)
    begun = root.clock.boottime()
    leader = root.claim("a")
    with pytest.raises(NotLeader, match="holds the lock"):
        root.claim("b")
    leader.release(clean=False)
    assert root.claim("b").epoch == 2
    assert root.clock.boottime() == begun


def test_a_forced_leader_without_the_lock_is_waited_out(tmp_root: Path) -> None:
    """R-1: the lock says nothing about a leader that never held it, until a renewal picks it up."""
    root = Root(tmp_root)
    first = root.claim("a")
    forced = root.claim("b", force=True)
    first.release(clean=False)
    begun = root.clock.boottime()
    root.time_passes_while_waiting()
    third = root.claim("c")
    assert root.clock.boottime() - begun >= 15
    forced.release(clean=False)
    third.release(clean=False)
    fourth = root.claim("d")
    fourth.renew()
    with pytest.raises(NotLeader):
        root.claim("e")
    fourth.release(clean=True)


def test_the_lock_alone(tmp_root: Path) -> None:
    one, two = RootLock(tmp_root), RootLock(tmp_root)
    assert one.acquire()
    assert one.acquire()
    assert not two.acquire()
    one.release()
    assert two.acquire()
    two.release()
    assert not RootLock(None).acquire()


def test_a_claim_that_fails_leaves_the_lock(tmp_root: Path) -> None:
    root = Root(tmp_root)
    root.store.fail_before("put_if_absent")
    with pytest.raises(StorageError):
        root.claim("a")
    root.claim("a").release(clean=True)
