"""The shape of records: what goes in comes out, nulls and empties included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sluice.log_store.records import (
    RECORD_SCHEMA,
    STORED_SCHEMA,
    make_batch,
    record_sizes,
    stored_table,
    timestamp_bounds_ms,
    with_timestamp,
)
from tests.support.logs import batch, timed

TRICKY = [
    {"key": None, "value": None, "headers": None},
    {"key": b"", "value": b"", "headers": []},
    {"key": b"k", "value": b"\x00\xff", "headers": [("h", b"1"), ("h", None), ("", b"")]},
    {"key": b"k2", "value": None, "headers": [("unicode-é", b"\xfe")]},
]


def test_null_and_empty_are_different_things() -> None:
    made = make_batch(TRICKY, default_ms=5)

    assert made.schema == RECORD_SCHEMA
    assert made.column("key").to_pylist() == [None, b"", b"k", b"k2"]
    assert made.column("value").to_pylist() == [None, b"", b"\x00\xff", None]
    assert made.column("headers").to_pylist() == [
        None,
        [],
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "", "value": b""}],
        [{"key": "unicode-é", "value": b"\xfe"}],
    ]
    assert timestamp_bounds_ms(made) == (5, 5)


def test_sizes_count_key_value_and_headers() -> None:
    """R-12 counts the uncompressed bytes of one record."""
    assert record_sizes(make_batch(TRICKY, default_ms=0)).tolist() == [0, 0, 1 + 2 + 1 + 1 + 1, 2 + 10 + 1]
    assert record_sizes(batch("abc", None)).tolist() == [3, 0]


def test_sizes_of_a_slice_are_those_of_its_own_rows() -> None:
    whole = make_batch(TRICKY, default_ms=0)

    assert record_sizes(whole.slice(2, 2)).tolist() == record_sizes(whole).tolist()[2:]
    assert record_sizes(whole.slice(1, 1)).tolist() == [0]


def test_offsets_are_dense_over_batches() -> None:
    """I-1: consecutive batches get consecutive offsets."""
    table = stored_table([batch("a", "b"), batch("c")], 7)

    assert table.schema == STORED_SCHEMA
    assert table.column("offset").to_pylist() == [7, 8, 9]
    assert table.column("value").to_pylist() == [b"a", b"b", b"c"]


def test_one_append_time_for_all() -> None:
    stamped = with_timestamp(timed(1, 9, 3), 44)

    assert timestamp_bounds_ms(stamped) == (44, 44)
    assert stamped.column("value").to_pylist() == [b"1", b"9", b"3"]
    assert timestamp_bounds_ms(timed(5, 1, 9, 3)) == (1, 9)


def test_timestamps_are_whole_milliseconds_in_microseconds() -> None:
    micros = timed(1_700_000_000_123).column("timestamp").cast(pa.int64()).to_numpy()
    assert np.array_equal(micros, [1_700_000_000_123_000])
