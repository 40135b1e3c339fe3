"""Reading WAL files back: every entry checked, no payload kept, damage reported and passed over (I-10)."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np

from sluice.log_store.errors import StorageError
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_format import (
    ALIGN,
    BATCH_HEAD_BYTES,
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    TAG_AT,
    FileHeader,
    Kind,
    Seal,
    batch_head_size,
    check_kind,
    decode_batch,
    decode_points,
    decode_ref,
    decode_release,
    padded,
)
from sluice.log_store.wal_values import CorruptWal, Release, SyncPoint, WalBatch, WalEntryRef

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_OPEN_FILES = 4


@dataclass(slots=True)
class Damage:
    position: int
    what: str
    before: WalEntryRef | None
    after: WalEntryRef | None = None


@dataclass(slots=True)
class FileScan:
    name: str
    seq: int
    size: int
    header: FileHeader | None = None
    entries: list[WalEntryRef] = field(default_factory=list)
    controls: list[Mapping[PartitionRef, SyncPoint] | Release] = field(default_factory=list)
    """Sync points and releases, in order."""
    refs: dict[int, PartitionRef] = field(default_factory=dict)
    borrowed: dict[int, PartitionRef] = field(default_factory=dict)
    """Definitions that only other files have: they must be stated again before those are cut."""
    damages: list[Damage] = field(default_factory=list)
    unresolved: int = 0
    """Batches whose partition number nothing explains."""
    highest_number: int = -1
    end: int = 0
    """Behind the last good entry; 0 if nothing was ever written."""
    signed: bool = False
    """The last entry is a note: how files beside the log end."""
    proven: int = 0
    """All bytes below were fsynced before a later group was written."""

    @property
    def empty(self) -> bool:
        return self.end <= HEADER_BYTES


def scan_file(path: Path, name: str, uuid: bytes, seq: int, refs: Mapping[int, PartitionRef]) -> FileScan:
    """`refs` are definitions of other files, used where the file's own are damaged."""
    with _opened(path) as (fd, size):
        return _Scanner(_Window(fd, size), FileScan(name, seq, size), uuid, refs).run()


def read_entry(fd: int, uuid: bytes, entry: WalEntryRef) -> WalBatch:
    """The batch with its payload, checked again. The crc names the place, so the other fields are those of `entry`."""
    payload_at = ENTRY_BYTES + batch_head_size(entry.stamp, entry.sink)
    head = os.pread(fd, payload_at, entry.position)
    payload = os.pread(fd, entry.length - payload_at, entry.position + payload_at)
    crc = crc32(payload, crc32(head[8:], Seal(uuid, entry.seq).crc(entry.position, entry.length)))
    if len(head) < payload_at or ENTRY.unpack_from(head)[:2] != (entry.length, crc):
        raise CorruptWal(f"{entry.file} at byte {entry.position}: the entry is gone or damaged", file=entry.file)
    facts = (entry.ref, entry.epoch, entry.base_offset, entry.count, entry.append_ms, entry.stamp)
    return WalBatch(*facts, payload, entry.sink)


class EntryReader:
    """Loads batches; keeps the files it read last open, because recovery reads them entry by entry."""

    def __init__(self, directory: Path, uuid: bytes) -> None:
        self._directory = directory
        self._uuid = uuid
        self._lock = threading.Lock()
        self._fds: dict[str, int] = {}

    def read(self, entry: WalEntryRef) -> WalBatch:
        with self._lock:
            try:
                return read_entry(self._fd(entry.file), self._uuid, entry)
            except OSError as error:
                message = f"cannot read the WAL file {entry.file}: {error.strerror}"
                raise StorageError(message, file=entry.file) from error

    def _fd(self, name: str) -> int:
        fd = self._fds.get(name)
        if fd is None:
            if len(self._fds) >= _OPEN_FILES:
                os.close(self._fds.pop(next(iter(self._fds))))
            fd = self._fds[name] = os.open(self._directory / name, os.O_RDONLY)
        return fd

    def close(self) -> None:
        with self._lock:
            while self._fds:
                os.close(self._fds.popitem()[1])


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            yield fd, os.fstat(fd).st_size
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError(f"cannot read the WAL file {path}: {error.strerror}", file=str(path)) from error


