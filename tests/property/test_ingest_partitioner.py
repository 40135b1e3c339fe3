"""murmur2 against a plain reading of Kafka's Java, and placement against a plain loop."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sluice.ingest.partitioner import assign, murmur2, split
from sluice.log_store.records import make_batch
from tests.support.bodies import NOW_MS, rows_of

keys = st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=200, max_size=300), max_size=60)


def reference(data: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, line by line."""
    m, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(data)
    h = 0x9747B28C ^ length
    for i in range(length // 4):
        k = data[4 * i] | data[4 * i + 1] << 8 | data[4 * i + 2] << 16 | data[4 * i + 3] << 24
        k = k * m & mask
        k ^= k >> 24
        k = k * m & mask
        h = h * m & mask
        h ^= k
    rest = length & ~3
    if length % 4 == 3:
        h ^= data[rest + 2] << 16
    if length % 4 >= 2:
        h ^= data[rest + 1] << 8
    if length % 4 >= 1:
        h ^= data[rest]
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    h ^= h >> 15
    return h - 2**32 if h >= 2**31 else h


@given(keys, st.integers(0, 5))
def test_murmur2_is_kafkas(given_keys: list[bytes | None], start: int) -> None:
    for column in (given_keys, [key for key in given_keys if key is not None] * 20):
        hashes = murmur2(pa.array(column, pa.binary()).slice(start))
        assert hashes.tolist() == [reference(key or b"") for key in column[start:]]


@given(keys, st.integers(1, 300), st.integers(0, 10**9), st.data())
def test_placement(given_keys: list[bytes | None], n: int, start: int, data: st.DataObject) -> None:
    """Explicit, else key, else turn; every record goes to exactly one partition, in order."""
    batch = make_batch([{"key": key, "value": b"%d" % i} for i, key in enumerate(given_keys)], default_ms=NOW_MS)
    size = len(given_keys)
    asked = data.draw(st.none() | st.lists(st.integers(-1, n - 1), min_size=size, max_size=size))
    placed = assign(batch, None if asked is None else np.array(asked, np.int32), n, start)
    turns = count(start)
    expected = []
    for index, key in enumerate(given_keys):
        if asked is not None and asked[index] >= 0:
            expected.append(asked[index])
        elif key is not None:
            expected.append((reference(key) & 0x7FFFFFFF) % n)
        else:
            expected.append(next(turns) % n)
    assert placed.tolist() == expected
    rows, parts = rows_of(batch), split(batch, placed)
    for number, part in parts.items():
        where = [index for index, partition in enumerate(expected) if partition == number]
        assert part.indices.tolist() == where
        assert rows_of(part.batch) == [rows[index] for index in where]
    assert sum(part.batch.num_rows for part in parts.values()) == size
