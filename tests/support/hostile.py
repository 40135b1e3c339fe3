"""Hostile produce requests, each made from a number: the same number makes the same request."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from sluice.ingest.arrow_body import CONTENT_TYPE as ARROW
from tests.support.bodies import entries, ipc, mutations, v2
from tests.support.hostile_arrow import lying_stream

JSON, BINARY = "application/json", "application/vnd.kafka.binary.v2+json"
V3 = "/v3/clusters/-/topics/{t}"
_RECORD = b'{"key":"k","value":{"a":[1,2.5,null]},"partition":0,"timestamp":7,"headers":[{"name":"h","value":"YQ=="}]}'
_V3_RECORD = (
    b'{"partition_id":0,"key":{"type":"BINARY","data":"YQ=="},"value":{"type":"JSON","data":{"a":1}},"timestamp":7}'
)
_TABLE = pa.table({"value": [b"a", None], "key": ["x", "y"], "partition": [0, 0], "timestamp": [7, 8]})


class Call(NamedTuple):
    path: str
    media: str
    good: bytes


CALLS = {
    "json": Call("/topics/{t}", JSON, v2(_RECORD, b'{"value":1}')),
    "json partition": Call("/topics/{t}/partitions/1", JSON, v2(b'{"key":"a","value":"b"}')),
    "binary": Call("/topics/{t}", BINARY, v2(b'{"key":"YQ==","value":"YWI="}')),
    "binary partition": Call("/topics/{t}/partitions/2", BINARY, v2(b'{"value":"YWI="}', b'{"value":null}')),
    "arrow": Call("/topics/{t}", ARROW, ipc(_TABLE)),
    "arrow partition": Call("/topics/{t}/partitions/0", ARROW, ipc(_TABLE.drop(["partition"]))),
    "stream": Call(f"{V3}/records", JSON, _V3_RECORD + b"\n" + _V3_RECORD),
    "batch": Call(f"{V3}/records:batch", JSON, entries(b'{"id":"1",' + _V3_RECORD[1:], b'{"id":"2"}')),
}


class Attack(NamedTuple):
    seed: int
    call: str
    kind: str
    media: str
    encoding: str | None
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": self.media} | ({} if self.encoding is None else {"Content-Encoding": self.encoding})

    def __str__(self) -> str:
        body = self.body if len(self.body) <= 300 else self.body[:200] + b" ... " + self.body[-80:]
        return f"seed {self.seed}: {self.kind} for {self.call} ({self.headers}), {len(self.body)} bytes: {body!r}"


def attacks(count: int, start: int = 0) -> Iterator[Attack]:
    return map(attack, range(start, start + count))


def attack(seed: int) -> Attack:
    rng = random.Random(f"hostile {seed}")
    name = rng.choice(list(CALLS))
    call = CALLS[name]
    kind = rng.choices(list(_KINDS), weights=[weight for weight, _ in _KINDS.values()])[0]
    media, encoding, body = _KINDS[kind][1](call, rng)
    if rng.random() < 0.05:
        media = rng.choice((JSON, BINARY, ARROW, "text/plain", "application/xml", "application/json; charset=latin-1"))
    return Attack(seed, name, kind, media, encoding, body)


Made = tuple[str, str | None, bytes]


# --- what is wrong with the bytes ----------------------------------------------------------------


def _mutated(call: Call, rng: random.Random) -> Made:
    (body,) = mutations([call.good], 1, rng.randrange(1 << 40))
    return call.media, None, body


def _truncated(call: Call, rng: random.Random) -> Made:
    return call.media, None, call.good[: rng.randrange(len(call.good))]


def _not_text(call: Call, rng: random.Random) -> Made:
    """Bytes that are no UTF-8, halves of surrogate pairs, zeros and other control characters, inside strings."""
    bad = rng.choice(
        (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\\ud800", b"\\udc00\\ud800",
         b"\\ud83d", b"\x00", b"\\u0000", b"\x1f", b"\\x", b"\\u12", b"\xef\xbb\xbf", b"\xe2\x80\xa8")
    )  # fmt: skip
    quotes = [at for at, byte in enumerate(call.good) if byte == ord('"')] or [0]
    at = rng.choice(quotes) + 1
    return call.media, None, call.good[:at] + bad + call.good[at:]


def _nested(call: Call, rng: random.Random) -> Made:
    depth = rng.choice((10, 60, 64, 65, 200, 1_000, 20_000, 100_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":[', b"]}]")))
    value = opened * depth + b"1" + closed * (depth if rng.random() < 0.7 else depth // 2)
    place = rng.choice((b'{"value":%s}', b'{"key":%s}', b'{"headers":%s}', b'{"id":%s}', b"%s"))
    wrap = entries if call.path.endswith("batch") else v2
    return JSON, None, wrap(place % value) if rng.random() < 0.8 else value


# --- what is wrong with the values ---------------------------------------------------------------

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 1e308, -0.0, 0.5, "", "0", "x" * 300,
    "YQ", "YQ=", "YQ==\n", "Y Q=", "=", "é", "\u0000", "../..", [], [[]], {}, {"a": 1}, [None], {"type": "BINARY"},
    {"type": "BINARY", "data": "*"}, {"type": "JSON"}, {"type": 1}, {"type": "AVRO", "data": "x"}, [{"name": 1}],
    [{"name": "h", "value": "*"}], [{"name": "h", "value": 1}], [{}], [{"name": "h", "x": 1}], "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z", "2024-02-30T00:00:00Z", "+275760-09-13T00:00:00Z", 253402300800000, 8640000000000001,
    {"type": "STRING", "data": "x" * 2000}, {"type": "STRING", "data": ["x"]}, [{"name": "h" * 70000, "value": None}],
    [{"name": "h", "value": None}] * 200,
)  # fmt: skip
_NAMES = ("key", "value", "partition", "partition_id", "timestamp", "headers", "id", "type", "data", "", "__proto__")


def _wrong_values(call: Call, rng: random.Random) -> Made:
    v3 = call.path.startswith("/v3")
    rows: list[Any] = []
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        row = {rng.choice(_NAMES): rng.choice(_ODD) for _ in range(rng.randint(1, 4))}
        rows.append(rng.choice(_ODD) if rng.random() < 0.1 else row)
    if v3 and not call.path.endswith("batch"):
        return JSON, None, b"\n".join(json.dumps(row).encode() for row in rows)
    whole = {rng.choice(("entries", "records") if v3 else ("records", "records", "entries")): rows}
    if rng.random() < 0.1:
        whole[rng.choice(_NAMES)] = rng.choice(_ODD)
    return BINARY if call.media == BINARY else JSON, None, json.dumps(whole).encode()


def _repeated(call: Call, rng: random.Random) -> Made:
    """The same member twice, and more records than fit."""
    if rng.random() < 0.5:
        return JSON, None, b'{"records":[{"value":1}],"records":[{"value":2,"value":3}],"entries":[],"entries":[{}]}'
    many = rng.choice((1_000, 100_001))
    wrap = entries if call.path.endswith("batch") else v2
    return JSON, None, wrap(*[rng.choice((b"{}", b"1", b"[]", b'{"id":"1"}'))] * many)


def _lying_arrow(_call: Call, rng: random.Random) -> Made:
    return ARROW, None, lying_stream(rng)


# --- what is wrong with the compression ----------------------------------------------------------


def _packed(call: Call, rng: random.Random) -> Made:
    """Compressed, then cut, changed, named wrongly, followed by rubbish, or compressed once more."""
    name = rng.choice(("gzip", "zstd"))
    body = _pack(name, call.good)
    kind = rng.randrange(7)
    if kind == 0:
        body = body[: rng.randrange(len(body))]
    elif kind == 1:
        changed = bytearray(body)
        changed[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        body = bytes(changed)
    elif kind == 2:
        name = rng.choice(("gzip", "zstd", "br", "deflate", "identity", "x-gzip", "gzip, gzip", "", "GZIP", "gzip;q=1"))
    elif kind == 3:
        body += rng.choice((b"\0", b"\x1f\x8b", b"rubbish", body))
    elif kind == 4:
        body = _pack(rng.choice(("gzip", "zstd")), body)
    elif kind == 5:
        # A frame whose header promises 2**62 bytes: single segment, 8 bytes of content size.
        name, body = "zstd", b"\x28\xb5\x2f\xfd\xe0" + (1 << 62).to_bytes(8, "little") + body[9:]
    else:
        name, body = "gzip", zlib.compress(call.good)
    return call.media, name, body


def _pack(name: str, body: bytes) -> bytes:
    if name == "gzip":
        return gzip.compress(body, 1, mtime=0)
    packed: bytes = pa.compress(body, codec="zstd", asbytes=True)
    return packed


_BOMB: dict[str, bytes] = {}


def _bomb(call: Call, rng: random.Random) -> Made:
    """Sixteen times the limit of the tests' service out of a few kilobytes."""
    name = rng.choice(("gzip", "zstd"))
    if name not in _BOMB:
        _BOMB[name] = _pack(name, bytes(128 << 20)) if name == "zstd" else _pack(name, bytes(1 << 20)) * 128
    return call.media, name, _BOMB[name]


_KINDS: dict[str, tuple[int, Callable[[Call, random.Random], Made]]] = {
    "mutated": (28, _mutated),
    "truncated": (6, _truncated),
    "not text": (10, _not_text),
    "nested": (4, _nested),
    "wrong values": (22, _wrong_values),
    "repeated": (2, _repeated),
    "lying arrow": (20, _lying_arrow),
    "packed": (12, _packed),
    "bomb": (1, _bomb),
}
