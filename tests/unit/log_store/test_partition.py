"""One led partition: what each acknowledgement means, how commits are grouped, when produce is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import (
    InvalidRequest,
    NotLeader,
    OutOfOrderSequence,
    RequestTimedOut,
    StorageError,
)
from tests.support.logs import (
    LEADER,
    NOW_MS,
    WAIT_S,
    Cluster,
    append,
    append_one_by_one,
    batch,
    commits,
    commits_done,
    eventually,
    folder_cluster,
    memory_cluster,
    rows,
    settled,
    stamp,
    timed,
    values,
)

FOLDER = "topics/t/0"
COMMITS = f"{FOLDER}/_delta_log/*"
HOUR = 3600.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as made:
        yield made


def opened(cluster: Cluster, **configs: object) -> LogStore:
    log = cluster.open()
    log.create_topic("t", configs=configs)
    log.partition("t", 0).prepare()
    return log


def appends(cluster: Cluster) -> int:
    return sum(commit.details["kind"] == "append" for commit in commits(cluster.store, FOLDER))


# --- offsets -----------------------------------------------------------------------------------


def test_offsets_are_dense_and_start_at_0(cluster: Cluster) -> None:
    """I-1: also over a restart; a refused batch takes none."""
    log = opened(cluster)
    assert append(log, "t", 0, batch("a", "b")).base_offset == 0
    assert append(log, "t", 0, batch("c"), stamp=stamp(2, 0)).base_offset == 2
    with pytest.raises(OutOfOrderSequence):
        append(log, "t", 0, batch("x"), stamp=stamp(2, 7))
    assert append(log, "t", 0, batch("d")).base_offset == 3
    log = cluster.reopen()
    assert append(log, "t", 0, batch("e")).base_offset == 4
    assert [offset for offset, _ in rows(log, "t")] == [0, 1, 2, 3, 4]


def test_what_is_no_batch_is_refused(cluster: Cluster) -> None:
    log = opened(cluster)
    for wrong in (batch(), pa.record_batch({"value": [b"x"]})):
        with pytest.raises(InvalidRequest):
            log.append("t", 0, wrong)
    assert log.partition("t", 0).log_end == 0


# --- grouping ----------------------------------------------------------------------------------


def test_idle_commits_at_once_busy_groups() -> None:
    """I-7: the first batch of an idle partition waits for nobody, those after it share one version."""
    with memory_cluster(commit_interval_ms=50) as cluster:
        log = opened(cluster)
        append(log, "t", 0, batch("a"))
        waiting = [log.append("t", 0, batch(str(n))) for n in range(10)]
        commits_done(log)
        assert not any(future.done() for future in waiting)
        assert appends(cluster) == 1
        cluster.tick(0.05)
        assert [result.base_offset for result in settled(waiting)] == list(range(1, 11))
        assert appends(cluster) == 2
        cluster.tick(0.05)
        append(log, "t", 0, batch("idle again"))
        assert appends(cluster) == 3


def test_the_topics_own_interval_holds_and_changes_at_once() -> None:
    """I-7: `commit.interval.ms` of the topic goes before that of the service."""
    from sluice.log_store.topic import ConfigChange

    with memory_cluster(commit_interval_ms=0) as cluster:
        log = opened(cluster, **{"commit.interval.ms": 1000})
        append(log, "t", 0, batch("a"))
        waiting = log.append("t", 0, batch("b"))
        cluster.tick(0.5)
        commits_done(log)
        assert not waiting.done()
        cluster.tick(0.5)
        settled([waiting])
        log.alter_topic("t", [ConfigChange("commit.interval.ms", 0)])
        append_one_by_one(log, "t", "cd")
        assert appends(cluster) == 4


def test_a_group_is_bounded(cluster: Cluster) -> None:
    """`commit.max.bytes`: memory of one commit."""
    with memory_cluster(commit_max_bytes=3_000) as cluster:
        log = opened(cluster)
        with cluster.store.gate("put", f"{FOLDER}/*") as gate:
            waiting = [log.append("t", 0, batch("x"))]
            gate.wait()
            waiting += [log.append("t", 0, batch("v" * 1_000)) for _ in range(6)]
        settled(waiting)
        assert appends(cluster) == 4


# --- when it does not go well -----------------------------------------------------------------


def test_storage_that_comes_back_gets_everything_in_order(cluster: Cluster) -> None:
    """Section 2: retried in order until committed."""
    log = opened(cluster)
    outage = cluster.store.fail_before("put", f"{FOLDER}/*", times=None)
    waiting = [log.append("t", 0, batch(str(n))) for n in range(5)]
    cluster.until(lambda: outage.hits >= 3, step=0.5)
    assert not any(future.done() for future in waiting)
    outage.cancel()
    cluster.settled(*waiting)
    assert values(log, "t") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("crash", [False, True])
def test_parking(tmp_root: Path, crash: bool) -> None:
    """Section 2: after 60 s its entries go to a file of their own, produce is refused, other partitions go on."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = opened(cluster)
        partition, wal = log.partition("t", 0), log.runtime.wal
        assert wal is not None
        outage = cluster.store.fail_before("put_if_absent", COMMITS, times=None)
        append(log, "t", 0, batch("a"), acks=LEADER)
        cluster.tick(59)
        assert not partition.parked
        cluster.until(lambda: partition.parked, step=2)
        eventually(wal.parked)
        with pytest.raises(StorageError, match="parked"):
            log.append("t", 0, batch("b"))
        assert log.troubles() == ["t-0: parked, it could not commit"]
        log.create_topic("other")
        append(log, "other", 0, batch("x"))

        outage.cancel()
        if crash:
            log = cluster.crash()
        else:
            cluster.until(lambda: not log.troubles(), step=2)
        assert rows(log, "t") == [(0, b"a")]
        assert log.troubles() == []
        assert log.runtime.wal is not None
        assert log.runtime.wal.parked() == []
        assert append(log, "t", 0, batch("b")).base_offset == 1


