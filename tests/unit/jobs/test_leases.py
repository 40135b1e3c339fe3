"""One run of a job at a time: taken, held, lapsed, lost (R-13)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sluice.jobs.leases import LEASES, Lease, LeaseHeld, LeaseLost
from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.store import Store, open_store
from tests.support.faulty_store import FaultyStore
from tests.support.logs import eventually

QUICK = {"renew_s": 0.02, "timeout_s": 0.3}


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store("memory://" if request.param == "memory" else tmp_path / "root", fsync=False)


def lease(store: Store, key: str = "job", **changes: float) -> Lease:
    return Lease(store, SystemClock(), key, **QUICK | changes)


def test_a_second_run_is_refused_while_the_first_is_alive(store: Store) -> None:
    with lease(store) as first:
        with pytest.raises(LeaseHeld, match=f"job is being run by process {os.getpid()}"):
            lease(store).acquire()
        first.check()
        with lease(store, "other"):
            pass  # each job has its own
    with lease(store) as next_one:
        next_one.check()


def test_old_numbers_are_deleted(store: Store) -> None:
    for _ in range(4):
        with lease(store):
            pass
    assert sum(item.name.endswith(".json") for item in store.list(f"{LEASES}/job")) == 1


def test_a_silent_holder_is_waited_out() -> None:
    """It lives, but does not renew: without a file lock nobody can see that it lives."""
    store = open_store("memory://")
    silent = lease(store, renew_s=60.0)
    silent.acquire()
    with lease(store) as next_one:
        next_one.check()
        with pytest.raises(LeaseLost):
            silent._renew()
        with pytest.raises(LeaseLost):
            silent.check()
    silent.release()


def test_a_run_that_could_not_renew_for_too_long_stops_by_itself() -> None:
    faulty = FaultyStore(open_store("memory://"))
    held = lease(faulty)
    held.acquire()
    faulty.fail_before("replace", times=None)

    def lost() -> bool:
        try:
            held.check()
        except LeaseLost:
            return True
        return False

    eventually(lost)
    faulty.clear()
    held.release()


def test_of_many_that_come_at_once_one_gets_it(store: Store) -> None:
    won: list[Lease] = []
    gate = threading.Barrier(6)

    def run() -> None:
        gate.wait()
        try:
            won.append(lease(store, timeout_s=60.0).acquire())
        except LeaseHeld:
            return

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    won[0].release()


def test_a_killed_holder_is_seen_at_once_on_a_local_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    code = (
        "import sys, time\n"
        "from sluice.jobs.leases import Lease\n"
        "from sluice.log_store.clock import SystemClock\n"
        "from sluice.log_store.store import open_store\n"
        "Lease(open_store(sys.argv[1]), SystemClock(), 'job').acquire()\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        store = open_store(root)
        with pytest.raises(LeaseHeld, match=str(holder.pid)):
            Lease(store, ManualClock(), "job").acquire()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with Lease(store, ManualClock(), "job"):
            pass  # a clock that stands still: nothing was waited for
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_a_name_that_leads_out_of_the_folder(store: Store) -> None:
    with pytest.raises(ValueError, match="not a name for a lease"):
        lease(store, "../x")
