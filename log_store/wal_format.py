"""The bytes of a WAL file. Little-endian; every entry starts at a multiple of 8.

::

    file    header (64 B), entries, end
    header  magic 8s | format u32 | 0 u32 | wal uuid 16s | seq u64 | previous seq, end u64 u64 | crc u32 | 0 u32
    entry   length u32 | crc u32 | kind u8 | tag 3s | group u32 | body …, padded with zeros
    end     length 0, or the end of the file

`length` counts the 16 bytes before the body and not the padding. `crc` covers everything behind it and is seeded with
(uuid, seq, position, length): an entry is valid in one place of one file only, so the old bytes of a recycled file are
never taken for entries. `tag` comes from (uuid, seq) and lets a scan that met damage search for the next entry.

`group` is the position, in units of 8, where the group of the entry began. A group is written only after the one before
it was fsynced, so an entry proves that all bytes below its group were on disk; `previous end` proves the same of the
file written before this one. That is how a scan tells a torn write from lost data.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple
from zlib import crc32

from sluice.log_store.errors import UnsupportedFormat
from sluice.log_store.sinks import MAX_ID_CHARS
from sluice.log_store.values import PartitionRef, ProducerStamp, SinkStamp
from sluice.log_store.wal_values import CorruptWal, Release, SyncPoint, WalBatch

MAGIC = b"SLUICWAL"
FORMAT = 1
ALIGN = 8
MAX_ENTRY_BYTES = 2**32 - ALIGN

_HEADER = struct.Struct("<8sI4x16sQQQ")
_HEADER_CRC = struct.Struct("<I4x")
HEADER_BYTES = _HEADER.size + _HEADER_CRC.size

ENTRY = struct.Struct("<IIB3sI")
ENTRY_BYTES = ENTRY.size
TAG_AT = 9
_LENGTH_AND_CRC = struct.Struct("<II")
_SEALED_HEAD = struct.Struct("<B3sI")
_PLACE = struct.Struct("<QI")
END = b"\0" * ALIGN

_NUMBER = struct.Struct("<I")
_BATCH = struct.Struct("<qqqII")
_STAMP = struct.Struct("<qqqIII")
_SINK = struct.Struct(f"<qI{MAX_ID_CHARS}s")
_RELEASE = struct.Struct("<QQqq?")
_STAMPED, _OF_SINK = 1, 2
_FLAGS_AT = _BATCH.size - 4
BATCH_HEAD_BYTES = _NUMBER.size + _BATCH.size + _STAMP.size + _SINK.size
"""Enough bytes of a body to hold everything of a batch but its payload."""

COPY_BELOW = 32 * 1024
"""Smaller payloads are copied next to each other: cheaper than one more element of a writev."""


class Kind(IntEnum):
    PARTITION = 1
    BATCH = 2
    SYNC = 3
    RELEASE = 4
    NOTE = 5
    SINK_BATCH = 6
    """A batch of a Spark sink. A kind of its own, so that a version that knows of no sinks refuses the log."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    uuid: bytes
    seq: int
    previous_seq: int
    previous_end: int

    def encode(self) -> bytes:
        head = _HEADER.pack(MAGIC, FORMAT, self.uuid, self.seq, self.previous_seq, self.previous_end)
        return head + _HEADER_CRC.pack(crc32(head))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> FileHeader | None:
        """None if this is not a header; a newer format is refused."""
        if len(data) < HEADER_BYTES:
            return None
        magic, version, uuid, seq, previous_seq, previous_end = _HEADER.unpack_from(data)
        (crc,) = _HEADER_CRC.unpack_from(data, _HEADER.size)
        if magic != MAGIC or crc != crc32(data[: _HEADER.size]):
            return None
        check_format(version)
        return cls(uuid, seq, previous_seq, previous_end)


def check_format(version: int) -> None:
    if version > FORMAT:
        raise UnsupportedFormat(f"the WAL has format {version}, this version of Sluice knows {FORMAT}", format=version)


def check_kind(kind: int) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        message = f"the WAL holds an entry of kind {kind}, written by a newer version of Sluice"
        raise UnsupportedFormat(message, kind=kind) from None