def test_a_closed_partition_takes_nothing(cluster: Cluster) -> None:
    log = opened(cluster)
    partition = log.partition("t", 0)
    with cluster.store.gate("put", f"{FOLDER}/*") as gate:
        waiting = log.append("t", 0, batch("a"))
        gate.wait()
        partition.close()
        with pytest.raises(RequestTimedOut):
            waiting.result(WAIT_S)
        with pytest.raises(NotLeader):
            partition.append(batch("b"))


def test_listeners_hear_every_move(cluster: Cluster) -> None:
    log = opened(cluster)
    heard: list[int] = []
    listen = heard.append
    log.partition("t", 0).add_listener(listen)
    append_one_by_one(log, "t", "ab")
    eventually(lambda: heard == [1, 2])
    log.partition("t", 0).remove_listener(listen)
    append_one_by_one(log, "t", "c")
    assert heard == [1, 2]


# --- time --------------------------------------------------------------------------------------


def test_log_append_time_overwrites_every_record(cluster: Cluster) -> None:
    """Kafka's rule: one time for the batch, and it is returned."""
    log = opened(cluster, **{"message.timestamp.type": "LogAppendTime"})
    cluster.clock.advance(5)
    assert append(log, "t", 0, timed(1, 2, 3)).append_ms == NOW_MS + 5_000
    assert log.reads("t", 0).at_time(NOW_MS + 5_000).offset == 0
    assert log.reads("t", 0).max_timestamp().timestamp_ms == NOW_MS + 5_000


def test_create_time_is_kept(cluster: Cluster) -> None:
    log = opened(cluster)
    append(log, "t", 0, timed(7, 3))
    assert log.reads("t", 0).max_timestamp().timestamp_ms == 7


@pytest.mark.parametrize("configured", ["CreateTime", "LogAppendTime"])
def test_append_times_never_go_back(cluster: Cluster, configured: str) -> None:
    """R-13: wall time jumps by an hour, forth and back; offsets do not care; a restart remembers."""
    log = opened(cluster, **{"message.timestamp.type": configured})
    results = [append(log, "t", 0, batch("a"))]
    for seconds in (HOUR, -2 * HOUR, HOUR, -HOUR):
        cluster.clock.jump(seconds)
        results.append(append(log, "t", 0, batch("b")))
    log = cluster.reopen()
    results.append(append(log, "t", 0, batch("c")))

    times = [result.append_ms for result in results]
    assert times == sorted(times)
    assert times[-1] == NOW_MS + 3_600_000
    assert [result.base_offset for result in results] == list(range(6))


def test_windows_do_not_expire_while_time_is_not_trusted(tmp_root: Path) -> None:
    """R-13: a jump must not turn a retry into a second append; confirmed time, or real silence, expires."""
    with folder_cluster(tmp_root, producer_id_expiration_ms=1_800_000) as cluster:
        log = opened(cluster)
        append(log, "t", 0, batch("a"), stamp=stamp(2, 0))
        cluster.clock.jump(HOUR)
        log.partition("t", 0).checkpoint()
        assert append(log, "t", 0, batch("a"), stamp=stamp(2, 0)).duplicate
        log.partition("t", 0).checkpoint()
        assert set(log.partition("t", 0).state.producers) == {2}
        log.runtime.wall.confirm()
        log.partition("t", 0).checkpoint()
        assert set(log.partition("t", 0).state.producers) == set()


def test_an_expired_producer_is_forgotten_live_and_after_a_restart(tmp_root: Path) -> None:
    """I-6: what a restart forgets, the running service forgets too: any sequence is accepted."""
    with folder_cluster(tmp_root, producer_id_expiration_ms=1_800_000) as cluster:
        log = opened(cluster)
        append(log, "t", 0, batch("a"), stamp=stamp(2, 0))
        cluster.clock.advance(HOUR)
        append(log, "t", 0, batch("b"), stamp=stamp(4, 0))
        log.partition("t", 0).checkpoint()

        assert set(log.partition("t", 0).windows) == {4}
        assert append(log, "t", 0, batch("c"), stamp=stamp(2, 9)).base_offset == 2
        log = cluster.reopen()
        assert append(log, "t", 0, batch("c"), stamp=stamp(2, 9)).duplicate
