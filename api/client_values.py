"""What goes into a client and comes out of it: plain, frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pyarrow as pa

Headers = Sequence[tuple[str, bytes | None]]
Acks = Literal["0", "1", "all"]
Compression = Literal["none", "gzip", "zstd"]
UNKNOWN = -1
"""A partition or offset that was not told: acks=0, or a repeat of a request that is long done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record to produce. No value is a tombstone; no timestamp is the time of receipt."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Bytes that count against buffers: the payload and a little for the objects around it."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers + 64


class FetchedRecord(msgspec.Struct, frozen=True, gc=False):
    """A struct, because a reader makes millions: a frozen dataclass takes several times as long to make."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One answer to a fetch."""

    records: Sequence[FetchedRecord]
    high_watermark: int
    log_start_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedTable:
    """The same, in columns: offset, timestamp, key, value, headers."""

    table: pa.Table
    high_watermark: int
    log_start_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Where a record went."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDelivery:
    """Where the records of one partition of an Arrow request went."""

    partition: int
    base_offset: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    partitions: int
    replication_factor: int = 1
    is_internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigInfo:
    name: str
    value: str | None
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    partition: int
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """A start: the first record whose timestamp is this or later; the end if there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """A start: this many offsets before the end, of each partition."""

    count: int


Start = Literal["earliest", "latest"] | int | At | Last | Mapping[int, int]
"""Where a reader begins; a mapping gives an offset per partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    producer_id: int
    producer_epoch: int
    sequences: dict[str, int] = field(default_factory=dict)
    """Next sequence of each topic."""
