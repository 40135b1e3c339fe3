"""The sink without a cluster: which frames may be written, how rows become parts, which options there are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sluice.ingest import arrow_body
from sluice.log_store.errors import InvalidConfig, InvalidRecord, InvalidRequest
from sluice.log_store.staging import Part, check_part_name
from sluice.streaming.spark import sink, staging
from sluice.streaming.spark.sink import JobWriter, Staged, batch_writer, stream_writer
from sluice.streaming.spark.sink_columns import SinkColumns
from sluice.streaming.spark.sink_options import SinkOptions

SERVER = {"server": "http://127.0.0.1:1"}


def _headers(value: DataType) -> ArrayType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), BinaryType()),
    "headers": _headers(BinaryType()),
    "text headers": _headers(StringType()),
}


def schema(text: str) -> StructType:
    pairs = (field.split(":") for field in text.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def columns(text: str, **options: Any) -> SinkColumns:
    return SinkColumns.of(schema(text), **{"topic": "t", "include_headers": True} | options)


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "value:string",
        "value:binary,key:string",
        "KEY:binary,Value:string,headers:headers,topic:string,partition:int,timestamp:timestamp",
        "value:string,timestamp:bigint",
        "value:string,offset:bigint,timestampType:int,other:map",
    ],
)
def test_frames_that_can_be_written(text: str) -> None:
    assert columns(text).places["value"] >= 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key:string", "column 'value': must be there: string or binary"),
        ("value:int", "column 'value': must be string or binary, not int"),
        ("value:string,key:bigint", "column 'key': must be string or binary, not bigint"),
        ("value:string,partition:bigint", "column 'partition': must be int, not bigint"),
        ("value:string,timestamp:string", "column 'timestamp': must be timestamp, or long"),
        ("value:string,headers:map", "column 'headers': must be array<struct<key:string,value:binary>>"),
        ("value:string,headers:text headers", "column 'headers': must be array<struct"),
        ("value:string,VALUE:string", "column 'value': is there twice"),
    ],
)
def test_a_column_of_another_type_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        columns(text)
    assert message in refused.value.message


def test_the_topic_must_be_said_and_the_option_wins() -> None:
    with pytest.raises(InvalidConfig, match="column 'topic': must be there, or the option 'topic'"):
        columns("value:string", topic=None)
    with pytest.raises(InvalidConfig, match="column 'topic': must be string, not int"):
        columns("value:string,topic:int", topic=None)
    assert "topic" not in columns("value:string,topic:int").places
    assert "headers" not in columns("value:string,headers:int", include_headers=False).places


def test_rows_are_cut_by_topic_in_their_order() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["b", "a", "b", "a", "c"], "value": ["1", "2", "3", "4", "5"]})
    found = dict(columns("topic:string,value:string", topic=None).records(batch))
    assert {topic: rows.column("value").to_pylist() for topic, rows in found.items()} == {
        "b": ["1", "3"],
        "a": ["2", "4"],
        "c": ["5"],
    }
    with pytest.raises(InvalidRecord, match="column 'topic': is null"):
        list(
            columns("topic:string,value:string", topic=None).records(
                batch.set_column(0, "topic", pa.nulls(5, pa.string()))
            )
        )


# --- parts ---------------------------------------------------------------------------------------

TEXTS = st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 300), max_size=30)), max_size=20)


@given(given_rows=TEXTS, part_bytes=st.integers(100, 3000))
def test_parts_hold_every_row_once_in_order_and_are_bounded(
    given_rows: list[tuple[str, list[int]]], part_bytes: int
) -> None:
    numbers = iter(range(10_000))
    rows = [
        (topic, pa.RecordBatch.from_pydict({"value": [f"{next(numbers)}:" + "x" * size for size in sizes]}))
        for topic, sizes in given_rows
    ]
    expected: dict[str, list[str]] = {}
    for topic, batch in rows:
        expected.setdefault(topic, []).extend(batch.column("value").to_pylist())
    found: dict[str, list[str]] = {}
    for topic, batches in staging.gathered(iter(rows), part_bytes):
        values = [value for batch in batches for value in batch.column("value").to_pylist()]
        assert values
        assert len(values) == 1 or sum(batch.nbytes for batch in batches) <= part_bytes
        found.setdefault(topic, []).extend(values)
    assert found == {topic: values for topic, values in expected.items() if values}


class Kept:
    suffix, compression = staging.HTTP_SUFFIX, "lz4"

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, topic: str, name: str, body: pa.Buffer) -> None:
        assert topic == "t"
        assert name not in self.bodies
        self.bodies[check_part_name(name)] = body.to_pybytes()

    def close(self) -> None:
        pass


def test_a_part_is_what_a_produce_request_is() -> None:
    header = pa.array(
        [[{"key": "h", "value": b"1"}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    batch = pa.RecordBatch.from_pydict(
        {
            "key": ["k", None],
            "value": pa.array([b"1", None], pa.binary()),
            "headers": header,
            "partition": pa.array([1, None], pa.int32()),
        }
    )
    kept = Kept()
    used = columns("key:string,value:binary,headers:headers,partition:int")
    parts = staging.stage(used.records(batch), kept, task=3, attempt=1, part_bytes=1 << 20)
    [part] = parts
    assert part.name.startswith("00003-1-")
    decoded = arrow_body.decode(kept.bodies[part.name], now_ms=5)
    assert (decoded.count, part.rows, part.size) == (2, 2, len(kept.bodies[part.name]))
    assert decoded.explicit_partitions is not None
    assert decoded.explicit_partitions.tolist() == [1, -1]
    assert decoded.batch.column("key").to_pylist() == [b"k", None]


def test_two_attempts_of_a_task_never_share_a_name() -> None:
    kept = Kept()
    batch = pa.RecordBatch.from_pydict({"value": ["1"]})
    for _ in range(2):
        staging.stage(iter([("t", batch)]), kept, task=0, attempt=0, part_bytes=1 << 20)
    assert len(kept.bodies) == 2


# --- options -------------------------------------------------------------------------------------


def parse(streaming: bool = True, **given_options: str) -> SinkOptions:
    return SinkOptions.parse(
        {name.replace("__", "."): value for name, value in given_options.items()}, streaming=streaming, environ={}
    )


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"path": "/x"}, "option 'server': the sink needs the address"),
        (SERVER | {"topics": "t"}, "unknown option 'topics', did you mean 'topic'"),
        (SERVER | {"includeHeaders": "yes"}, "option 'includeHeaders': must be true or false"),
        (SERVER | {"query__id": "orders"}, "option 'query.id': is for batch writes; a streaming query has"),
        (SERVER | {"query__id": "orders", "batch__id": "1"}, "option 'query.id': is for batch writes"),
        (SERVER | {"batch__id": "1"}, "option 'batch.id': is for batch writes"),
        (SERVER | {"upload__part__bytes": "1"}, "option 'upload.part.bytes': must be 65536 to"),
        (SERVER | {"upload__timeout__ms": "0"}, "option 'upload.timeout.ms': must be at least 1 ms"),
        (SERVER | {"commit__timeout__ms": "0s"}, "option 'commit.timeout.ms': must be at least 1 ms"),
    ],
)
def test_a_wrong_option_is_named(given_options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse(**given_options)
    assert message in refused.value.message


def test_a_stream_is_not_named_by_an_option() -> None:
    """With a new checkpoint Spark counts from 0 again: under the old name its batches would be taken for repeats."""
    with pytest.raises(InvalidConfig, match="their rows would be lost"):
        stream_writer({**SERVER, "topic": "t", "Query.Id": "q"}, schema("value:string"), overwrite=False)


@pytest.mark.parametrize(
    ("query_id", "message"),
    [("a/b", "option 'query.id': query id 'a/b': must have"), ("job-1", "option 'query.id': must not begin with")],
)
def test_a_job_has_a_name_that_can_be_kept(query_id: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse(streaming=False, **SERVER, query__id=query_id, batch__id="0")
    assert message in refused.value.message


def test_a_batch_write_names_itself_wholly_or_not_at_all() -> None:
    for half in ({"query__id": "q"}, {"batch__id": "1"}):
        with pytest.raises(InvalidConfig, match="needs both"):
            parse(streaming=False, **SERVER, **half)
    both = parse(streaming=False, **SERVER, query__id="q", batch__id="7", kafka__acks="all", checkpointLocation="/c")
    assert (both.query_id, both.batch_id) == ("q", 7)


def test_writers_travel_and_keep_their_job() -> None:
    """The driver sends the writer to its tasks and to the commit: all of them must name the same job."""
    writer = batch_writer({**SERVER, "topic": "t", "token": "secret"}, schema("value:string"), overwrite=False)
    copy = pickle.loads(pickle.dumps(writer))
    assert isinstance(copy, JobWriter)
    assert vars(copy)["_query"] == vars(writer)["_query"]
    other = batch_writer({**SERVER, "topic": "t"}, schema("value:string"), overwrite=False)
    assert vars(other)["_query"] != vars(writer)["_query"]
    assert "secret" not in repr(vars(writer)["_options"])


def test_overwriting_a_log_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"mode\('overwrite'\): a log is appended to; use mode\('append'\)"):
        batch_writer({**SERVER, "topic": "t"}, schema("value:string"), overwrite=True)


def test_tasks_of_another_batch_are_not_committed() -> None:
    writer = stream_writer({**SERVER, "topic": "t"}, schema("value:string"), overwrite=False)
    with pytest.raises(InvalidRequest, match="another query or batch"):
        writer.commit([Staged("q", 4, 0, ())], 5)
    writer.commit([], 5)
    writer.abort([None], 5)


def test_a_batch_of_too_many_parts_is_refused_with_the_cure_before_it_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """200 tasks with rows for each of 81 topics. The service could say no more than that they are too many."""
    committed: list[int] = []
    monkeypatch.setattr(sink, "commit", lambda *given: committed.append(len(given[-1])) or 0)
    monkeypatch.setattr(sink, "drop", lambda *_: None)

    def task(number: int, topics: int) -> Staged:
        return Staged("q", 5, number, tuple(Part(f"{number}-{n}", f"t{n}", 1, 1, 0) for n in range(topics)))

    stream = stream_writer(SERVER, schema("topic:string,value:string"), overwrite=False)
    job = batch_writer(SERVER, schema("topic:string,value:string"), overwrite=False)
    many = [*(task(number, 81) for number in range(200)), task(200, 0)]
    for commit in (lambda: stream.commit(many, 5), lambda: job.commit(many)):
        with pytest.raises(InvalidRequest, match=r"16200 parts, from 200 tasks with rows for 81 topics; at most 16000"):
            commit()
        with pytest.raises(InvalidRequest, match=r"repartition\('topic'\), or have fewer tasks, with coalesce\(n\)"):
            commit()
    assert committed == []
    stream.commit([task(number, 80) for number in range(200)], 5)
    assert committed == [16_000]


def test_outside_a_micro_batch_there_is_no_query_to_name() -> None:
    def nothing() -> Iterator[pa.RecordBatch]:
        yield from ()

    writer = stream_writer({**SERVER, "topic": "t"}, schema("value:string"), overwrite=False)
    with pytest.raises(InvalidRequest, match=r"Spark does not set sql\.streaming\.queryId"):
        writer.write(nothing())