def padded(length: int) -> int:
    return -(-length // ALIGN) * ALIGN


class Seal:
    """What makes the entries of one file its own."""

    __slots__ = ("_seed", "tag")

    def __init__(self, uuid: bytes, seq: int) -> None:
        self._seed = crc32(uuid + seq.to_bytes(8, "little"))
        # Never zero bytes: a search through the zeros of a fresh file must not stop everywhere.
        self.tag = ((self._seed | 0x808080) & 0xFFFFFF).to_bytes(3, "little")

    def crc(self, position: int, length: int) -> int:
        """The crc before any byte of the entry: to be continued with what follows the crc field."""
        return crc32(_PLACE.pack(position, length), self._seed)


class FileEncoder:
    """Turns entries into the bytes of one file, in order. What it has made is fetched with `drain`."""

    def __init__(self, header: FileHeader) -> None:
        self.seq = header.seq
        self.position = HEADER_BYTES
        self._seal = Seal(header.uuid, header.seq)
        self._group = 0
        self._defined: set[int] = set()
        self._small: list[bytes | memoryview] = [header.encode()]
        self._parts: list[bytes | memoryview] = []

    def begin_group(self) -> None:
        self._group = self.position // ALIGN

    def cost_of_batch(self, number: int, ref: PartitionRef, size: int) -> int:
        return size if number in self._defined else size + entry_size(len(_encode_ref(number, ref)))

    def define(self, number: int, ref: PartitionRef) -> None:
        self.entry(Kind.PARTITION, _encode_ref(number, ref))
        self._defined.add(number)

    def batch(self, number: int, ref: PartitionRef, head: bytes, payload: memoryview) -> None:
        if number not in self._defined:
            self.define(number, ref)
        kind = Kind.SINK_BATCH if head[_FLAGS_AT] & _OF_SINK else Kind.BATCH
        self.entry(kind, _NUMBER.pack(number) + head, payload)

    def release(self, release: Release) -> None:
        self.entry(Kind.RELEASE, encode_release(release))

    def entry(self, kind: Kind, body: bytes, payload: memoryview | None = None) -> None:
        length = ENTRY_BYTES + len(body) + (len(payload) if payload is not None else 0)
        sealed = _SEALED_HEAD.pack(kind, self._seal.tag, self._group) + body
        crc = crc32(sealed, self._seal.crc(self.position, length))
        small = self._small
        if payload is None:
            small += (_LENGTH_AND_CRC.pack(length, crc), sealed)
        else:
            small += (_LENGTH_AND_CRC.pack(length, crc32(payload, crc)), sealed)
            if len(payload) >= COPY_BELOW:
                self._join()
                self._parts.append(payload)
            else:
                small.append(payload)
        padding = -length % ALIGN
        if padding:
            self._small.append(END[:padding])
        self.position += length + padding

    def _join(self) -> None:
        if self._small:
            self._parts.append(b"".join(self._small))
            self._small = []

    def drain(self) -> list[bytes | memoryview]:
        """All bytes since the last call, followed by an end mark that the next group overwrites."""
        self._small.append(END)
        self._join()
        parts, self._parts = self._parts, []
        return parts


def entry_size(body: int) -> int:
    return padded(ENTRY_BYTES + body)


def encode_batch(batch: WalBatch) -> bytes:
    """Everything but the partition's number, which depends on the file, and the payload."""
    stamp, sink = batch.stamp, batch.sink
    flags = (0 if stamp is None else _STAMPED) | (0 if sink is None else _OF_SINK)
    head = _BATCH.pack(batch.epoch, batch.base_offset, batch.append_ms, batch.count, flags)
    if stamp is not None:
        head += _STAMP.pack(
            stamp.producer_id, stamp.epoch, stamp.sequence, stamp.partitions, stamp.crc, stamp.body_count
        )
    if sink is not None:
        head += _SINK.pack(sink.batch, sink.piece, sink.query.encode("ascii"))
    return head


def batch_size(head: bytes, payload: memoryview) -> int:
    size = entry_size(_NUMBER.size + len(head) + len(payload))
    if size > MAX_ENTRY_BYTES:
        raise ValueError(f"a batch of {size} bytes does not fit into the WAL")
    return size


class BatchHead(NamedTuple):
    number: int
    epoch: int
    base_offset: int
    append_ms: int
    records: int
    stamp: ProducerStamp | None
    sink: SinkStamp | None


def decode_batch(body: bytes | memoryview) -> BatchHead:
    (number,) = _NUMBER.unpack_from(body)
    epoch, base_offset, append_ms, count, flags = _BATCH.unpack_from(body, _NUMBER.size)
    at = _NUMBER.size + _BATCH.size
    stamp = ProducerStamp(*_STAMP.unpack_from(body, at)) if flags & _STAMPED else None
    sink = None
    if flags & _OF_SINK:
        batch, piece, query = _SINK.unpack_from(body, at + (_STAMP.size if stamp is not None else 0))
        sink = SinkStamp(query.rstrip(b"\0").decode("ascii"), batch, piece)
    return BatchHead(number, epoch, base_offset, append_ms, count, stamp, sink)


def batch_head_size(stamp: ProducerStamp | None, sink: SinkStamp | None) -> int:
    """Bytes between the start of a batch's body and its payload."""
    size = _NUMBER.size + _BATCH.size
    return size + (_STAMP.size if stamp is not None else 0) + (_SINK.size if sink is not None else 0)


def _encode_ref(number: int, ref: PartitionRef) -> bytes:
    return _NUMBER.pack(number) + _dump(_ref_fields(ref))


def decode_ref(body: bytes) -> tuple[int, PartitionRef]:
    (number,) = _NUMBER.unpack_from(body)
    return number, PartitionRef(*_load(body[_NUMBER.size :]))


def encode_points(points: Iterable[tuple[PartitionRef, SyncPoint]]) -> bytes:
    return _dump([[*_ref_fields(ref), point.version, point.end_offset] for ref, point in points])


def decode_points(body: bytes) -> Mapping[PartitionRef, SyncPoint]:
    return {PartitionRef(*row[:4]): SyncPoint(*row[4:]) for row in _load(body)}


def encode_release(release: Release) -> bytes:
    bounds = _RELEASE.pack(release.seq, release.position, release.start, release.end, release.forget)
    return bounds + _dump(_ref_fields(release.ref))


def decode_release(body: bytes) -> Release:
    seq, position, start, end, forget = _RELEASE.unpack_from(body)
    return Release(PartitionRef(*_load(body[_RELEASE.size :])), start, end, forget, seq, position)


def encode_note(fields: Mapping[str, object]) -> bytes:
    return _dump(fields)


def _ref_fields(ref: PartitionRef) -> list[str | int]:
    return [ref.topic, ref.topic_id, ref.partition, ref.folder]


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(body: bytes) -> list[Any]:
    value = json.loads(body)
    if not isinstance(value, list):
        raise CorruptWal(f"a WAL entry holds {type(value).__name__} where a list belongs")
    return value
