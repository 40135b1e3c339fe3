from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sluice.ingest.partitioner import assign, murmur2, split
from sluice.log_store.errors import UnknownTopicOrPartition
from sluice.log_store.producers import null_key_start
from sluice.log_store.records import make_batch
from tests.support.bodies import NOW_MS, rows_of

# From Kafka's UtilsTest.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def batch(*keys: bytes | None) -> pa.RecordBatch:
    return make_batch([{"key": key, "value": b"%d" % n} for n, key in enumerate(keys)], default_ms=NOW_MS)


def wishes(*partitions: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(partitions, np.int32)


@pytest.mark.parametrize("repeat", [1, 10])
def test_hashes_are_kafkas(repeat: int) -> None:
    assert murmur2(pa.array(list(KAFKA) * repeat, pa.binary())).tolist() == list(KAFKA.values()) * repeat
    for key, expected in KAFKA.items():
        assert murmur2(pa.array([key] * 5 * repeat, pa.binary())).tolist() == [expected] * 5 * repeat


def test_slices_nulls_and_nothing() -> None:
    keys = pa.array([None, b"21", b"", b"foobar", None] * 10, pa.binary())
    whole = murmur2(keys).tolist()
    assert whole[1] == KAFKA[b"21"]
    assert whole[0] == whole[2]
    for start, length in ((0, 50), (1, 3), (7, 30), (50, 0), (3, 40)):
        assert murmur2(keys.slice(start, length)).tolist() == whole[start : start + length]
    assert murmur2(pa.array([], pa.binary())).tolist() == []
    assert murmur2(pa.nulls(40, pa.binary())).tolist() == [whole[0]] * 40


def test_a_very_long_key_among_short_ones() -> None:
    rng = np.random.default_rng(1)
    keys = [rng.bytes(length) for length in (100_001, 65_536, 3, 0, *range(60))]
    one_by_one = [int(murmur2(pa.array([key], pa.binary()))[0]) for key in keys]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == one_by_one


def test_explicit_before_key_before_turn() -> None:
    rows = batch(b"21", None, b"foobar", None, b"", None)
    by_key = [(KAFKA[key] & 0x7FFFFFFF) % 7 for key in (b"21", b"foobar")]
    empty = (275646681 & 0x7FFFFFFF) % 7
    assert assign(rows, None, 7, 5).tolist() == [by_key[0], 5, by_key[1], 6, empty, 0]
    asked = assign(rows, wishes(-1, 3, 6, -1, -1, -1), 7, 5)
    assert asked.tolist() == [by_key[0], 3, 6, 5, empty, 6], "only records that are placed take a turn"
    assert asked.dtype == np.int32
    everything = wishes(0, 1, 2, 3, 4, 5)
    assert assign(rows, everything, 7, 5).tolist() == everything.tolist()


def test_without_keys_records_go_round() -> None:
    rows = batch(*[None] * 7)
    assert assign(rows, None, 3, 2).tolist() == [2, 0, 1, 2, 0, 1, 2]
    assert assign(rows, None, 1, 0).tolist() == [0] * 7
    start = null_key_start(11, 4, 3)
    assert assign(rows, None, 3, start)[0] == start


@pytest.mark.parametrize("wrong", [3, 2**31 - 1, -2])
def test_a_partition_that_does_not_exist_is_named(wrong: int) -> None:
    """Kafka's rule."""
    with pytest.raises(UnknownTopicOrPartition, match=r"records\[1\].partition: must be from 0 to 2") as caught:
        assign(batch(b"a", b"b", b"c"), wishes(0, wrong, wrong), 3, 0)
    assert caught.value.fields["index"] == 1


def test_split_keeps_order_inside_a_partition() -> None:
    rows = make_batch(
        [{"key": b"%d" % n, "value": b"v", "headers": [("h", b"%d" % n)] if n % 2 else None} for n in range(100)],
        default_ms=NOW_MS,
    )
    places = np.random.default_rng(3).integers(0, 5, 100).astype(np.int32)
    parts = split(rows, places)
    assert sorted(parts) == sorted(set(places.tolist()))
    for number, part in parts.items():
        assert part.indices.tolist() == np.flatnonzero(places == number).tolist()
        assert rows_of(part.batch) == [rows_of(rows)[index] for index in part.indices]
        assert part.batch.schema.equals(rows.schema)


def test_split_of_one_partition_copies_nothing() -> None:
    rows = batch(b"a", b"b")
    ((number, part),) = split(rows, wishes(70_000, 70_000)).items()
    assert number == 70_000
    assert part.batch is rows
    assert part.indices.tolist() == [0, 1]
    assert split(batch(), wishes()) == {}
    assert sorted(split(rows, wishes(70_000, 1))) == [1, 70_000]
