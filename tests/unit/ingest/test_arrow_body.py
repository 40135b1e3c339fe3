"""Arrow IPC bodies: every useful type, and everything hostile (docs/http.md)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sluice.ingest.arrow_body import decode
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import Decoded
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge
from sluice.log_store.records import HEADERS, MAX_TIMESTAMP_MS, RECORD_SCHEMA
from tests.support.bodies import HEADER_LIST, NOW_MS, ipc, rows_of, same

VALUES = [b"abc", None, b"", b"x" * 40, b"abc"]


def decoded(limits: IngestLimits | None = None, **columns: Any) -> Decoded:
    return decode(ipc(pa.table(columns)), now_ms=NOW_MS, limits=limits or IngestLimits())


def refused(field: str, rule: str, **columns: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoded(**columns)
    assert caught.value.fields["field"] == field
    assert rule in caught.value.message


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view(),
     pa.dictionary(pa.int8(), pa.binary()), pa.dictionary(pa.uint32(), pa.string()),
     pa.dictionary(pa.int64(), pa.large_string())],
)  # fmt: skip
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_bytes_of_every_form(kind: pa.DataType, compression: str | None) -> None:
    plain = pa.array(VALUES, pa.binary())
    if pa.types.is_dictionary(kind):
        column = plain.cast(kind.value_type).dictionary_encode().cast(kind)
    else:
        column = plain.cast(kind)
    result = decode(ipc(pa.table({"value": column, "key": column}), compression=compression), now_ms=NOW_MS)
    assert same(result.batch, [{"value": value, "key": value} for value in VALUES])
    assert result.batch.schema.equals(RECORD_SCHEMA)
    assert result.explicit_partitions is None


def test_fixed_size_and_null_columns() -> None:
    fixed = pa.array([b"abc", None], pa.binary(3))
    assert same(decoded(value=fixed, key=pa.nulls(2)).batch, [{"value": b"abc"}, {}])
    nothing = decoded(value=pa.nulls(2), timestamp=pa.nulls(2), headers=pa.nulls(2), partition=pa.nulls(2))
    assert same(nothing.batch, [{}, {}])
    assert nothing.explicit_partitions is None


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()])
def test_partitions_of_any_integer(kind: pa.DataType) -> None:
    explicit = decoded(value=["a", "b", "c"], partition=pa.array([3, None, 0], kind)).explicit_partitions
    assert explicit is not None
    assert (explicit.tolist(), explicit.dtype) == ([3, -1, 0], np.int32)
    assert decoded(value=["a"], partition=pa.array([None], kind)).explicit_partitions is None


@pytest.mark.parametrize(
    ("kind", "given", "ms"),
    [
        (pa.int64(), 5, 5),
        (pa.uint16(), 5, 5),
        (pa.uint64(), MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS),
        (pa.timestamp("s"), 5, 5000),
        (pa.timestamp("s"), MAX_TIMESTAMP_MS // 1000, MAX_TIMESTAMP_MS // 1000 * 1000),
        (pa.timestamp("ms", tz="UTC"), 5, 5),
        (pa.timestamp("us", tz="Europe/Berlin"), 5999, 5),
        (pa.timestamp("ns"), 5_999_999, 5),
    ],
)
def test_timestamps_of_any_unit(kind: pa.DataType, given: int, ms: int) -> None:
    column = pa.array([given, None], pa.int64()).cast(kind)
    assert [row["timestamp"] for row in rows_of(decoded(value=["a", "b"], timestamp=column).batch)] == [ms, NOW_MS]
    one = decoded(value=["a"], timestamp=column.slice(0, 1))
    assert rows_of(one.batch)[0]["timestamp"] == ms


@pytest.mark.parametrize("kind", [HEADERS, HEADER_LIST, pa.large_list(HEADER_LIST.value_type)])
def test_headers(kind: pa.DataType) -> None:
    name = kind.value_type.field(0).name
    rows = [[(b"a", b"1"), (b"a", None)], None, [], [(b"b", b"")]]
    given = [None if row is None else [{name: k, "value": v} for k, v in row] for row in rows]
    result = decoded(value=["v"] * 4, headers=pa.array(given, kind))
    expected = [None if row is None else [(k.decode(), v) for k, v in row] for row in rows]
    assert [row["headers"] for row in rows_of(result.batch)] == expected
    result.batch.validate(full=True)


def test_headers_with_binary_names_and_the_value_first() -> None:
    kind = pa.list_(pa.struct([("value", pa.string()), ("key", pa.binary())]))
    result = decoded(value=["v"], headers=pa.array([[{"key": b"k", "value": "x"}]], kind))
    assert rows_of(result.batch)[0]["headers"] == [("k", b"x")]
    wrong = pa.array([[{"key": b"\xff", "value": "x"}]], kind)
    refused("column headers", "names must be UTF-8", value=["v"], headers=wrong)


def test_several_batches_are_one_request() -> None:
    table = pa.table(
        {
            "value": [f"v{n}" for n in range(10)],
            "partition": pa.array([None, None, None, 1, 2, None, 0, 0, 0, 0], pa.int32()),
            "timestamp": list(range(10)),
        }
    )
    result = decode(ipc(table, rows=3), now_ms=NOW_MS)
    assert same(result.batch, [{"value": b"v%d" % n, "timestamp": n} for n in range(10)])
    assert result.explicit_partitions is not None
    assert result.explicit_partitions.tolist() == [-1, -1, -1, 1, 2, -1, 0, 0, 0, 0]
    wrong = table.set_column(2, "timestamp", pa.array([0] * 7 + [-1] * 3))
    with pytest.raises(InvalidRequest, match=r"records\[7\].timestamp"):
        decode(ipc(wrong, rows=3), now_ms=NOW_MS)


def test_dictionaries_may_be_replaced_between_batches() -> None:
    sink = io.BytesIO()
    first, second = (pa.array(values).dictionary_encode() for values in (["a", "b"], ["c", "c"]))
    with pa.ipc.new_stream(sink, pa.schema([("value", first.type)])) as writer:
        writer.write_batch(pa.record_batch([first], names=["value"]))
        writer.write_batch(pa.record_batch([second], names=["value"]))
    result = decode(sink.getvalue(), now_ms=NOW_MS)
    assert result.batch.column("value").to_pylist() == [b"a", b"b", b"c", b"c"]


def test_delta_dictionaries_are_refused() -> None:
    sink = io.BytesIO()
    first, second = (pa.array(values).dictionary_encode() for values in (["a", "b"], ["a", "b", "c"]))
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, pa.schema([("value", first.type)]), options=options) as writer:
        writer.write_batch(pa.record_batch([first], names=["value"]))
        writer.write_batch(pa.record_batch([second], names=["value"]))
    with pytest.raises(InvalidRequest, match="delta dictionaries"):
        decode(sink.getvalue(), now_ms=NOW_MS)


def test_wrong_columns_are_named() -> None:
    refused("column value", "must be given", key=["a"])
    refused("column offset", "is unknown", value=["a"], offset=[1])
    refused("column value", "not int64", value=[1])
    refused("column value", "not fixed_size_binary[0]", value=pa.array([b""], pa.binary(0)))
    refused("column value", "not list", value=[["a"]])
    refused("column key", "must be binary, string", value=["a"], key=pa.array([1]).dictionary_encode())
    refused("column partition", "must be an integer, not double", value=["a"], partition=[1.0])
    refused("column timestamp", "not string", value=["a"], timestamp=["2024"])
    refused("column timestamp", "not date32", value=["a"], timestamp=pa.array([1], pa.date32()))
    for headers in ([{"a": 1}], [["a"]], [[{"key": "a"}]], [[{"key": 1, "x": 2}]], [[{"key": None, "value": b""}]]):
        refused("column headers", "must be a list of struct", value=["a"], headers=pa.array(headers))
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["value", "value"])
    with pytest.raises(InvalidRequest, match="two columns"):
        decode(ipc(twice), now_ms=NOW_MS)
    run_ends = pa.RunEndEncodedArray.from_arrays(pa.array([2**30], pa.int32()), pa.array([b"x"]))
    with pytest.raises((InvalidRequest, RecordListTooLarge)):
        decoded(value=run_ends)


def test_wrong_rows_are_named() -> None:
    good = ["a", "b", "c"]
    for wrong in (-1, MAX_TIMESTAMP_MS + 1):
        refused("records[1].timestamp", "must be from 0", value=good, timestamp=[0, wrong, -1])
    refused("records[1].timestamp", "must be", value=good, timestamp=pa.array([0, 2**62, 0], pa.timestamp("s")))
    refused("records[2].timestamp", "must be", value=good, timestamp=pa.array([0, 0, -1], pa.timestamp("ns")))
    refused("records[2].partition", "must be from 0", value=good, partition=[0, None, -1])
    refused("records[0].partition", "must be from 0", value=good, partition=[2**31, 0, 0])
    refused("body", "", value=good, partition=pa.array([2**64 - 1, 0, 0], pa.uint64()))
    null_name = [[], [{"name": "a", "value": b""}, {"name": None, "value": b""}], []]
    refused("records[1].headers", "must have a name", value=good, headers=pa.array(null_name, HEADER_LIST))
    refused("records[2].headers", "must have a name", value=good, headers=pa.array([[], [], [None]], HEADER_LIST))


def test_headers_are_limited() -> None:
    headers = pa.array([[], [{"name": "abc", "value": b"de"}] * 2], HEADER_LIST)
    assert decoded(IngestLimits(max_headers=2, max_header_bytes=10), value=["a", "b"], headers=headers).count == 2
    with pytest.raises(InvalidRequest, match=r"records\[1\].headers: must not be more than 1"):
        decoded(IngestLimits(max_headers=1), value=["a", "b"], headers=headers)
    with pytest.raises(InvalidRequest, match=r"records\[1\].headers: must not be larger than 9"):
        decoded(IngestLimits(max_header_bytes=9), value=["a", "b"], headers=headers)


def test_a_cut_or_empty_stream_is_refused() -> None:
    body = ipc(pa.table({"value": ["a", "b"] * 100}), rows=50)
    for end in range(0, len(body), 7):
        with pytest.raises(InvalidRequest):
            decode(body[:end], now_ms=NOW_MS)
    with pytest.raises(InvalidRequest, match="end-of-stream"):
        decode(body[:-8], now_ms=NOW_MS)
    with pytest.raises(InvalidRequest):
        decode(body + b"more", now_ms=NOW_MS)
    for nothing in (pa.table({"value": pa.array([], pa.binary())}), pa.table({"value": ["a"]}).slice(1)):
        with pytest.raises(InvalidRequest, match="records: must not be empty"):
            decode(ipc(nothing), now_ms=NOW_MS)


def test_rows_and_batches_are_limited() -> None:
    table = pa.table({"value": ["a"] * 12})
    for limits in (IngestLimits(max_arrow_records=12), IngestLimits(max_arrow_batches=4)):
        assert decode(ipc(table, rows=3), now_ms=NOW_MS, limits=limits).count == 12
    for limits in (IngestLimits(max_arrow_records=11), IngestLimits(max_arrow_batches=3)):
        with pytest.raises(RecordListTooLarge):
            decode(ipc(table, rows=3), now_ms=NOW_MS, limits=limits)


def test_invalid_utf8_in_a_string_column_is_refused() -> None:
    data = b"abc\xff"
    ends = pa.py_buffer(np.array([0, 3, 4], np.int32))
    column = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(data)])
    refused("body", "Invalid UTF8", value=column)
    assert decoded(value=column.view(pa.binary())).count == 2


@pytest.mark.parametrize("offsets", [[0, 3, 1000], [0, -1, 4], [3, 1, 4], [0, 2**31 - 1, 4]])
def test_offsets_outside_the_data_are_refused(offsets: list[int]) -> None:
    fine = ipc(pa.table({"value": pa.array([b"abc", b"d"], pa.binary())}))
    honest = np.array([0, 3, 4], np.int32).tobytes()
    assert fine.count(honest) == 1
    with pytest.raises(InvalidRequest, match="not a valid Arrow IPC stream"):
        decode(fine.replace(honest, np.array(offsets, np.int32).tobytes()), now_ms=NOW_MS)


def test_a_type_that_pyarrow_does_not_know_is_refused() -> None:
    """Found by fuzzing: an interval of months (type 11; a timestamp is 10) is a KeyError in pyarrow 26."""
    body = ipc(pa.table({"value": ["a"], "timestamp": pa.array([5], pa.timestamp("s"))}))
    tags = [at for at, byte in enumerate(body) if byte == 10]
    refusals = []
    for at in tags:
        try:
            decode(body[:at] + bytes([11]) + body[at + 1 :], now_ms=NOW_MS)
        except InvalidRequest as error:
            refusals.append(error.message)
    assert any(message.endswith(": 21") for message in refusals)


LIMITED = IngestLimits(max_body_bytes=1 << 20)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_count_with_what_they_claim(compression: str) -> None:
    """R-12: a bomb is refused by its claims, before anything is allocated for it."""
    bomb = ipc(pa.table({"value": pa.array([bytes(0x54321)] * 5)}), compression=compression)
    assert len(bomb) < 1 << 15
    with pytest.raises(RecordListTooLarge, match="decompressed"):
        decode(bomb, now_ms=NOW_MS, limits=LIMITED)
    # The claim is the last of its kind: in front of the data, which is the last buffer.
    head, honest, tail = bomb.rpartition((5 * 0x54321).to_bytes(8, "little"))
    assert honest
    for lie in (1 << 40, 2**63 - 1):
        with pytest.raises(RecordListTooLarge):
            decode(head + lie.to_bytes(8, "little") + tail, now_ms=NOW_MS, limits=LIMITED)
    for lie in (1, 1 << 10, -2):
        with pytest.raises(InvalidRequest):
            decode(head + lie.to_bytes(8, "little", signed=True) + tail, now_ms=NOW_MS, limits=LIMITED)


@pytest.mark.parametrize("length", [2**31 - 1, -1, 100])
def test_the_view_of_a_null_is_never_followed(length: int) -> None:
    """Found by fuzzing: validation passes over it, the cast of Arrow 26.0 does not and crashes."""
    views = np.array([[3, 0x636261, 0, 0], [length, 0, 7, 2**30], [40, 0x78787878, 0, 0]], np.int32)
    buffers = [pa.py_buffer(bytes([0b101])), pa.py_buffer(views), pa.py_buffer(b"x" * 40)]
    column = pa.Array.from_buffers(pa.binary_view(), 3, buffers)
    assert decoded(value=column).batch.column("value").to_pylist() == [b"abc", None, b"x" * 40]


def test_dictionaries_and_views_count_unfolded() -> None:
    long = b"x" * (1 << 16)
    indices = pa.array(np.zeros(1000, np.int16))
    folded = pa.DictionaryArray.from_arrays(indices, pa.array([long]))
    views = np.array([[len(long), 0x78787878, 0, 0]] * 1000, np.int32)
    view = pa.Array.from_buffers(pa.binary_view(), 1000, [None, pa.py_buffer(views), pa.py_buffer(long)])
    for column in (folded, view):
        body = ipc(pa.table({"value": column}))
        assert len(body) < 1 << 18
        with pytest.raises(RecordListTooLarge, match="column 'value'"):
            decode(body, now_ms=NOW_MS, limits=LIMITED)
        assert decode(ipc(pa.table({"value": column.slice(0, 10)})), now_ms=NOW_MS, limits=LIMITED).count == 10


def test_a_large_dictionary_is_not_validated_for_ever() -> None:
    dictionary = pa.array([b"x" * (1 << 19)])
    column = pa.DictionaryArray.from_arrays(pa.array([None] * 500, pa.int8()), dictionary)
    with pytest.raises(RecordListTooLarge, match="dictionaries are too large"):
        decode(ipc(pa.table({"value": column}), rows=1), now_ms=NOW_MS, limits=LIMITED)
