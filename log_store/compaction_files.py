"""Cleans files: collects their keys, decides row by row, writes what stays. The same code in the service and on Spark
executors.

A cleaning has two passes. The first reads offsets and keys only and ends in a `Verdict`: offsets. The second rewrites
pieces of work (`FileGroup`) by that verdict, each by itself. Memory: 24 bytes for each key of the dirty range in the
first, one encoded file and a few row groups in the second.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sluice.log_store import reader
from sluice.log_store.compaction import FileGroup
from sluice.log_store.compaction_keys import Hashed, KeyHasher, LastOffsets, slabs
from sluice.log_store.compaction_tombstones import NOT_MET, Int64s, Span, SpanBuilder, horizons_at, spans_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.parquet import FileEncoder
from sluice.log_store.store import Store
from sluice.log_store.topic import TopicConfig, codec

SKIPPED_OFFSETS = 50_000
"""Offsets in a row, none of which stays, that are worth skipping: several row groups."""

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """One cleaning of one partition; small, and sent to executors as it is."""

    folder: str
    epoch: int
    """For the names of new files (I-4)."""
    log_start: int
    first_dirty: int
    end: int
    now_ms: int
    """The clean time of all tombstones that are met."""
    delete_retention_ms: int
    compression: str
    seed: int
    """Of the key hashes."""

    @property
    def horizon_ms(self) -> int:
        return self.now_ms + self.delete_retention_ms


def cleaning(
    folder: str, epoch: int, config: TopicConfig, bounds: tuple[int, int, int], now_ms: int, seed: int
) -> Cleaning:
    """`bounds`: log start, first dirty offset, end."""
    log_start, first_dirty, end = bounds
    return Cleaning(
        folder=folder,
        epoch=epoch,
        log_start=log_start,
        first_dirty=first_dirty,
        end=end,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        compression=config.compression_type,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens to the rows of a range, by offset, in order. Null keys appear in neither: they go."""

    kept: Int64s
    """Of the dirty part: everything else goes."""
    dropped: Int64s
    """Of the clean part: everything else stays."""

    def within(self, start: int, end: int) -> Verdict:
        return Verdict(_between(self.kept, start, end), _between(self.dropped, start, end))


