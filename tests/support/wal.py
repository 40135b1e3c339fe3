"""Batches, a small WAL, and ways to hurt it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sluice.log_store.values import PartitionRef, ProducerStamp
from sluice.log_store.wal import SyncPoint, Wal, WalBatch, WalEntryRef
from sluice.log_store.wal_values import key_of

FILE_BYTES = 4096
WAIT_S = 60


def ref(partition: int = 0, topic: str = "orders") -> PartitionRef:
    return PartitionRef(topic, f"id-of-{topic}", partition, f"topics/{topic}/{partition}")


REF = ref()


def batch(
    base: int,
    of: PartitionRef = REF,
    *,
    count: int = 1,
    epoch: int = 1,
    size: int = 100,
    stamp: ProducerStamp | None = None,
) -> WalBatch:
    """The payload follows from the offset and holds no zeros, so that every change to it shows."""
    payload = random.Random(base * 31 + of.partition).randbytes(size).replace(b"\0", b"\1")
    return WalBatch(of, epoch, base, count, 1_700_000_000_000 + base, stamp, payload)


def open_wal(directory: Path, **options: Any) -> Wal:
    return Wal.open(directory, **{"max_bytes": 64 * FILE_BYTES, "file_bytes": FILE_BYTES, "fsync": False} | options)


class Acks:
    """Callbacks that remember the order and the outcome."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.errors: list[BaseException | None] = []
        self._expected = 0
        self._changed = threading.Condition()

    def expect(self, name: int) -> Any:
        with self._changed:
            self._expected += 1

        def done(error: BaseException | None) -> None:
            with self._changed:
                self.order.append(name)
                self.errors.append(error)
                self._changed.notify_all()

        return done

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.order) == self._expected, WAIT_S), "no acknowledgement"


def append(wal: Wal, *batches: WalBatch) -> None:
    """One after the other: each is a group of its own."""
    for one in batches:
        acks = Acks()
        wal.append(one, acks.expect(one.base_offset))
        acks.wait()
        assert acks.errors == [None]


def append_group(wal: Wal, batches: Sequence[WalBatch], first: WalBatch) -> None:
    """`first` alone, then all `batches` as one group: its callback holds the writer back while they are queued."""
    acks, reached, go = Acks(), threading.Event(), threading.Event()

    def hold(_error: BaseException | None) -> None:
        reached.set()
        go.wait(WAIT_S)

    wal.append(first, hold)
    assert reached.wait(WAIT_S)
    for one in batches:
        wal.append(one, acks.expect(one.base_offset))
    go.set()
    acks.wait()


def entries(wal: Wal, of: PartitionRef = REF) -> list[WalEntryRef]:
    return wal.recovered.entries.get(key_of(of), [])


def bases(wal: Wal, of: PartitionRef = REF) -> list[int]:
    return [entry.base_offset for entry in entries(wal, of)]


def read_all(wal: Wal, of: PartitionRef = REF) -> list[WalBatch]:
    return [wal.read(entry) for entry in entries(wal, of)]


def sync(wal: Wal, end: int, of: PartitionRef = REF, version: int = 1) -> None:
    wal.note_synced({of: SyncPoint(version, end)})


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("wal-*.log"))


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def eventually(holds: Callable[[], bool]) -> bool:
    """For what a background thread does by itself."""
    return any(holds() or threading.Event().wait(0.005) for _ in range(int(WAIT_S / 0.005)))


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x10]))


def numbered(count: int, of: PartitionRef = REF, start: int = 0) -> Iterable[WalBatch]:
    return (batch(base, of) for base in range(start, start + count))
