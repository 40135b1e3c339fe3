"""A look at an Arrow IPC stream before Arrow reads it: what would it allocate?

Arrow checks every length against the bytes that are there, except one: a compressed buffer says itself how large
it becomes, and Arrow allocates that before it decompresses. So the claims of all buffers are added up first.
Delta dictionaries are refused: each makes a copy of the dictionary so far, which is quadratic. The flatbuffers
have been verified by Arrow when a message is handed out; reads here are bounds-checked all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from sluice.ingest.limits import IngestLimits
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge

_U16, _I32, _U32, _I64 = (struct.Struct(code) for code in ("<H", "<i", "<I", "<q"))

# Slots of the tables in Arrow's Message.fbs.
_MESSAGE_HEADER = 2
_DICTIONARY_DATA, _DICTIONARY_IS_DELTA = 1, 2
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3
_BUFFER = struct.Struct("<qq")
_UNCOMPRESSED = -1


class _Table:
    """A flatbuffer table: fields by slot, absent ones as None."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - int(_I32.unpack_from(data, at)[0])
        self._slots = (int(_U16.unpack_from(data, self._vtable)[0]) - 4) // 2

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, int(_U32.unpack_from(data, 0)[0]))

    def _field(self, slot: int) -> int | None:
        if slot >= self._slots:
            return None
        offset = int(_U16.unpack_from(self._data, self._vtable + 4 + 2 * slot)[0])
        return self._at + offset if offset else None

    def table(self, slot: int) -> _Table | None:
        at = self._field(slot)
        return None if at is None else _Table(self._data, at + int(_U32.unpack_from(self._data, at)[0]))

    def flag(self, slot: int) -> bool:
        at = self._field(slot)
        return at is not None and self._data[at] != 0

    def buffers(self, slot: int) -> Iterator[tuple[int, int]]:
        """(offset, length) of a vector of Buffer structs."""
        at = self._field(slot)
        if at is None:
            return
        start = at + int(_U32.unpack_from(self._data, at)[0])
        for index in range(int(_U32.unpack_from(self._data, start)[0])):
            yield _BUFFER.unpack_from(self._data, start + 4 + _BUFFER.size * index)


def check_stream(body: pa.Buffer, limits: IngestLimits) -> None:
    """Refuses a stream that has too many messages, or would unfold to more than a body may be."""
    claimed = messages = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(body):
            messages += 1
            if messages > limits.max_arrow_batches + 1:  # one is the schema
                raise RecordListTooLarge(
                    f"body: must not have more than {limits.max_arrow_batches} Arrow batches", field="body"
                )
            claimed += _claimed(message)
            if claimed > limits.max_body_bytes:
                raise RecordListTooLarge(
                    f"body: must not be larger than {limits.max_body_bytes} bytes, decompressed",
                    field="body",
                    limit=limits.max_body_bytes,
                )
    except (pa.ArrowException, OSError, struct.error, IndexError, ValueError) as error:
        raise InvalidRequest(f"body: is not an Arrow IPC stream: {str(error)[:200]}", field="body") from None


def _claimed(message: pa.ipc.Message) -> int:
    """Bytes that the compressed buffers of a message claim to become."""
    if message.type not in ("record batch", "dictionary"):
        return 0
    header = _Table.root(memoryview(message.metadata)).table(_MESSAGE_HEADER)
    if header is not None and message.type == "dictionary":
        if header.flag(_DICTIONARY_IS_DELTA):
            raise InvalidRequest("body: delta dictionaries are not supported, send the whole dictionary", field="body")
        header = header.table(_DICTIONARY_DATA)
    if header is None or header.table(_BATCH_COMPRESSION) is None:
        return 0
    body = memoryview(message.body)
    claims = (_I64.unpack_from(body, offset)[0] for offset, length in header.buffers(_BATCH_BUFFERS) if length > 0)
    return sum(_valid_claim(int(claim)) for claim in claims)


def _valid_claim(claim: int) -> int:
    if claim < _UNCOMPRESSED:
        raise InvalidRequest("body: a compressed Arrow buffer has a negative length", field="body")
    return max(claim, 0)
