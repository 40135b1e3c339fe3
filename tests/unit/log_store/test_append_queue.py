"""What each acknowledgement promises, and when there is no room for more (DESIGN section 2)."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.log_store.append_queue import AppendQueue
from sluice.log_store.catalog_states import METADATA_REF
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import Overloaded, RequestTimedOut, SluiceError, WalFull
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.pending_budget import BATCH_OVERHEAD, PendingBudget, PendingShare
from sluice.log_store.wal import Wal
from sluice.log_store.wal_values import WalBatch
from tests.support.logs import (
    ALL,
    LEADER,
    NONE,
    WAIT_S,
    Cluster,
    append,
    batch,
    eventually,
    folder_cluster,
    memory_cluster,
    rows,
    settled,
    stamp,
    values,
)

FOLDER = "topics/t/0"
COMMITS = f"{FOLDER}/_delta_log/*"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as made:
        yield made


def opened(cluster: Cluster, partitions: int = 1) -> LogStore:
    log = cluster.open()
    log.create_topic("t", partitions=partitions)
    for number in range(partitions):
        log.partition("t", number).prepare()
    return log


# --- acknowledgements --------------------------------------------------------------------------


class HeldWal:
    """Takes the place of `Wal.append`: entries are on disk when the test says so."""

    def __init__(self, log: LogStore) -> None:
        wal = log.runtime.wal
        assert wal is not None
        self.held: list[tuple[WalBatch, object]] = []
        wal.append = lambda entry, done: self.held.append((entry, done))  # type: ignore[method-assign]

    def offsets(self) -> list[int]:
        return [entry.base_offset for entry, _ in self.held]

    def fsynced(self) -> None:
        for _, done in self.held:
            done(None)  # type: ignore[operator]


def test_acks_0_is_answered_at_once(cluster: Cluster) -> None:
    """Section 2: nothing is promised, and the batch is in the log a moment later all the same."""
    log = opened(cluster)
    with cluster.store.gate("put", f"{FOLDER}/*") as gate:
        future = log.append("t", 0, batch("a"), acks=NONE)
        assert future.done()
        gate.wait()
    eventually(lambda: values(log, "t") == [b"a"])


def test_acks_1_is_answered_by_the_wal_before_the_commit(tmp_root: Path) -> None:
    """Section 2: after its fsync, while the commit is still held up."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        with cluster.store.gate("put_if_absent", COMMITS) as gate:
            future = log.append("t", 0, batch("a"), acks=LEADER)
            assert future.result(WAIT_S).base_offset == 0
            gate.wait()
            assert (log.partition("t", 0).high_watermark, log.partition("t", 0).log_end) == (0, 1)
        eventually(lambda: log.partition("t", 0).high_watermark == 1)


def wait_for_wal(log: LogStore) -> None:
    """Until a commit has written its files and waits for the WAL, and for nothing else."""
    eventually(lambda: log.partition("t", 0)._logged._waiters)  # type: ignore[attr-defined]


def versions(cluster: Cluster) -> int:
    return sum(item.name.endswith(".json") for item in cluster.store.list(f"{FOLDER}/_delta_log"))


def test_acks_1_waits_for_the_fsync(tmp_root: Path) -> None:
    """Section 2: and no commit may become visible before the WAL has what it holds."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        held = HeldWal(log)
        waiting = [log.append("t", 0, batch(str(acks)), acks=acks) for acks in (LEADER, ALL)]
        assert held.offsets() == [0, 1]
        wait_for_wal(log)
        assert not any(future.done() for future in waiting)
        assert versions(cluster) == 1
        held.fsynced()
        settled(waiting)


def test_no_commit_holds_what_the_wal_does_not(tmp_root: Path) -> None:
    """Section 2: of two waiting batches one is in the WAL; the other is not committed with it."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        partition, held = log.partition("t", 0), HeldWal(log)
        first = log.append("t", 0, batch("a"))
        wait_for_wal(log)
        second = log.append("t", 0, batch("b"))
        held.held[0][1](None)  # type: ignore[operator]
        assert first.result(WAIT_S).base_offset == 0
        wait_for_wal(log)
        assert (partition.high_watermark, second.done()) == (1, False)
        held.held[1][1](None)  # type: ignore[operator]
        assert second.result(WAIT_S).base_offset == 1


