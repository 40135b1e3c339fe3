"""What can be asked of the writer: each op knows its bytes and what it changes once it is durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_format import FileEncoder, Kind, encode_points, encode_release, entry_size
from sluice.log_store.wal_ledger import Ledger, LiveFile
from sluice.log_store.wal_values import PartitionKey, Release, SyncPoint

Done = Callable[[BaseException | None], None]


class Op(Protocol):
    @property
    def size(self) -> int:
        """Bytes that count as queued."""

    @property
    def done(self) -> Done: ...

    def cost(self, encoder: FileEncoder) -> int:
        """Bytes that it takes in the file of this encoder."""

    def encode(self, encoder: FileEncoder) -> None: ...

    def book(self, ledger: Ledger, file: LiveFile) -> None: ...


@dataclass(slots=True, eq=False)
class AppendOp:
    ref: PartitionRef
    key: PartitionKey
    number: int
    base_offset: int
    end_offset: int
    head: bytes
    payload: memoryview
    size: int
    done: Done

    def cost(self, encoder: FileEncoder) -> int:
        return encoder.cost_of_batch(self.number, self.ref, self.size)

    def encode(self, encoder: FileEncoder) -> None:
        encoder.batch(self.number, self.ref, self.head, self.payload)

    def book(self, ledger: Ledger, file: LiveFile) -> None:
        file.add(self.key, self.base_offset, self.end_offset)


class SyncOp:
    __slots__ = ("_body", "_points", "done")

    def __init__(self, points: Mapping[PartitionRef, SyncPoint], done: Done) -> None:
        self._points = dict(points)
        self._body = encode_points(self._points.items())
        self.done = done

    @property
    def size(self) -> int:
        return entry_size(len(self._body))

    def cost(self, encoder: FileEncoder) -> int:
        return self.size

    def encode(self, encoder: FileEncoder) -> None:
        encoder.entry(Kind.SYNC, self._body)

    def book(self, ledger: Ledger, file: LiveFile) -> None:
        ledger.synced(self._points)


@dataclass(slots=True, eq=False)
class ReleaseOp:
    ref: PartitionRef
    start: int
    end: int
    forget: bool
    done: Done
    _stated: Release = field(init=False)

    def __post_init__(self) -> None:
        self._stated = Release(self.ref, self.start, self.end, self.forget, 0, 0)

    @property
    def size(self) -> int:
        return entry_size(len(encode_release(self._stated)))

    def cost(self, encoder: FileEncoder) -> int:
        return self.size

    def encode(self, encoder: FileEncoder) -> None:
        self._stated = Release(self.ref, self.start, self.end, self.forget, encoder.seq, encoder.position)
        encoder.release(self._stated)

    def book(self, ledger: Ledger, file: LiveFile) -> None:
        ledger.released(self._stated)
