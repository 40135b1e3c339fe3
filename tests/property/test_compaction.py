"""Key compaction against a naive model: any log, any rolls, merges, deletions and restarts in between, at any time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import hypothesis
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.log_store import compaction_keys
from sluice.log_store.compaction import LogView, bounded, cleanable, file_groups
from sluice.log_store.compaction_keys import Hashed, KeyHasher, LastOffsets
from sluice.log_store.compaction_run import LocalPasses, compact
from sluice.log_store.compaction_service import LedPartition
from sluice.log_store.compaction_tombstones import (
    MOST_SPANS,
    NOT_MET,
    Span,
    SpanBuilder,
    carried,
    horizons_at,
    spans_of,
    tag_of,
)
from sluice.log_store.delta_log import DataFile
from sluice.log_store.engine import LogStore
from sluice.log_store.merger import merge_once
from sluice.log_store.records import make_batch
from sluice.log_store.values import OffsetRange
from tests import counts
from tests.support.logs import append, memory_cluster

RETENTION_MS, LAG_MS = 1_000, 400
KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c", b"key-number-four", b"x" * 300]))
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3)), st.integers(-300, 300)), max_size=6)


@dataclass(frozen=True)
class Row:
    offset: int
    ms: int
    key: bytes | None
    value: bytes | None
    horizon: int | None = None


class CompactedLog(RuleBasedStateMachine):
    """The model keeps plain rows and applies Kafka's rules to them, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = memory_cluster(compaction_in_process_max_bytes=0)
        self.rows: list[Row] = []
        self.below: list[Row] = []
        """Below the log start; the file there may still hold them."""
        self.end = self.start = self.first_dirty = 0
        self.log: LogStore

    @initialize(lag=st.sampled_from([0, LAG_MS]))
    def open_it(self, lag: int) -> None:
        self.lag = lag
        self.log = self.cluster.open()
        configs = {
            "cleanup.policy": "compact,delete",
            "segment.ms": 200,
            "min.cleanable.dirty.ratio": 0,
            "min.compaction.lag.ms": lag,
            "delete.retention.ms": RETENTION_MS,
        }
        self.log.create_topic("t", configs=configs)

    def teardown(self) -> None:
        self.cluster.__exit__(None)

    @property
    def partition(self):
        return self.log.partition("t", 0)

    @property
    def now(self) -> int:
        return self.cluster.clock.wall_ms()

    @rule(records=RECORDS)
    def append(self, records: list) -> None:
        rows = [{"key": k, "value": v, "timestamp": self.now + ms} for k, v, ms in records]
        if not rows:
            return
        append(self.log, "t", 0, make_batch(rows, default_ms=0))
        self.rows += [Row(self.end + i, r["timestamp"], r["key"], r["value"]) for i, r in enumerate(rows)]
        self.end += len(rows)

    @rule(ms=st.sampled_from([1, 250, 399, 400, 999, 1_000, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.cluster.clock.advance(ms / 1000)

    @rule(part=st.booleans())
    def clean(self, part: bool) -> None:
        led = LedPartition(self.partition)
        view = led.view()
        chosen = cleanable(view, self.partition.config, self.now)
        end = self._range_end(view)
        assert chosen.end == end
        assert chosen.due == any(self.first_dirty <= row.offset < end for row in self.rows)
        if not chosen.due:
            return
        if part:
            chosen = bounded(view, chosen, 1, 1)
        done = compact(led, LocalPasses(led.store), self.partition.config, chosen, view, self.now)
        before = len(self.rows)
        self._clean(chosen.end)
        assert done.records_before - done.records_after == before - len(self.rows) + self._untrimmed(view, done)

    def _untrimmed(self, view: LogView, done) -> int:
        """Rows below the log start that were still in the boundary file, and went with the rewrite."""
        live = {file.path for file in self.partition.state.files}
        gone = [file for file in view.files if file.path not in live and file.base_offset < self.start]
        if not gone:
            return 0
        return gone[0].records - sum(
            1 for row in self._before if gone[0].base_offset <= row.offset < gone[0].end_offset
        )

    def _range_end(self, view: LogView) -> int:
        """Naively: segment by segment, from what the model knows of its rows."""
        for segment in view.segments[:-1]:
            if segment.end <= self.first_dirty or self.lag == 0:
                continue
            stamps = [row.ms for row in self.rows if segment.start <= row.offset < segment.end]
            stamps += self._still_in_a_file_of(segment, view)
            if stamps and max(stamps) > self.now - self.lag:
                return max(segment.start, self.first_dirty)
        return max(view.segments[-1].start, self.first_dirty)

    def _still_in_a_file_of(self, segment: OffsetRange, view: LogView) -> list[int]:
        """A file counts with its youngest record, also where that lies below the log start."""
        at_start = [file for file in view.files if file.base_offset < self.start < file.end_offset]
        if not at_start or not segment.start <= self.start < segment.end:
            return []
        return [row.ms for row in self.below if row.offset >= at_start[0].base_offset]

    def _clean(self, end: int) -> None:
        self._before = list(self.rows)
        last = {
            row.key: row.offset for row in self.rows if self.first_dirty <= row.offset < end and row.key is not None
        }
        kept = []
        for row in self.rows:
            if row.offset >= end:
                kept.append(row)
            elif row.key is not None and row.offset >= last.get(row.key, -1):
                if row.value is None and row.horizon is None:
                    kept.append(replace(row, horizon=self.now + RETENTION_MS))
                elif row.value is not None or self.now < row.horizon:
                    kept.append(row)
        self.rows, self.first_dirty = kept, end

    @rule(quiet=st.booleans())
    def merge(self, quiet: bool) -> None:
        while merge_once(self.partition, self.partition.config, quiet=quiet) is not None:
            pass

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0.01, 0.5))
    def delete_some(self, share: float) -> None:
        self.start += max(1, int((self.end - self.start) * share))
        self.log.delete_records("t", 0, self.start)
        self.below += [row for row in self.rows if row.offset < self.start]
        self.rows = [row for row in self.rows if row.offset >= self.start]
        self.first_dirty = max(self.first_dirty, self.start)

    @rule()
    def reopen(self) -> None:
        self.log = self.cluster.reopen()

    @rule()
    def checkpoint(self) -> None:
        if self.partition.state.exists:
            self.partition.checkpoint()

    @invariant()
    def rows_are_the_models(self) -> None:
        if not hasattr(self, "log"):
            return
        found: list[Row] = []
        for piece in self.log.reads("t", 0).scan(readahead=0):
            columns = (piece.column(name).to_pylist() for name in ("offset", "timestamp", "key", "value"))
            found += [Row(o, round(at.timestamp() * 1000), k, v) for o, at, k, v in zip(*columns, strict=True)]
        assert found == [replace(row, horizon=None) for row in self.rows]
        state = self.partition.state
        assert (state.log_start, state.end, state.first_dirty) == (self.start, self.end, self.first_dirty)
        self._horizons_are_the_models(state.files)

    def _horizons_are_the_models(self, files: Sequence[DataFile]) -> None:
        """R-5: whatever merged, trimmed or reopened the files since."""
        for file in files:
            spans = spans_of(file)
            assert all(file.base_offset <= span.start < span.end <= file.end_offset for span in spans)
            dead = [row for row in self.rows if file.base_offset <= row.offset < file.end_offset and row.value is None]
            offsets = np.array([row.offset for row in dead], dtype=np.int64)
            wanted = [NOT_MET if row.horizon is None else row.horizon for row in dead]
            assert horizons_at(spans, offsets).tolist() == wanted


TestCompactedLog = CompactedLog.TestCase
# Every step reads everything: with twice the steps a run takes four times as long.
TestCompactedLog.settings = hypothesis.settings(max_examples=counts.COMPACTION_RUNS, stateful_step_count=40)


# --- keys ----------------------------------------------------------------------------------------


@given(
    keys=st.lists(st.one_of(st.binary(max_size=24), st.binary(min_size=250, max_size=270)), max_size=60),
    seed=st.integers(0, 2**128 - 1),
)
@hypothesis.example(keys=[b"", b"\0", b"\0" * 7, b"\0" * 8, b"\0" * 9, b"\0" * 256, b"\0" * 257], seed=0)
def test_different_keys_have_different_hashes_and_equal_ones_the_same(keys: list[bytes], seed: int) -> None:
    array = pa.array([b"skipped", *keys], pa.binary())[1:]
    high, low = KeyHasher(seed).of_keys(array)
    by_hash = dict(zip(zip(high.tolist(), low.tolist(), strict=True), keys, strict=True))
    assert len(by_hash) == len(set(keys))
    again = KeyHasher(seed).of_keys(pa.array(list(reversed(keys)), pa.binary()))
    assert again[0].tolist() == high.tolist()[::-1]
    assert again[1].tolist() == low.tolist()[::-1]


@given(
    pieces=st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=30), max_size=6),
    asked=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20),
)
def test_the_last_offset_of_each_key_even_if_half_of_the_hash_collides(pieces: list, asked: list) -> None:
    """With so few hashes the first half collides all the time: the second must tell the keys apart."""
    found, expected, offset = LastOffsets(), {}, 0
    for piece in pieces:
        offsets = list(range(offset, offset + len(piece)))
        expected.update(zip(piece, offsets, strict=True))
        offset += len(piece)
        found.add(_hashed(piece, offsets))
        if len(piece) % 2:
            assert len(found.rows.offsets) == len(expected)
    rows = found.rows
    assert dict(zip(zip(rows.high.tolist(), rows.low.tolist()), rows.offsets.tolist())) == expected  # noqa: B905
    assert found.kept().tolist() == sorted(expected.values())
    assert found.holds(_hashed(asked, [0] * len(asked))).tolist() == [key in expected for key in asked]