def test_acks_1_survives_what_was_never_committed(tmp_root: Path) -> None:
    """Section 2, I-6: storage refuses, the process ends, the WAL brings it back at the same offset."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        append(log, "t", 0, batch("a"))
        cluster.store.fail_before("put", f"{FOLDER}/*", times=None)
        assert append(log, "t", 0, batch("b"), acks=LEADER, stamp=stamp(2, 0)).base_offset == 1
        log.close(drain=False)
        cluster.store.clear()
        log = cluster.open()
        assert rows(log, "t") == [(0, b"a"), (1, b"b")]
        assert log.report.replayed == {"t-0": 1}
        assert append(log, "t", 0, batch("b"), stamp=stamp(2, 0)).duplicate


def test_acks_all_is_answered_by_the_commit(cluster: Cluster) -> None:
    """Section 2: HW past it."""
    log = opened(cluster)
    with cluster.store.gate("put_if_absent", COMMITS) as gate:
        future = log.append("t", 0, batch("a"))
        gate.wait()
        assert not future.done()
    assert future.result(WAIT_S).base_offset == 0
    assert log.partition("t", 0).high_watermark == 1


def test_without_fsync_acks_all_writes_no_wal(tmp_root: Path) -> None:
    """Section 2: the commit itself survives kill -9."""
    with folder_cluster(tmp_root, fsync=False) as cluster:
        log = opened(cluster)
        held = HeldWal(log)
        append(log, "t", 0, batch("a"))
        append(log, "t", 0, batch("b"), acks=NONE)
        assert held.held == []


def test_acks_1_on_a_memory_root(cluster: Cluster) -> None:
    """There is no WAL and no promise beyond the process: accepted is answered."""
    log = opened(cluster)
    assert log.runtime.wal is None
    with cluster.store.gate("put", f"{FOLDER}/*"):
        assert log.append("t", 0, batch("a"), acks=LEADER).done()


def test_acks_1_leaves_no_hole_below_it(tmp_root: Path) -> None:
    """Section 2: every uncommitted batch below an acks=1 offset goes into the WAL too, in order and once."""
    with folder_cluster(tmp_root, fsync=False) as cluster:
        log = opened(cluster)
        held = HeldWal(log)
        with cluster.store.gate("put", f"{FOLDER}/*") as gate:
            waiting = [log.append("t", 0, batch("a")), log.append("t", 0, batch("b"))]
            gate.wait()
            assert held.offsets() == []
            waiting.append(log.append("t", 0, batch("c"), acks=LEADER))
            assert held.offsets() == [0, 1, 2]
            waiting.append(log.append("t", 0, batch("d"), acks=LEADER))
            assert held.offsets() == [0, 1, 2, 3]
            assert not any(future.done() for future in waiting)
            held.fsynced()
            assert waiting[2].done()
            assert not waiting[0].done()
        settled(waiting)


def test_acks_1_without_hole_after_a_crash(tmp_root: Path) -> None:
    """Section 2: the batches below it come back with it, though nobody was told about them."""
    with folder_cluster(tmp_root, fsync=False) as cluster:
        log = opened(cluster)
        cluster.store.fail_before("put", f"{FOLDER}/*", times=None)
        unanswered = log.append("t", 0, batch("a"))
        append(log, "t", 0, batch("b"), acks=LEADER)
        log.close(drain=False)
        with pytest.raises(RequestTimedOut):
            unanswered.result(0)
        cluster.store.clear()
        assert rows(cluster.open(), "t") == [(0, b"a"), (1, b"b")]


def test_a_repeat_waits_with_the_first(cluster: Cluster) -> None:
    """A repeat of what is in flight is answered with it, and is nothing new."""
    log = opened(cluster)
    with cluster.store.gate("put", f"{FOLDER}/*") as gate:
        first = log.append("t", 0, batch("a", "b"), stamp=stamp(2, 0))
        gate.wait()
        again = log.append("t", 0, batch("a", "b"), stamp=stamp(2, 0))
        assert not again.done()
    assert first.result(WAIT_S).base_offset == again.result(WAIT_S).base_offset == 0
    assert (first.result().duplicate, again.result().duplicate) == (False, True)
    assert append(log, "t", 0, batch("a", "b"), stamp=stamp(2, 0)).duplicate
    assert log.partition("t", 0).log_end == 2


# --- refusing ----------------------------------------------------------------------------------


def test_pending_bytes_are_bounded() -> None:
    """Full is a refusal with a time to come back, never unbounded memory; no offset is taken."""
    with memory_cluster(partition_pending_max_bytes=5_000) as cluster:
        log = opened(cluster)
        with cluster.store.gate("put", f"{FOLDER}/*") as gate:
            waiting = [log.append("t", 0, batch("v" * 3_000))]
            gate.wait()
            with pytest.raises(Overloaded) as caught:
                log.append("t", 0, batch("v" * 3_000), stamp=stamp(2, 0))
            assert caught.value.fields["retry_after_s"] > 0
            waiting.append(log.append("t", 0, batch("small")))
        assert [result.base_offset for result in settled(waiting)] == [0, 1]
        assert append(log, "t", 0, batch("v" * 30_000), stamp=stamp(2, 0)).base_offset == 2


def test_pending_bytes_of_all_partitions_together_are_bounded() -> None:
    """A thousand partitions below their own limit would hold all that the WAL takes."""
    with memory_cluster(pending_max_bytes=2 * (3_000 + BATCH_OVERHEAD) + 1_000) as cluster:
        log = opened(cluster, partitions=4)
        with cluster.store.gate("put", "topics/t/*", times=None) as gate:
            waiting = [log.append("t", number, batch("v" * 2_500)) for number in range(2)]
            gate.wait()
            with pytest.raises(Overloaded, match="all partitions together") as caught:
                log.append("t", 2, batch("v" * 2_500))
            assert caught.value.fields["retry_after_s"] > 0
            AppendQueue(METADATA_REF, log.runtime, PartitionState()).admit(2_500, ALL)  # the service's own is no load
        settled(waiting)
        assert log.runtime.pending.held == 0
        assert append(log, "t", 3, batch("v" * 100_000)).base_offset == 0  # alone it may be as large as it likes


def test_a_deleted_topic_gives_back_what_it_held() -> None:
    with memory_cluster() as cluster:
        log = opened(cluster)
        with cluster.store.gate("put", f"{FOLDER}/*", times=None) as gate:
            waiting = log.append("t", 0, batch("v" * 2_500))
            gate.wait()
            log.delete_topic("t")
        with pytest.raises(SluiceError):
            waiting.result(WAIT_S)
        eventually(lambda: (gc.collect(), log.runtime.pending.held == 0)[1])


def test_the_budget_may_be_given_back_in_the_middle_of_its_own_lines() -> None:
    """The garbage collector runs finalizers wherever it likes, on a thread that holds the budget's lock as well."""
    budget = PendingBudget(1 << 20)
    share = PendingShare(budget)
    share.add(1)

    def collect() -> None:
        with budget._lock:
            share.__del__()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert budget.held == 0


