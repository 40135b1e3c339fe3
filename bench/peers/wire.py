"""Just enough of Kafka's protocol to ask a broker whether it takes records: metadata, one record, end offsets.

A JVM client needs a second to start; this one can be the first to be acknowledged.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self

METADATA, PRODUCE, LIST_OFFSETS = 3, 0, 2
LATEST = -1


class BrokerError(Exception):
    """The broker answered with an error code."""


class WireClient:
    """One connection; every call is one request and its answer."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def partitions(self, topic: str) -> int:
        """How many partitions of a topic have a leader; a topic that is not there is created by the question."""
        answer = Reader(self._ask(METADATA, 1, _array([_string(topic)])))
        for _ in range(answer.int32()):
            answer.int32(), answer.string(), answer.int32(), answer.string()
        answer.int32()
        led = 0
        for _ in range(answer.int32()):
            answer.int16(), answer.string(), answer.int8()
            for _ in range(answer.int32()):
                error, _, leader = answer.int16(), answer.int32(), answer.int32()
                answer.int32s(), answer.int32s()
                led += error == 0 and leader >= 0
        return led

    def produce(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Appends one record with acks=all; its offset."""
        records = record_batch(value, timestamp_ms)
        part = struct.pack(">ii", partition, len(records)) + records
        body = _string(None) + struct.pack(">hi", -1, 10_000) + _array([_string(topic) + _array([part])])
        answer = Reader(self._ask(PRODUCE, 3, body))
        answer.int32(), answer.string(), answer.int32(), answer.int32()
        _check(answer.int16())
        return answer.int64()

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        parts = [struct.pack(">iq", number, LATEST) for number in range(partitions)]
        body = struct.pack(">i", -1) + _array([_string(topic) + _array(parts)])
        answer = Reader(self._ask(LIST_OFFSETS, 1, body))
        answer.int32(), answer.string()
        ends = [0] * partitions
        for _ in range(answer.int32()):
            number = answer.int32()
            _check(answer.int16())
            answer.int64()
            ends[number] = answer.int64()
        return ends

    def _ask(self, api: int, version: int, body: bytes) -> bytes:
        self._correlation += 1
        content = struct.pack(">hhi", api, version, self._correlation) + _string("sluice-bench") + body
        self._socket.sendall(struct.pack(">i", len(content)) + content)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            found += piece
        return bytes(found)


def _check(code: int) -> None:
    if code:
        raise BrokerError(f"error code {code}")


class Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def int8(self) -> int:
        return self._take(">b")

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def int32s(self) -> list[int]:
        return [self.int32() for _ in range(self.int32())]

    def string(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        self._at += size
        return self._content[self._at - size : self._at].decode()


def _string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def record_batch(value: bytes, timestamp_ms: int) -> bytes:
    """A batch of format 2 with one record, without key and headers."""
    record = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value + varint(0)
    record = varint(len(record)) + record
    after_crc = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + record
    after_length = struct.pack(">ibI", -1, 2, crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(after_length)) + after_length


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