def _hashed(keys: Sequence[tuple[int, int]], offsets: Sequence[int]) -> Hashed:
    high, low = ([key[part] for key in keys] for part in (0, 1))
    return Hashed(np.array(high, np.uint64), np.array(low, np.uint64), np.array(offsets, np.int64))


def test_the_map_gathers_before_it_sorts(monkeypatch) -> None:
    """Many small pieces cost about as much as one large one: sorting is done when the new is as much as the old."""
    monkeypatch.setattr(compaction_keys, "SLAB_ROWS", 8)
    sorts, original = [], np.argsort
    monkeypatch.setattr(np, "argsort", lambda *a, **k: sorts.append(len(a[0])) or original(*a, **k))
    found, draw = LastOffsets(), random.Random(1)
    for offset in range(0, 4_000, 4):
        keys = [(draw.getrandbits(64), draw.getrandbits(64)) for _ in range(4)]
        found.add(_hashed(keys, range(offset, offset + 4)))
    assert len(found.rows.offsets) == 4_000
    assert sum(sorts) < 4 * 4_000 + 1_000


# --- horizons ------------------------------------------------------------------------------------


@given(horizons=st.lists(st.integers(0, 3), max_size=40), step=st.integers(1, 5))
def test_spans_give_every_tombstone_its_own_horizon(horizons: list[int], step: int) -> None:
    offsets = np.arange(len(horizons), dtype=np.int64) * step + 7
    builder = SpanBuilder()
    half = len(horizons) // 2
    for part in (slice(0, half), slice(half, None)):
        builder.add(offsets[part], np.array(horizons, dtype=np.int64)[part])
    spans = _spans(builder.tags)
    assert horizons_at(spans, offsets).tolist() == horizons
    assert len(spans) <= max(1, sum(a != b for a, b in pairwise(horizons)) + 1)
    assert horizons_at(spans, np.array([0, 10_000], dtype=np.int64)).tolist() == [-1, -1]