class _Window:
    """A file seen through one chunk at a time: the memory of a scan does not depend on the file's size."""

    def __init__(self, fd: int, size: int) -> None:
        self.size = size
        self._fd = fd
        self._data = memoryview(b"")
        self._start = 0

    def at(self, position: int, length: int) -> memoryview:
        """Up to `length` bytes; fewer only at the end of the file."""
        offset = position - self._start
        if offset < 0 or offset + length > len(self._data):
            self._data = memoryview(os.pread(self._fd, max(length, _CHUNK), position))
            self._start, offset = position, 0
        return self._data[offset : offset + length]

    def crc(self, start: int, end: int, crc: int) -> int:
        while start < end:
            part = self.at(start, min(end - start, _CHUNK))
            if not part:
                return -1
            crc = crc32(part, crc)
            start += len(part)
        return crc

    def find(self, tag: bytes, start: int) -> int:
        """The next place at or after `start` where an entry with this tag may begin; -1 if there is none."""
        wanted = int.from_bytes(tag, "little")
        while start + ENTRY_BYTES <= self.size:
            # Most of a preallocated file was never written, or holds what it held under an older number: that is where
            # the time of a start would go.
            start = max(start, (self._next_data(start) - TAG_AT) // ALIGN * ALIGN)
            chunk = os.pread(self._fd, _CHUNK, start)
            if len(chunk) < ENTRY_BYTES:
                return -1
            places = (len(chunk) - ENTRY_BYTES) // ALIGN + 1
            if chunk != _ZEROS:
                # Of each place the word with kind and tag.
                words = np.frombuffer(chunk, "<u4", 2 * places, offset=TAG_AT - 1)[::2]
                if len(found := np.flatnonzero(words >> 8 == wanted)):
                    return start + int(found[0]) * ALIGN
            start += places * ALIGN
        return -1

    def _next_data(self, start: int) -> int:
        """Where the next bytes are that may not be zeros, as far as the file system says."""
        try:
            return os.lseek(self._fd, start, os.SEEK_DATA)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else start


class _Scanner:
    def __init__(self, window: _Window, scan: FileScan, uuid: bytes, refs: Mapping[int, PartitionRef]) -> None:
        self._window = window
        self._scan = scan
        self._uuid = uuid
        self._refs = refs
        self._seal = Seal(uuid, scan.seq)
        self._open_damage: Damage | None = None

    def run(self) -> FileScan:
        scan = self._scan
        position = self._header()
        while True:
            length, what = self._check(position)
            if length:
                self._take(position, length)
                position += padded(length)
                continue
            ahead = self._look_ahead(position + ALIGN)
            if ahead < 0:
                if what and scan.end:
                    self._damaged(position, what)
                return scan
            self._damaged(position, what or "the entries stop and go on further down")
            position = ahead

    def _header(self) -> int:
        scan = self._scan
        data = self._window.at(0, HEADER_BYTES)
        header = FileHeader.decode(data)
        if header is not None and (header.uuid, header.seq) == (self._uuid, scan.seq):
            scan.header, scan.end = header, HEADER_BYTES
        elif header is not None and header.uuid != self._uuid:
            raise CorruptWal(f"{scan.name} belongs to another WAL: {header.uuid.hex()}", file=scan.name)
        elif self._look_ahead(HEADER_BYTES) >= 0 or (header is None and any(data)):
            # A recycled file that was not begun shows its old header, a fresh one zeros: neither is damage.
            self._damaged(0, "the file's header is damaged")
        return HEADER_BYTES

    def _check(self, position: int) -> tuple[int, str]:
        """Length of the good entry at `position`, or 0 and what is wrong there: nothing, if it is a proper end."""
        data = self._window.at(position, ENTRY_BYTES)
        if len(data) < ENTRY_BYTES:
            return 0, "the file ends within an entry" if any(data[:4]) else ""
        length, crc, _kind, tag, _group = ENTRY.unpack(data)
        if length == 0:
            return 0, ""
        if length < ENTRY_BYTES or position + length > self._window.size:
            return 0, f"impossible entry length {length}"
        if (
            tag != self._seal.tag
            or self._window.crc(position + 8, position + length, self._seal.crc(position, length)) != crc
        ):
            return 0, "entry checksum does not match"
        return length, ""

    def _look_ahead(self, position: int) -> int:
        """Next position with a good entry. The seeded crc leaves no room for an accidental one."""
        while (position := self._window.find(self._seal.tag, position)) >= 0:
            if self._check(position)[0]:
                return position
            position += ALIGN
        return -1

    def _damaged(self, position: int, what: str) -> None:
        entries = self._scan.entries
        damage = Damage(position, what, entries[-1] if entries else None)
        self._scan.damages.append(damage)
        self._open_damage = damage

    def _take(self, position: int, length: int) -> None:
        scan = self._scan
        data = self._window.at(position, min(length, ENTRY_BYTES + BATCH_HEAD_BYTES))
        _length, _crc, raw_kind, _tag, group = ENTRY.unpack_from(data)
        kind = check_kind(raw_kind)
        if kind in (Kind.BATCH, Kind.SINK_BATCH):
            self._take_batch(position, length, data[ENTRY_BYTES:])
        elif kind is not Kind.NOTE:
            self._take_control(kind, bytes(self._window.at(position + ENTRY_BYTES, length - ENTRY_BYTES)))
        scan.end = position + padded(length)
        scan.signed = kind is Kind.NOTE
        scan.proven = max(scan.proven, group * ALIGN)

    def _take_batch(self, position: int, length: int, body: memoryview) -> None:
        scan = self._scan
        head = decode_batch(body)
        scan.highest_number = max(scan.highest_number, head.number)
        ref = scan.refs.get(head.number)
        if ref is None and (ref := self._refs.get(head.number)) is not None:
            scan.borrowed[head.number] = ref
        if ref is None:
            scan.unresolved += 1
            offsets = f"{head.base_offset}..{head.base_offset + head.records - 1}"
            self._damaged(position, f"a batch with offsets {offsets} of a partition whose definition is lost")
            return
        entry = WalEntryRef(
            scan.name,
            scan.seq,
            position,
            length,
            ref,
            head.epoch,
            head.base_offset,
            head.records,
            head.append_ms,
            head.stamp,
            head.sink,
        )
        scan.entries.append(entry)
        if self._open_damage is not None:
            self._open_damage.after = entry
            self._open_damage = None

    def _take_control(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.PARTITION:
            number, ref = decode_ref(body)
            self._scan.refs[number] = ref
            self._scan.highest_number = max(self._scan.highest_number, number)
        elif kind is Kind.SYNC:
            self._scan.controls.append(decode_points(body))
        else:
            self._scan.controls.append(decode_release(body))
