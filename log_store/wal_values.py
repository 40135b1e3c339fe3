"""What crosses the border of the write-ahead log: batches, references to them, what a scan found, errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from sluice.log_store.errors import IntegrityError, StorageError
from sluice.log_store.values import PartitionRef, ProducerStamp, SinkStamp

if TYPE_CHECKING:
    import pyarrow as pa

Payload: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"

PartitionKey: TypeAlias = tuple[str, int]
"""Topic id and partition: names and folders may change, these do not."""

Severity = Literal["tail", "group", "middle"]

NO_LIMIT = 2**63 - 1


def key_of(ref: PartitionRef) -> PartitionKey:
    return (ref.topic_id, ref.partition)


class WalLocked(StorageError):
    """Another process has this WAL open."""


class WalClosed(StorageError):
    """The WAL was closed before the entry was known to be on disk: it may or may not be found again."""


class WalStalled(StorageError):
    """The disk refuses to write at the moment. What was asked for stays queued and will be done."""


class CorruptWal(IntegrityError):
    """The WAL, or an entry of it, is not what was written."""


@dataclass(frozen=True, slots=True)
class WalBatch:
    """`payload` is never copied: it must not change until the batch is done."""

    ref: PartitionRef
    epoch: int
    base_offset: int
    count: int
    append_ms: int
    stamp: ProducerStamp | None
    payload: Payload
    sink: SinkStamp | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """`version` of the Delta table, and with it every offset below `end_offset`, is known to be on disk."""

    version: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Release:
    """Entries of `ref` inside `start`..`end` that stand before (`seq`, `position`) are no longer needed.

    `forget` also drops the sync point: the partition is gone for good.
    """

    ref: PartitionRef
    start: int
    end: int
    forget: bool
    seq: int
    position: int

    def covers(self, entry: WalEntryRef) -> bool:
        inside = self.start <= entry.base_offset and entry.end_offset <= self.end
        return inside and (entry.seq, entry.position) < (self.seq, self.position)


class WalEntryRef(NamedTuple):
    """Where a batch lies, and all of it but the payload. A tuple, because a full WAL holds a million of them."""

    file: str
    """Name below the WAL's folder."""
    seq: int
    position: int
    length: int
    ref: PartitionRef
    epoch: int
    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    append_ms: int
    stamp: ProducerStamp | None
    sink: SinkStamp | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True, slots=True)
class WalFinding:
    """Bytes that should be an entry and are not.

    `tail`    nothing good follows: a write that a crash interrupted, never acknowledged.
    `group`   good entries follow, all written by the same group as the damage. Nothing shows whether that group was
              acknowledged: a power loss that wrote its pages out of order leaves this.
    `middle`  what follows proves that the damaged bytes had been fsynced: acknowledged data is lost.
    """

    file: str
    position: int
    severity: Severity
    what: str
    before: WalEntryRef | None
    """Last good batch before the damage, of whatever partition."""
    after: WalEntryRef | None
    """First good batch after it in the same file."""

    def __str__(self) -> str:
        around = [
            f"{side} {_place(entry)}" for side, entry in (("after", self.before), ("before", self.after)) if entry
        ]
        return f"{self.file} at byte {self.position} ({self.severity}): {self.what}" + "".join(f", {a}" for a in around)


def _place(entry: WalEntryRef) -> str:
    return f"{entry.ref.tp} offsets {entry.base_offset}..{entry.end_offset - 1}"


@dataclass(frozen=True, slots=True)
class ParkedFile:
    """Entries of one partition that were moved out of the way of the shared log."""

    path: Path
    ref: PartitionRef | None
    """None only if the file is damaged beyond use."""
    entries: list[WalEntryRef]


@dataclass(frozen=True, slots=True)
class WalScan:
    """What `open` found. Entries stand in the order in which they were written and are not judged.

    A batch that was written twice with equal content (a retry in a new file) is listed once.
    """

    entries: dict[PartitionKey, list[WalEntryRef]] = field(default_factory=dict)
    sync_points: dict[PartitionKey, SyncPoint] = field(default_factory=dict)
    findings: list[WalFinding] = field(default_factory=list)
    parked: list[ParkedFile] = field(default_factory=list)
