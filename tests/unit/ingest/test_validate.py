"""What a batch must be before it may take an offset (R-12)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.ingest.validate import MOST_LISTED, validate
from sluice.log_store.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, SluiceError
from sluice.log_store.records import HEADERS, RECORD_SCHEMA, make_batch
from sluice.log_store.topic import TopicConfig
from tests.support.logs import NOW_MS, batch, timed

HOUR = 3_600_000


def config(**changes: object) -> TopicConfig:
    return TopicConfig.parse({name.replace("_", "."): value for name, value in changes.items()})


def bad_indexes(error: SluiceError) -> list[int]:
    return [entry["batch_index"] for entry in error.fields["record_errors"]]


def test_a_good_batch_passes() -> None:
    validate(batch("a", None, ""), config(), NOW_MS)


def test_max_message_bytes_limits_one_record() -> None:
    """R-12: key + value + headers, uncompressed; the batch as a whole is not limited by it."""
    limit = config(max_message_bytes=10)
    fits = {"key": b"12", "value": b"3456", "headers": [("78", b"90")]}
    validate(make_batch([fits] * 100, default_ms=NOW_MS), limit, NOW_MS)
    for name, value in (("key", b"123"), ("value", b"34567"), ("headers", [("78", b"901")])):
        wrong = make_batch([fits, {**fits, name: value}, fits, {**fits, name: value}], default_ms=NOW_MS)
        with pytest.raises(MessageTooLarge, match="index 1") as caught:
            validate(wrong, limit, NOW_MS)
        assert bad_indexes(caught.value) == [1, 3]


def test_the_default_limit_is_kafkas() -> None:
    """R-12: 1 MiB + 12."""
    validate(batch("v" * (2**20 + 12)), config(), NOW_MS)
    with pytest.raises(MessageTooLarge):
        validate(batch("v" * (2**20 + 13)), config(), NOW_MS)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_needs_keys(policy: str) -> None:
    """Kafka's rule: each bad index is listed, the batch refused whole; an empty key is a key."""
    rows = [{"key": b"k"}, {"key": None}, {"key": b""}, {"key": None}]
    records = make_batch(rows, default_ms=NOW_MS)
    with pytest.raises(InvalidRecord) as caught:
        validate(records, config(cleanup_policy=policy), NOW_MS)
    assert bad_indexes(caught.value) == [1, 3]
    validate(records, config(), NOW_MS)


def test_timestamps_must_lie_around_now() -> None:
    """Kafka's rule: before.max.ms and after.max.ms, with the index; bounds included."""
    around = config(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    validate(timed(NOW_MS - 100, NOW_MS, NOW_MS + 50), around, NOW_MS)
    for wrong in (NOW_MS - 101, NOW_MS + 51):
        with pytest.raises(InvalidTimestamp) as caught:
            validate(timed(NOW_MS, wrong), around, NOW_MS)
        assert bad_indexes(caught.value) == [1]


def test_the_defaults_allow_the_past_and_one_hour_of_future() -> None:
    """Kafka's rule."""
    validate(timed(0, NOW_MS + HOUR), config(), NOW_MS)
    for wrong in (-1, NOW_MS + HOUR + 1):
        with pytest.raises(InvalidTimestamp):
            validate(timed(wrong), config(), NOW_MS)


def test_a_time_that_no_commit_could_describe_is_refused() -> None:
    """I-12: statistics are dates, and dates end with the year 9999."""
    anything = config(message_timestamp_after_max_ms=2**63 - 1)
    validate(timed(253_402_300_799_999), anything, NOW_MS)
    with pytest.raises(InvalidTimestamp):
        validate(timed(253_402_300_800_000), anything, NOW_MS)


def test_log_append_time_asks_nobody() -> None:
    """Kafka's rule: it is overwritten anyway."""
    validate(timed(-5, NOW_MS + 9 * HOUR), config(message_timestamp_type="LogAppendTime"), NOW_MS)


def test_header_keys_are_not_null() -> None:
    """Kafka's rule: values may be; order and repeats are the producer's."""
    good = [{"key": "a", "value": None}, {"key": "a", "value": b"1"}, {"key": "", "value": b""}]
    for wrong in ([{"key": None, "value": b"1"}], [*good, None]):
        headers = pa.array([None, good, [], wrong], type=HEADERS)
        columns = make_batch([{}] * 4, default_ms=NOW_MS).columns
        records = pa.record_batch([*columns[:3], headers], schema=RECORD_SCHEMA)
        with pytest.raises(InvalidRecord, match="header") as caught:
            validate(records, config(), NOW_MS)
        assert bad_indexes(caught.value) == [3]
        validate(records.slice(0, 3), config(), NOW_MS)


def test_long_lists_are_cut() -> None:
    with pytest.raises(InvalidRecord) as caught:
        validate(batch(*["v"] * 500), config(cleanup_policy="compact"), NOW_MS)
    assert bad_indexes(caught.value) == list(range(MOST_LISTED))
