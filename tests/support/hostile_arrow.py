"""Arrow streams that lie: about lengths, offsets, types and compressed sizes."""

from __future__ import annotations

import random
import struct
from functools import cache

import pyarrow as pa

from tests.support.bodies import HEADER_LIST, ipc

_INT64S = (-1, -(2**63), 2**63 - 1, 2**62, 2**40, 2**31, 2**31 - 1, 0x7FFFFFF8, 1 << 24, 0, 1)
_INT32S = (-1, -(2**31), 2**31 - 1, 2**30, 0x00FFFFFF, 65536, 0, 1)
_ROWS = 5


@cache
def streams() -> tuple[bytes, ...]:
    """Right streams of the columns that are taken, and of types that are not, for the lies to start from."""
    values = [b"a", None, b"", b"xyz" * 9, b"\xff"]
    headers = pa.array([[{"name": "h", "value": b"v"}], None, [], None, [{"name": "", "value": None}]], HEADER_LIST)
    whole = pa.table({"value": values, "key": ["k"] * _ROWS, "timestamp": [7] * _ROWS, "headers": headers})
    plain = pa.table({"value": values, "partition": [0] * _ROWS})
    found = [ipc(whole), ipc(plain), ipc(plain, rows=1), ipc(whole, compression="zstd"), ipc(plain, compression="lz4")]
    found += [ipc(pa.table({"value": column}), compression=how) for column in _columns() for how in (None, "zstd")]
    return tuple(found)


def _columns() -> list[pa.Array]:
    texts, numbers = pa.array(["a", "b", "a", None, "c"]), pa.array(range(_ROWS))
    nested = pa.array([[[b"x"]], [], None, [None], [[]]], pa.list_(pa.list_(pa.binary())))
    struct_column = pa.StructArray.from_arrays([texts, numbers], ["a", "b"])
    return [
        texts.dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 0, 0, 0], pa.int8()), pa.array([b"long" * 99])),
        nested,
        struct_column,
        pa.UnionArray.from_sparse(pa.array([0] * _ROWS, pa.int8()), [numbers]),
        pa.RunEndEncodedArray.from_arrays(pa.array([2, _ROWS], pa.int32()), pa.array([b"x", None])),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * _ROWS, pa.binary(16))),
        texts.cast(pa.string_view()),
        texts.cast(pa.large_binary()),
        numbers.cast(pa.decimal128(38, 0)),
        numbers.cast(pa.timestamp("ns", "Europe/Berlin")),
        pa.nulls(_ROWS),
        pa.array([[(b"k", 1)], [], None, [], []], pa.map_(pa.binary(), pa.int32())),
    ]


def lying_stream(rng: random.Random) -> bytes:
    body = bytearray(rng.choice(streams()))
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice((_number, _number, _flip, _cut, _metadata_length, _doubled, _shifted))(body, rng)
    return bytes(body)


def _number(body: bytearray, rng: random.Random) -> None:
    """Row counts, buffer places and sizes, offsets and false sizes before compressed buffers: all are aligned."""
    if len(body) < 16:
        return
    if rng.random() < 0.5:
        struct.pack_into("<q", body, rng.randrange(len(body) // 8) * 8 % (len(body) - 8), rng.choice(_INT64S))
    else:
        struct.pack_into("<i", body, rng.randrange(len(body) // 4) * 4 % (len(body) - 4), rng.choice(_INT32S))


def _flip(body: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 6)):
        if body:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _cut(body: bytearray, rng: random.Random) -> None:
    del body[rng.randrange(len(body) + 1) :]


def _metadata_length(body: bytearray, rng: random.Random) -> None:
    """Of one of the messages: four bytes 0xff stand before it."""
    places = [at for at in range(0, len(body) - 8, 8) if body[at : at + 4] == b"\xff\xff\xff\xff"]
    if places:
        struct.pack_into("<i", body, rng.choice(places) + 4, rng.choice(_INT32S))


def _doubled(body: bytearray, rng: random.Random) -> None:
    """A second schema, dictionary or batch where none belongs."""
    other = rng.choice(streams())
    at = rng.randrange(0, len(body) + 1, 8)
    body[at:at] = other[: rng.randrange(0, len(other), 8)]


def _shifted(body: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(body) + 1)
    body[at:at] = bytes(rng.choice((1, 2, 4, 8)))