def _spans(tags) -> tuple[Span, ...]:
    return spans_of(_file(0, 1, tags))


def _file(base: int, end: int, tags=None, size: int = 1) -> DataFile:
    return DataFile(f"{base:020d}-1-a.parquet", size, base, end, end - base, 0, 0, 0, tags=dict(tags or {}))


@given(count=st.integers(1, 5 * MOST_SPANS))
def test_too_many_spans_keep_tombstones_longer_never_shorter(count: int) -> None:
    spans = [Span(2 * n, 2 * n + 1, (n * 7919) % 1000) for n in range(count)]
    kept = _spans(tag_of(spans))
    assert len(kept) <= MOST_SPANS
    offsets = np.array([span.start for span in spans], dtype=np.int64)
    found = horizons_at(kept, offsets).tolist()
    assert all(now >= span.horizon_ms for now, span in zip(found, spans, strict=True))
    if count <= MOST_SPANS:
        assert found == [span.horizon_ms for span in spans]


@given(start=st.integers(0, 40), damaged=st.sampled_from(["", "{}", "[[1]]", "[[5,5,1]]", "[[9,12,1],[3,4,1]]"]))
def test_a_merged_file_carries_the_horizons_of_its_parts(start: int, damaged: str) -> None:
    files = [
        _file(0, 10, tag_of([Span(1, 4, 50), Span(6, 7, 60)])),
        _file(10, 20),
        _file(20, 30, {"sluice.tombstones": damaged}),
        _file(30, 40, tag_of([Span(30, 40, 70)])),
    ]
    offsets = np.arange(start, 40, dtype=np.int64)
    expected = np.full(40, -1)
    expected[1:4], expected[6], expected[30:40] = 50, 60, 70
    spans = _spans(carried(files, start))
    assert horizons_at(spans, offsets).tolist() == expected[start:].tolist()
    assert all(span.start >= start for span in spans)


# --- groups --------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=60),
    rolls=st.lists(st.integers(1, 59), max_size=6),
    dirty=st.integers(0, 60),
    left_out=st.sets(st.integers(0, 59)),
)
def test_pieces_of_work_cover_the_range_and_cross_nothing(sizes: list, rolls: list, dirty: int, left_out: set) -> None:
    from sluice.log_store.segments import segment_bounds

    files = [_file(n, n + 1, size=size) for n, size in enumerate(sizes)]
    segments = segment_bounds(sorted(set(rolls)), 0, len(sizes))
    view = LogView(version=0, files=files, segments=segments, first_dirty=0, last_cleaning=-1)
    first_dirty, end = min(dirty, segments[-1].start), segments[-1].start
    chosen = [file for n, file in enumerate(files) if n not in left_out]
    groups = file_groups(view, first_dirty, end, 100, chosen)
    covered = [file for group in groups for file in group.files]
    assert sorted(f.base_offset for f in covered) == [f.base_offset for f in chosen if f.base_offset < end]
    for group in groups:
        assert any(s.start <= group.start and group.end <= s.end for s in segments)
        assert group.dirty == (group.start >= first_dirty)
        assert [f.base_offset for f in group.files] == list(range(group.start, group.end))
        assert len(group.files) == 1 or (group.bytes <= 100 and all(f.size < 50 for f in group.files))
