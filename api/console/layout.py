"""A partition's log as a picture: its files from the log start to the end, what each is, and which are about to go.

Pure. A log of many files is drawn as stretches of them, so that an answer stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sluice.log_store.delta_log import DataFile
from sluice.log_store.inspection import SMALL_BYTES
from sluice.log_store.log_shape import LogShape
from sluice.log_store.retention import Expired, Retention, decide_retention
from sluice.log_store.topic import TopicConfig

MOST_BLOCKS = 240
MOST_SEGMENTS = 240
SOON = 0.9
"""What would go if the limits of retention were so much of what they are is about to go."""


class Kind(StrEnum):
    SMALL = "small"
    """Below 1 MiB: what merging has still to do."""
    MERGED = "merged"
    CLEANED = "cleaned"
    """Below the first dirty offset of a compacted topic: each key has come once."""
    MIXED = "mixed"
    """A stretch of a long log in which there are several kinds."""


class Expiry(StrEnum):
    NONE = "none"
    SOON = "soon"
    DUE = "due"
    """The next check of retention takes it."""


@dataclass(frozen=True, slots=True)
class Block:
    base_offset: int
    end_offset: int
    files: int
    records: int
    size_bytes: int
    min_timestamp: int
    max_timestamp: int
    kind: Kind
    expiry: Expiry


@dataclass(frozen=True, slots=True)
class SegmentBlock:
    base_offset: int
    end_offset: int
    size_bytes: int
    newest_ms: int | None
    active: bool
    expiry: Expiry
    why: str
    """The comparison that takes it, with its numbers."""


@dataclass(frozen=True, slots=True)
class Layout:
    segments_count: int
    segments: tuple[SegmentBlock, ...]
    """The oldest, where there are too many."""
    blocks: tuple[Block, ...]


def lay_out(shape: LogShape, config: TopicConfig, first_dirty: int, now_ms: int | None) -> Layout:
    """`now_ms` None: wall time cannot be trusted, so nothing goes by its age."""
    due = decide_retention(shape, config, now_ms)
    soon = decide_retention(shape, _tightened(config), now_ms)
    due_end, soon_end = _end(due), _end(soon)
    reasons = {one.segment.offsets.start: one.why for one in (*_gone(soon), *_gone(due))}
    segments = shape.segments()
    drawn = tuple(
        SegmentBlock(
            segment.offsets.start,
            segment.offsets.end,
            segment.bytes,
            segment.newest_ms,
            segment is segments[-1],
            expiry := _expiry(segment.offsets.end, due_end, soon_end),
            "" if expiry is Expiry.NONE else reasons.get(segment.offsets.start, ""),
        )
        for segment in segments[:MOST_SEGMENTS]
    )
    blocks = [_block(file, config, first_dirty, due_end, soon_end) for file in shape.files]
    return Layout(len(segments), drawn, tuple(_fewer(blocks)))


def _tightened(config: TopicConfig) -> TopicConfig:
    return replace(config, retention_ms=_share(config.retention_ms), retention_bytes=_share(config.retention_bytes))


def _share(limit: int) -> int:
    return limit if limit < 0 else int(limit * SOON)


def _end(retention: Retention | None) -> int:
    return -1 if retention is None else retention.log_start


def _gone(retention: Retention | None) -> Iterable[Expired]:
    return () if retention is None else retention.expired


def _expiry(end_offset: int, due_end: int, soon_end: int) -> Expiry:
    return Expiry.DUE if end_offset <= due_end else Expiry.SOON if end_offset <= soon_end else Expiry.NONE


def _block(file: DataFile, config: TopicConfig, first_dirty: int, due_end: int, soon_end: int) -> Block:
    cleaned = config.compact and file.end_offset <= first_dirty
    return Block(
        base_offset=file.base_offset,
        end_offset=file.end_offset,
        files=1,
        records=file.records,
        size_bytes=file.size,
        min_timestamp=file.min_ms,
        max_timestamp=file.max_ms,
        kind=Kind.CLEANED if cleaned else Kind.SMALL if file.size < SMALL_BYTES else Kind.MERGED,
        expiry=_expiry(file.end_offset, due_end, soon_end),
    )


def _fewer(blocks: list[Block]) -> list[Block]:
    """First neighbours of one kind become one; then, if that is not enough, any neighbours."""
    if len(blocks) <= MOST_BLOCKS:
        return blocks
    found: list[Block] = []
    for block in blocks:
        if found and (found[-1].kind, found[-1].expiry) == (block.kind, block.expiry):
            found[-1] = _joined([found[-1], block])
        else:
            found.append(block)
    if len(found) <= MOST_BLOCKS:
        return found
    size = -(-len(found) // MOST_BLOCKS)
    return [_joined(found[at : at + size]) for at in range(0, len(found), size)]


def _joined(blocks: Sequence[Block]) -> Block:
    kinds, expiries = {block.kind for block in blocks}, {block.expiry for block in blocks}
    return Block(
        base_offset=blocks[0].base_offset,
        end_offset=blocks[-1].end_offset,
        files=sum(block.files for block in blocks),
        records=sum(block.records for block in blocks),
        size_bytes=sum(block.size_bytes for block in blocks),
        min_timestamp=min(block.min_timestamp for block in blocks),
        max_timestamp=max(block.max_timestamp for block in blocks),
        kind=kinds.pop() if len(kinds) == 1 else Kind.MIXED,
        expiry=expiries.pop() if len(expiries) == 1 else Expiry.SOON if Expiry.NONE in expiries else Expiry.DUE,
    )
