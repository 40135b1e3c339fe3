"""Segments roll at append, are recorded, and no file crosses a roll (R-10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.log_store.engine import LogStore
from tests import counts
from tests.support.logs import Cluster, append, batch, folder_cluster, memory_cluster, settled, timed

FOLDER = "topics/t/0"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as made:
        yield made


def opened(cluster: Cluster, **configs: object) -> LogStore:
    log = cluster.open()
    log.create_topic("t", configs=configs)
    log.partition("t", 0).prepare()
    return log


def grouped(cluster: Cluster, log: LogStore, *batches: object) -> None:
    """All of them in one version, after a first one that keeps the door shut."""
    with cluster.store.gate("put", f"{FOLDER}/*") as gate:
        waiting = [log.append("t", 0, batches[0])]  # type: ignore[arg-type]
        gate.wait()
        waiting += [log.append("t", 0, one) for one in batches[1:]]  # type: ignore[arg-type]
    settled(waiting)


def no_file_crosses(log: LogStore) -> None:
    state = log.partition("t", 0).state
    for file in state.files:
        assert not [roll for roll in state.rolls if file.base_offset < roll < file.end_offset]


def test_by_time(cluster: Cluster) -> None:
    """R-10: largest time of the batch - that of the segment's first batch > segment.ms."""
    log = opened(cluster, **{"segment.ms": 100})
    for ms in (1000, 1100, 1101, 1150, 1300):
        append(log, "t", 0, timed(ms))
    assert log.partition("t", 0).state.rolls == [2, 4]


def test_by_bytes(cluster: Cluster) -> None:
    """R-10: size + batch > segment.bytes."""
    log = opened(cluster, **{"segment.bytes": 3_000, "compression.type": "uncompressed"})
    for _ in range(6):
        append(log, "t", 0, batch("v" * 900))
    state = log.partition("t", 0).state
    size = state.files[0].size
    per_segment = 3_000 // size
    assert per_segment >= 1
    assert state.rolls == list(range(per_segment, 6, per_segment))


def test_a_group_is_cut_where_a_segment_ends(cluster: Cluster) -> None:
    """R-10: one version, several files, none of them over a roll."""
    log = opened(cluster, **{"segment.ms": 100})
    grouped(cluster, log, timed(0), timed(50, 90), timed(120), timed(130), timed(400))
    state = log.partition("t", 0).state

    assert state.rolls == [3, 5]
    assert state.version == 2
    assert state.active is not None
    assert (state.active.first_timestamp_ms, state.active.max_timestamp_ms) == (400, 400)
    no_file_crosses(log)


def test_a_segment_knows_its_first_and_its_largest_time(cluster: Cluster) -> None:
    """R-10: its age counts from the first batch, retention by the largest time."""
    log = opened(cluster, **{"segment.ms": 100})
    grouped(cluster, log, timed(10), timed(20), timed(90, 30))
    active = log.partition("t", 0).state.active
    assert active is not None
    assert (active.base_offset, active.first_timestamp_ms, active.max_timestamp_ms) == (0, 10, 90)
    append(log, "t", 0, timed(111))
    assert log.partition("t", 0).state.rolls == [4]


def test_a_large_group_is_cut_by_bytes(cluster: Cluster) -> None:
    """R-10."""
    log = opened(cluster, **{"segment.bytes": 4_000, "compression.type": "uncompressed"})
    grouped(cluster, log, *[batch("v" * 1_000) for _ in range(9)])
    state = log.partition("t", 0).state
    assert state.rolls
    no_file_crosses(log)
    assert state.active is not None
    assert state.active.base_offset == state.rolls[-1]


def test_rolls_survive(tmp_root: Path) -> None:
    """R-10, I-6: reopen, and reopen from a checkpoint; the active segment goes on where it was."""
    with folder_cluster(tmp_root) as cluster:
        log = opened(cluster, **{"segment.ms": 100})
        for ms in (0, 150, 200):
            append(log, "t", 0, timed(ms))
        before = (log.partition("t", 0).state.rolls, log.partition("t", 0).state.active)
        assert before[0] == [1]
        log = cluster.reopen()
        assert (log.partition("t", 0).state.rolls, log.partition("t", 0).state.active) == before
        log.partition("t", 0).prepare()
        log.partition("t", 0).checkpoint()
        log = cluster.reopen()
        append(log, "t", 0, timed(250))
        append(log, "t", 0, timed(251))
        assert log.partition("t", 0).state.rolls == [1, 4]


def test_a_changed_config_holds_at_once(cluster: Cluster) -> None:
    from sluice.log_store.topic import ConfigChange

    log = opened(cluster)
    append(log, "t", 0, timed(0))
    append(log, "t", 0, timed(500))
    log.alter_topic("t", [ConfigChange("segment.ms", 100)])
    append(log, "t", 0, timed(600))
    assert log.partition("t", 0).state.rolls == [2]


# Each example opens two clusters.
@settings(max_examples=min(200, counts.HYPOTHESIS_EXAMPLES))
@example([[0], [150], [200], [270]])
@example([[0], [150], [240], [255]])
@given(st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=3), min_size=2, max_size=8))
def test_grouping_does_not_change_the_rolls(batches: list[list[int]]) -> None:
    """R-10: batches that share a version roll where they would have rolled one by one, so segments keep their span."""
    rolls = []
    for together in (False, True):
        with memory_cluster() as cluster:
            log = opened(cluster, **{"segment.ms": 100})
            if together:
                grouped(cluster, log, *[timed(*times) for times in batches])
            else:
                for times in batches:
                    append(log, "t", 0, timed(*times))
            no_file_crosses(log)
            rolls.append(log.partition("t", 0).state.rolls)
    assert rolls[0] == rolls[1]
