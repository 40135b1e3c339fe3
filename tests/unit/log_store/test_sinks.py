"""What a partition remembers of sinks: the rule, and that commits, WAL, snapshots and restarts keep it (R-5)."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.sinks import DAY_MS, JOB_PREFIX, KEPT_MS, SinkEntries, SinkEntry, check_batch_id, check_query_id
from sluice.log_store.values import SinkStamp
from sluice.log_store.wal_format import ENTRY, HEADER_BYTES, Kind, padded
from tests.support.logs import NOW_MS, WAIT_S, Cluster, batch, folder_cluster, memory_cluster, values


def send(log: LogStore, text: str, query: str, number: int, piece: int, **options: Acks) -> Future[AppendResult]:
    return log.partition("t", 0).append(batch(text), sink=SinkStamp(query, number, piece), **options)


def sent(log: LogStore, text: str, query: str, number: int, piece: int) -> AppendResult:
    return send(log, text, query, number, piece).result(WAIT_S)


def opened(cluster: Cluster) -> LogStore:
    log = cluster.open()
    log.create_topic("t", partitions=1)
    return log


# --- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "piece", "held"), [(4, 9, True), (5, 1, True), (5, 2, True), (5, 3, False), (6, 0, False)]
)
def test_everything_at_or_below_the_newest_piece_is_held(number: int, piece: int, held: bool) -> None:
    entries = SinkEntries({"q": SinkEntry(5, 2, NOW_MS)})
    assert entries.holds(SinkStamp("q", number, piece)) is held
    assert not entries.holds(SinkStamp("other", number, piece))


def test_a_late_record_never_moves_an_entry_back() -> None:
    entries = SinkEntries()
    entries.record(SinkStamp("q", 5, 2), NOW_MS)
    entries.record(SinkStamp("q", 5, 1), NOW_MS + 9)
    assert entries.get("q") == SinkEntry(5, 2, NOW_MS)


def test_entries_are_kept_for_thirty_days_and_those_of_single_jobs_for_one() -> None:
    job = f"{JOB_PREFIX}1"
    entries = SinkEntries({"q": SinkEntry(0, 0, NOW_MS), job: SinkEntry(0, 0, NOW_MS)})
    entries.expire(NOW_MS + DAY_MS - 1)
    assert len(entries) == 2
    entries.expire(NOW_MS + KEPT_MS - 1)
    assert (entries.get("q"), entries.get(job)) == (SinkEntry(0, 0, NOW_MS), None)
    entries.expire(NOW_MS + KEPT_MS)
    assert not len(entries)


@pytest.mark.parametrize("wrong", ["", ".a", "a/b", "..", "é", "a" * 101, "a b", "a\n"])
def test_ids_that_could_not_be_a_name_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="query id"):
        check_query_id(wrong)
    assert check_query_id("a" * 100)
    with pytest.raises(InvalidRequest, match="batch id"):
        check_batch_id(-1)


# --- the log -------------------------------------------------------------------------------------


def test_a_piece_is_appended_once_and_its_entry_comes_with_its_rows() -> None:
    with memory_cluster() as cluster:
        log = opened(cluster)
        assert sent(log, "a", "q", 0, 0).duplicate is False
        assert sent(log, "b", "q", 0, 3).base_offset == 1
        for number, piece in ((0, 0), (0, 2), (0, 3)):
            assert sent(log, "x", "q", number, piece).duplicate
        assert sent(log, "c", "r", 0, 0).base_offset == 2
        assert values(log, "t") == [b"a", b"b", b"c"]
        state = log.partition("t", 0).state
        assert state.sinks.to_json() == {"q": [0, 3, NOW_MS], "r": [0, 0, NOW_MS]}


def test_a_repeat_waits_for_the_first_while_that_is_on_its_way() -> None:
    with memory_cluster() as cluster:
        log = opened(cluster)
        sent(log, "z", "other", 0, 0)
        with cluster.store.gate("put_if_absent", "topics/t/0/_delta_log/*") as gate:
            first = send(log, "a", "q", 0, 0)
            gate.wait()
            again = send(log, "a", "q", 0, 0)
            assert not again.done()
        assert (first.result(WAIT_S).duplicate, again.result(WAIT_S).duplicate) == (False, True)
        assert again.result().base_offset == 1
        assert values(log, "t") == [b"z", b"a"]


@pytest.mark.parametrize("how", ["reopen", "crash"])
def test_entries_survive_a_restart(tmp_root: Path, how: str) -> None:
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        sent(log, "a", "q", 7, 1)
        log = getattr(cluster, how)()
        assert sent(log, "a", "q", 7, 1).duplicate
        assert values(log, "t") == [b"a"]


def test_the_wal_alone_brings_an_entry_back(tmp_root: Path) -> None:
    """Rows that were acknowledged by the WAL and never committed come back with what makes them known."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        sent(log, "z", "other", 0, 0)
        cluster.store.fail_before("put_if_absent", "topics/t/0/_delta_log/*", times=None)
        send(log, "a", "q" * 100, 7, 2**32 - 1, acks=Acks.LEADER).result(WAIT_S)
        log.close(drain=False)
        cluster.store.clear()
        log = cluster.open(force=True)
        assert values(log, "t") == [b"z", b"a"]
        assert log.report.replayed == {"t-0": 1}
        assert sent(log, "a", "q" * 100, 7, 2**32 - 1).duplicate


def test_sink_batches_have_a_kind_of_their_own_in_the_wal(tmp_root: Path) -> None:
    """A version that knows of no sinks refuses the log, rather than read the rows from the wrong byte."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        log.append("t", 0, batch("plain")).result(WAIT_S)
        sent(log, "a", "q", 0, 0)
        file = min((tmp_root / "_sluice" / "wal").glob("wal-*.log"))
        data, position, kinds = file.read_bytes(), HEADER_BYTES, []
        while length := ENTRY.unpack_from(data, position)[0]:
            kinds.append(ENTRY.unpack_from(data, position)[2])
            position += padded(length)
        assert [kind for kind in kinds if kind in (Kind.BATCH, Kind.SINK_BATCH)][-2:] == [Kind.BATCH, Kind.SINK_BATCH]
        assert Kind.SINK_BATCH == 6


def test_a_state_snapshot_keeps_entries_and_old_ones_are_read() -> None:
    state = PartitionState()
    state.sinks.record(SinkStamp("q", 3, 1), NOW_MS)
    assert PartitionState.from_snapshot(state.to_snapshot())[0].sinks == state.sinks
    assert len(PartitionState.from_snapshot(PartitionState().to_snapshot())[0].sinks) == 0


def test_a_checkpoint_forgets_what_is_too_old() -> None:
    with memory_cluster() as cluster:
        log = opened(cluster)
        sent(log, "a", "q", 0, 0)
        partition = log.partition("t", 0)
        partition.expire_producers(NOW_MS + KEPT_MS - 1, ())
        assert sent(log, "a", "q", 0, 0).duplicate
        partition.expire_producers(NOW_MS + KEPT_MS, ())
        assert sent(log, "b", "q", 0, 0).duplicate is False
