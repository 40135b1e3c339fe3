from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from sluice.log_store.errors import InvalidConfig
from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors.registry import Strategy
from sluice.streaming.source import SluiceDataSource
from sluice.streaming.spark.options import SOURCE_OPTIONS, Assigned, SourceOptions, TopicPattern, Topics, columns_of
from sluice.streaming.spark.points import ByOffset, ByTime, Edge
from sluice.streaming.spark.schema import COLUMNS

ROOT = {"path": "/lake", "subscribe": "orders"}
MEMBER = {"server": "http://localhost:8080", "subscribe": "orders", "group.id": "g"}


def parse(*, streaming: bool = True, environ: dict[str, str] | None = None, **given: Any) -> SourceOptions:
    options = {name.replace("__", "."): str(value) for name, value in given.items()}
    return SourceOptions.parse(options, streaming=streaming, environ=environ or {})


def test_defaults_are_those_of_the_kafka_source():
    stream, batch = parse(**ROOT), parse(streaming=False, **ROOT)
    assert (stream.starting, batch.starting, batch.ending) == (Edge.LATEST, Edge.EARLIEST, Edge.LATEST)
    assert stream.fail_on_data_loss
    assert stream.columns == COLUMNS == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (stream.max_offsets_per_trigger, stream.min_offsets_per_trigger) == (None, None)
    assert stream.max_trigger_delay_ms == 15 * 60 * 1000
    assert (stream.min_partitions, stream.max_records_per_partition) == (None, None)
    assert stream.group is None


def test_names_have_no_case_and_values_are_text():
    given = {"PATH": "/lake", "SUBSCRIBE": " a , b,,a ", "StartingOffsets": "EARLIEST", "failondataloss": "False"}
    options = SourceOptions.parse(given, streaming=True, environ={})
    assert options.subscription == Topics(("a", "b"))
    assert options.starting is Edge.EARLIEST
    assert not options.fail_on_data_loss


def test_options_survive_the_way_to_an_executor():
    options = parse(**ROOT, startingOffsets='{"orders":{"0":5}}', includeHeaders="true")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": "a,b"}, Topics(("a", "b"))),
        ({"assign": '{"a":[2,0,0],"b":[1]}'}, Assigned({"a": (0, 2), "b": (1,)})),
    ],
)
def test_subscriptions(given: dict[str, str], expected: object):
    assert parse(path="/lake", **given).subscription == expected


def test_a_pattern_matches_whole_names():
    subscription = parse(path="/lake", subscribePattern="ord.*").subscription
    assert isinstance(subscription, TopicPattern)
    assert subscription.pattern.fullmatch("orders")
    assert not subscription.pattern.fullmatch("my-orders")


def test_offsets_and_times():
    offsets = parse(**ROOT, startingOffsets='{"orders":{"0":23,"1":-1,"2":-2}}').starting
    assert isinstance(offsets, ByOffset)
    assert offsets.offsets == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -1} | {
        TopicPartition("orders", 2): -2
    }
    assert parse(**ROOT, startingTimestamp="1700").starting == ByTime("startingTimestamp", ms=1700)
    by_time = parse(
        **ROOT,
        startingOffsetsByTimestamp='{"orders":{"0":9}}',
        startingOffsetsByTimestampStrategy="latest",
        startingOffsets="earliest",
    ).starting
    assert by_time == ByTime("startingOffsetsByTimestamp", times={TopicPartition("orders", 0): 9}, else_latest=True)
    both = parse(**ROOT, startingTimestamp="5", startingOffsetsByTimestamp='{"orders":{"0":9}}').starting
    assert both == ByTime("startingTimestamp", ms=5), "the more general one wins, as in the Kafka source"


def test_ends_of_a_batch():
    assert parse(streaming=False, **ROOT, endingOffsets="latest").ending is Edge.LATEST
    # No record that young: the end of the log, whatever the strategy for the start.
    assert parse(streaming=False, **ROOT, endingTimestamp="7").ending == ByTime(
        "endingTimestamp", ms=7, else_latest=True
    )