def _between(offsets: Int64s, start: int, end: int) -> Int64s:
    low, high = np.searchsorted(offsets, [start, end])
    return offsets[low:high]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What became of one piece of work."""

    inputs: tuple[str, ...]
    adds: tuple[DataFile, ...] = ()
    changed: bool = False
    """False: the files stay as they are."""
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    stamped: int = 0
    """Tombstones that were met for the first time."""
    expired: int = 0
    """Tombstones that went because their horizon had passed."""


# --- the first pass ------------------------------------------------------------------------------


def last_offsets(store: Store, job: Cleaning, files: Sequence[DataFile], hasher: KeyHasher) -> LastOffsets:
    """Of the keys in dirty files. Rows below the log start are gone for readers, so they take no part."""
    found = LastOffsets()
    for keys in hashed_keys(store, job, files, hasher, max(job.first_dirty, job.log_start), job.end):
        found.add(keys)
    return found


def shadowed_offsets(
    store: Store, job: Cleaning, files: Sequence[DataFile], hasher: KeyHasher, dirty: LastOffsets
) -> Int64s:
    """Rows of clean files whose key came again in the dirty range."""
    clean = hashed_keys(store, job, files, hasher, job.log_start, job.first_dirty)
    return np.concatenate([np.empty(0, dtype=np.int64), *(keys.offsets[dirty.holds(keys)] for keys in clean)])


def hashed_keys(
    store: Store, job: Cleaning, files: Sequence[DataFile], hasher: KeyHasher, start: int, end: int
) -> Iterator[Hashed]:
    for rows in slabs(reader.scan(store, job.folder, files, start, end, columns=["key"])):
        yield hasher.of_rows(rows)


# --- the second pass -----------------------------------------------------------------------------


def clean_group(store: Store, job: Cleaning, group: FileGroup, verdict: Verdict) -> Cleaned:
    """Write the rows that stay to a new file, unless they are all of them."""
    own = verdict.within(max(group.start, job.log_start), min(group.end, job.end))
    inputs = tuple(file.path for file in group.files)
    before = Cleaned(inputs=inputs, records_before=group.records, bytes_before=group.bytes)
    if group.dirty and not len(own.kept):
        return _changed(before, ())
    if not _changes(store, job, group, own):
        return Cleaned(inputs=inputs)
    rewrite = _Rewrite(job, group, own)
    encoded = FileEncoder(*codec(job.compression)).write_all(rewrite.rows(store))
    if not encoded.records:
        return _changed(before, (), expired=rewrite.expired)
    name = f"{encoded.base_offset:020d}-{job.epoch}-{uuid.uuid4().hex}.parquet"
    store.put(f"{job.folder}/{name}", encoded.data)
    added = DataFile.of(name, encoded, job.now_ms, rewrite.spans.tags)
    return _changed(before, (added,), stamped=rewrite.stamped, expired=rewrite.expired)


def _changed(before: Cleaned, adds: tuple[DataFile, ...], *, stamped: int = 0, expired: int = 0) -> Cleaned:
    return Cleaned(
        inputs=before.inputs,
        adds=adds,
        changed=True,
        records_before=before.records_before,
        records_after=sum(file.records for file in adds),
        bytes_before=before.bytes_before,
        stamped=stamped,
        expired=expired,
    )


def _changes(store: Store, job: Cleaning, group: FileGroup, own: Verdict) -> bool:
    """Does any row of it go, or any tombstone get its horizon? Values are read only where nothing else tells."""
    if group.start < job.log_start or any(s.horizon_ms <= job.now_ms for file in group.files for s in spans_of(file)):
        return True
    if not group.dirty:
        return len(own.dropped) > 0
    return len(own.kept) < group.records or _has_new_tombstones(store, job, group)


def _has_new_tombstones(store: Store, job: Cleaning, group: FileGroup) -> bool:
    spans = [span for file in group.files for span in spans_of(file)]
    for rows in reader.scan(store, job.folder, group.files, job.log_start, job.end, columns=["value"]):
        values = rows.column("value")
        if values.null_count:
            offsets = rows.column("offset").to_numpy()[values.is_null().to_numpy(zero_copy_only=False)]
            if bool(np.any(horizons_at(spans, offsets) == NOT_MET)):
                return True
    return False


class _Rewrite:
    """The rows of one piece of work that stay, and what is to be noted about its tombstones."""

    def __init__(self, job: Cleaning, group: FileGroup, own: Verdict) -> None:
        self._job = job
        self._group = group
        self._own = own
        self._met: list[Span] = [span for file in group.files for span in spans_of(file)]
        self.spans = SpanBuilder()
        self.stamped = 0
        self.expired = 0

    def rows(self, store: Store) -> Iterator[pa.RecordBatch]:
        for start, end in self._ranges():
            for rows in reader.scan(store, self._job.folder, self._group.files, start, end):
                stays = self._stays(rows)
                if stays.all():
                    yield rows
                elif stays.any():
                    yield rows.filter(pa.array(stays))

    def _ranges(self) -> list[tuple[int, int]]:
        """Where rows are read at all: in a log of few keys most row groups hold nothing that stays."""
        if not self._group.dirty:
            return [(self._job.log_start, self._group.end)]
        kept = self._own.kept
        gaps = np.flatnonzero(np.diff(kept) > SKIPPED_OFFSETS)
        firsts, lasts = [0, *(gaps + 1).tolist()], [*gaps.tolist(), len(kept) - 1]
        return [(int(kept[first]), int(kept[last]) + 1) for first, last in zip(firsts, lasts, strict=True)]

    def _stays(self, rows: pa.RecordBatch) -> Mask:
        offsets: Int64s = rows.column("offset").to_numpy()
        stays = self._named(offsets)
        keys = rows.column("key")
        if keys.null_count:
            stays &= keys.is_valid().to_numpy(zero_copy_only=False)
        values = rows.column("value")
        if values.null_count:
            self._judge_tombstones(offsets, stays, values.is_null().to_numpy(zero_copy_only=False))
        return stays

    def _named(self, offsets: Int64s) -> Mask:
        """By the verdict alone."""
        dirty = self._group.dirty
        wanted = self._own.kept if dirty else self._own.dropped
        stays = np.full(len(offsets), not dirty)
        named = _between(wanted, int(offsets[0]), int(offsets[-1]) + 1)
        stays[np.searchsorted(offsets, named)] = dirty
        return stays

    def _judge_tombstones(self, offsets: Int64s, stays: Mask, nulls: Mask) -> None:
        """Stamp those that are met for the first time, let go those whose horizon has passed."""
        places = np.flatnonzero(stays & nulls)
        horizons = horizons_at(self._met, offsets[places])
        new = horizons == NOT_MET
        expired = ~new & (horizons <= self._job.now_ms)
        horizons[new] = self._job.horizon_ms
        stays[places[expired]] = False
        self.spans.add(offsets[places[~expired]], horizons[~expired])
        self.stamped += int(new.sum())
        self.expired += int(expired.sum())