@pytest.mark.parametrize(
    ("fill", "room", "refused"),
    [(0.5, True, set()), (0.81, True, {LEADER}), (0.96, True, {LEADER, ALL, NONE}), (0.1, False, {LEADER, ALL, NONE})],
)
def test_a_filling_wal_refuses(
    tmp_root: Path, monkeypatch: pytest.MonkeyPatch, fill: float, room: bool, refused: set[int]
) -> None:
    """Section 2: acks=1 from 80 % on, everything that needs the WAL close to full; reads go on."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        append(log, "t", 0, batch("a"))
        monkeypatch.setattr(Wal, "fill", property(lambda _: fill))
        monkeypatch.setattr(Wal, "has_room", lambda _, size: room)
        for acks in (LEADER, ALL, NONE):
            if acks in refused:
                with pytest.raises(WalFull, match="write-ahead log"):
                    log.append("t", 0, batch("b"), acks=acks)
            else:
                append(log, "t", 0, batch("b"), acks=acks)
        assert values(log, "t")[0] == b"a"


def test_without_fsync_a_full_wal_stops_only_acks_1(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 2."""
    with folder_cluster(tmp_root, fsync=False) as cluster:
        log = opened(cluster)
        monkeypatch.setattr(Wal, "fill", property(lambda _: 1.0))
        append(log, "t", 0, batch("b"))
        with pytest.raises(WalFull):
            log.append("t", 0, batch("b"), acks=LEADER)
