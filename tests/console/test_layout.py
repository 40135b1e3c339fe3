"""The picture of a log: every file is in it, of the right kind, and what retention takes next is marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.api.console.layout import MOST_BLOCKS, Expiry, Kind, lay_out
from sluice.log_store.delta_log import DataFile
from sluice.log_store.log_shape import LogShape
from sluice.log_store.retention import decide_retention
from sluice.log_store.topic import TopicConfig

MIB = 1 << 20
HOUR = 3_600_000
NOW = 1_700_000_000_000


def file(base: int, end: int, size: int = 1000, ms: int = NOW) -> DataFile:
    return DataFile(f"{base}.parquet", size, base, end, end - base, ms, ms, ms)


def shape(*files: DataFile, rolls: tuple[int, ...] = (), log_start: int = 0) -> LogShape:
    return LogShape(3, log_start, files[-1].end_offset if files else log_start, files, rolls)


def test_kinds() -> None:
    log = shape(file(0, 10), file(10, 20, MIB), file(20, 30, MIB - 1))
    kinds = [block.kind for block in lay_out(log, TopicConfig(), 10, NOW).blocks]
    assert kinds == [Kind.SMALL, Kind.MERGED, Kind.SMALL]
    compacted = lay_out(log, TopicConfig(cleanup_policy=("compact",)), 20, NOW)
    assert [block.kind for block in compacted.blocks] == [Kind.CLEANED, Kind.CLEANED, Kind.SMALL]


def test_what_expires_and_when() -> None:
    config = TopicConfig(retention_ms=HOUR)
    files = [file(0, 10, ms=NOW - HOUR - 1), file(10, 20, ms=NOW - 57 * 60_000), file(20, 30, ms=NOW)]
    found = lay_out(shape(*files, rolls=(10, 20)), config, 0, NOW)
    assert [one.expiry for one in found.blocks] == [Expiry.DUE, Expiry.SOON, Expiry.NONE]
    assert [(one.expiry, one.active) for one in found.segments] == [
        (Expiry.DUE, False),
        (Expiry.SOON, False),
        (Expiry.NONE, True),
    ]
    assert "over 3600000" in found.segments[0].why
    assert found.segments[2].why == ""
    # A clock that cannot be trusted deletes nothing, so nothing is about to go.
    assert {one.expiry for one in lay_out(shape(*files, rolls=(10, 20)), config, 0, None).blocks} == {Expiry.NONE}


def test_what_is_too_much() -> None:
    files = [file(start, start + 10, 1000) for start in range(0, 100, 10)]
    log = shape(*files, rolls=tuple(range(10, 100, 10)))
    found = lay_out(log, TopicConfig(retention_bytes=9_500), 0, NOW)
    assert [one.expiry for one in found.blocks[:2]] == [Expiry.SOON, Expiry.NONE]


def test_an_empty_log() -> None:
    found = lay_out(shape(), TopicConfig(), 0, NOW)
    assert found.blocks == ()
    assert found.segments_count == 1


sizes = st.sampled_from([10, 1000, MIB, 5 * MIB])
ages = st.integers(0, 3 * HOUR)


@given(
    files=st.lists(st.tuples(sizes, ages), min_size=1, max_size=3 * MOST_BLOCKS),
    dirty=st.integers(0, 5000),
    compact=st.booleans(),
    every=st.integers(1, 40),
)
def test_nothing_is_left_out(files: list[tuple[int, int]], dirty: int, compact: bool, every: int) -> None:
    made = [file(at * 10, at * 10 + 10, size, NOW - age) for at, (size, age) in enumerate(files)]
    config = TopicConfig(retention_ms=HOUR, cleanup_policy=("compact",) if compact else ("delete",))
    log = shape(*made, rolls=tuple(range(10 * every, len(made) * 10, 10 * every)))
    found = lay_out(log, config, dirty, NOW)
    assert len(found.blocks) <= MOST_BLOCKS
    sums = {"files": len(made), "records": 10 * len(made), "size_bytes": sum(one.size for one in made)}
    for attribute, whole in sums.items():
        assert sum(getattr(block, attribute) for block in found.blocks) == whole
    ends = [0, *(block.end_offset for block in found.blocks)]
    assert [block.base_offset for block in found.blocks] == ends[:-1]
    # What is due is exactly what retention would take now.
    taken = decide_retention(log, config, NOW)
    due = [segment.base_offset for segment in found.segments if segment.expiry is Expiry.DUE]
    gone = [] if taken is None else [one.segment.offsets.start for one in taken.expired]
    assert due == gone[: len(found.segments)]