@pytest.mark.parametrize(
    ("given", "option", "rule"),
    [
        ({"subscribe": "a"}, "path", "storage root"),
        ({"path": "/lake"}, "subscribe", "one of subscribe, subscribePattern, assign"),
        ({**ROOT, "assign": '{"a":[0]}'}, "assign", "'subscribe' and 'assign'"),
        ({**ROOT, "subscribe": " , "}, "subscribe", "at least one"),
        ({"path": "/lake", "subscribePattern": "("}, "subscribePattern", "no pattern"),
        ({"path": "/lake", "assign": "[]"}, "assign", "JSON object"),
        ({"path": "/lake", "assign": '{"a":"0"}'}, "assign", "list of partition numbers"),
        ({"path": "/lake", "assign": '{"a":[-1]}'}, "assign", "list of partition numbers"),
        ({**ROOT, "startingOffsets": "first"}, "startingOffsets", "earliest, latest or JSON"),
        ({**ROOT, "startingOffsets": '{"a":'}, "startingOffsets", "not valid JSON"),
        ({**ROOT, "startingOffsets": '{"a":{"0":1,"0":2}}'}, "startingOffsets", "'0' twice"),
        ({**ROOT, "startingOffsets": '{"a":{"0":1},"a":{"1":2}}'}, "startingOffsets", "'a' twice"),
        ({**ROOT, "startingOffsets": '{"a":{"0":1,"00":2}}'}, "startingOffsets", "a-0 twice"),
        ({"path": "/lake", "assign": '{"a":[0],"a":[1]}'}, "assign", "'a' twice"),
        ({**ROOT, "startingTimestamp": "5", "startingOffsets": "first"}, "startingOffsets", "earliest, latest or JSON"),
        ({**ROOT, "startingTimestamp": "5", "startingOffsetsByTimestamp": "9"}, "startingOffsetsByTimestamp", "JSON"),
        ({**ROOT, "startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets", "at least -2"),
        ({**ROOT, "startingOffsets": '{"a":{"x":1}}'}, "startingOffsets", "no partition number"),
        ({**ROOT, "startingOffsets": '{"a":{"0":true}}'}, "startingOffsets", "whole number"),
        ({**ROOT, "startingTimestamp": "yesterday"}, "startingTimestamp", "whole number"),
        (
            {**ROOT, "startingOffsetsByTimestampStrategy": "earliest"},
            "startingOffsetsByTimestampStrategy",
            "error or latest",
        ),
        ({**ROOT, "endingOffsets": "latest"}, "endingOffsets", "no end"),
        ({**ROOT, "failOnDataLoss": "maybe"}, "failOnDataLoss", "true or false"),
        ({**ROOT, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "at least 1"),
        ({**ROOT, "maxOffsetsPerTrigger": "1e3"}, "maxOffsetsPerTrigger", "whole number"),
        ({**ROOT, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger", "more than"),
        ({**ROOT, "maxTriggerDelay": "soon"}, "maxTriggerDelay", "duration"),
        ({**ROOT, "minPartitions": "-1"}, "minPartitions", "at least 1"),
        ({**ROOT, "columns": "value,price"}, "columns", "'price' is none of"),
        ({**ROOT, "columns": "headers"}, "columns", "includeHeaders"),
        ({**ROOT, "path": "memory://x"}, "path", "one process"),
        ({**ROOT, "path": "hdfs://x/y"}, "path", "s3, gs or az"),
        ({**ROOT, "path": " "}, "path", "not be empty"),
        ({"server": "localhost:8080", "subscribe": "a"}, "server", "http://host:8080"),
        ({**ROOT, "s3.allow.http": "maybe"}, "s3.allow.http", "true or false"),
        ({**ROOT, "group.id": "g"}, "group.id", "'server'"),
        ({**ROOT, "group.instance.id": "i"}, "group.instance.id", "group.id"),
        ({**ROOT, "partition.assignment.strategy": "range"}, "partition.assignment.strategy", "group.id"),
        ({**MEMBER, "partition.assignment.strategy": "best"}, "partition.assignment.strategy", "'best' is none of"),
        ({"server": "http://h", "assign": '{"a":[0]}', "group.id": "g"}, "assign", "group"),
        ({**MEMBER, "group.heartbeat.interval.ms": "60000"}, "group.heartbeat.interval.ms", "45000"),
        ({"kafka.bootstrap.servers": "k:9092", "subscribe": "a"}, "kafka.bootstrap.servers", "path or server"),
        ({**ROOT, "kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset", "startingOffsets"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given: dict[str, str], option: str, rule: str):
    with pytest.raises(InvalidConfig, match=rule) as caught:
        SourceOptions.parse(given, streaming=True, environ={})
    assert option in str(caught.value)
    assert caught.value.fields["name"] == option


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the end"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "cannot start at the end"),
        ({"endingOffsets": "earliest"}, "cannot end at the start"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "cannot end at the start"),
        (
            {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
            "before it begins at 5",
        ),
        ({"endingTimestamp": "7", "endingOffsets": "last"}, "earliest, latest or JSON"),
        ({"server": "http://h", "group.id": "g"}, "streaming"),
    ],
)
def test_what_a_batch_query_cannot_do(given: dict[str, str], rule: str):
    with pytest.raises(InvalidConfig, match=rule):
        SourceOptions.parse(ROOT | given, streaming=False, environ={})


@pytest.mark.parametrize("name", SOURCE_OPTIONS)
def test_a_misspelt_option_is_answered_with_the_right_name(name: str):
    misspelt = name[:-1] + "zz"
    with pytest.raises(InvalidConfig, match="unknown option") as caught:
        SourceOptions.parse({**ROOT, misspelt: "1"}, streaming=True, environ={})
    assert len(name) < 6 or "did you mean" in str(caught.value)


def test_an_unknown_option_without_a_likeness_is_refused_too():
    with pytest.raises(InvalidConfig, match=r"unknown option 'zebra'$"):
        parse(**ROOT, zebra="1")


def test_leftovers_of_the_kafka_source_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture):
    left = {"kafka.bootstrap.servers": "k:9092", "kafkaConsumer.pollTimeoutMs": "5", "groupIdPrefix": "x"}
    with caplog.at_level(logging.WARNING, "sluice.spark"):
        SourceOptions.parse(ROOT | left, streaming=True, environ={})
    for name in left:
        assert name.lower() in caplog.text


def test_triggers_of_a_batch_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "sluice.spark"):
        parse(streaming=False, **ROOT, maxOffsetsPerTrigger="5")
    assert "maxOffsetsPerTrigger" in caplog.text


@pytest.mark.parametrize(
    ("text", "ms"), [("500", 500), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2H", 7_200_000)]
)
def test_durations(text: str, ms: int):
    assert parse(**ROOT, maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_columns_keep_the_order_of_the_schema():
    assert columns_of({"columns": "offset, value"}) == ("value", "offset")
    assert columns_of({"includeHeaders": "true"}) == (*COLUMNS, "headers")
    assert columns_of({"columns": "headers,key", "includeHeaders": "TRUE", "path": ""}) == ("key", "headers")


def test_a_member_of_a_group():
    group = parse(**MEMBER, **{"group.instance.id": "one", "partition.assignment.strategy": "range,sticky"}).group
    assert group is not None
    assert (group.group_id, group.instance_id) == ("g", "one")
    assert group.strategies == (Strategy.RANGE, Strategy.STICKY)
    assert (group.rebalance_timeout_ms, group.session_timeout_ms) == (900_000, 45_000)
    default = parse(**MEMBER).group
    assert default is not None
    assert default.strategies == (Strategy.COOPERATIVE_STICKY,)


# --- the address -------------------------------------------------------------------------------


def test_roots_are_the_same_for_every_process():
    assert parse(path="lake", subscribe="a").address.path == os.path.abspath("lake")
    assert parse(path="file:/lake", subscribe="a").address.path == "file:///lake"
    assert parse(path="s3://bucket/lake/", subscribe="a").address.path == "s3://bucket/lake"


def test_storage_options_come_from_options_and_then_from_the_environment():
    environ = {"SLUICE_S3_REGION": "there", "SLUICE_S3_ENDPOINT": "http://env", "SLUICE_TOKEN": "t"}
    given = {"path": "s3://b/l", "subscribe": "a", "s3.endpoint": "http://given", "s3.allow.http": "true"}
    address = SourceOptions.parse(
        given | {"storage.aws_imdsv1_fallback": "true"}, streaming=True, environ=environ
    ).address
    found = address.storage_options("s3://b/l")
    assert found["endpoint"] == "http://given"
    assert found["region"] == "there"
    assert found["allow_http"] == "true"
    assert found["aws_imdsv1_fallback"] == "true"
    assert address.token == "t"
    assert address.storage_options("/a/folder").keys() == {"aws_imdsv1_fallback"}


def test_secrets_are_not_printed():
    options = parse(path="s3://b/l", subscribe="a", token="hush-hush", **{"s3.secret.access.key": "very-secret"})
    assert "hush" not in repr(options)
    assert "very-secret" not in repr(options)


# --- the data source -----------------------------------------------------------------------------


def test_a_reader_is_made_anywhere_and_touches_nothing(tmp_path: Path):
    """Spark makes it in processes that never plan, and sends it to executors."""
    source = SluiceDataSource({"path": str(tmp_path / "nowhere"), "subscribe": "t"})
    for reader in (source.reader(source.schema()), source.streamReader(source.schema())):
        assert type(cloudpickle.loads(cloudpickle.dumps(reader))) is type(reader)
    planning = source.streamReader(source.schema())
    with pytest.raises(InvalidConfig, match="there is no folder"):
        planning.initialOffset()
    cloudpickle.dumps(planning)
    assert not (tmp_path / "nowhere").exists()


def test_the_read_limit_is_what_the_options_say():
    def limit(**given: str) -> object:
        source = SluiceDataSource(ROOT | given)
        return source.streamReader(source.schema()).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(minOffsetsPerTrigger="3") == ReadMinRows(3)
    assert limit(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="7") == ReadMaxRows(7)


def test_pyspark_finds_the_source_by_the_name_of_its_module():
    import pyspark_sluice

    assert pyspark_sluice.DefaultSource is SluiceDataSource
    assert SluiceDataSource.name() == "sluice"
