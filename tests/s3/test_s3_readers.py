"""delta-rs and our reader return the same rows of a table in a bucket (I-11)."""

from __future__ import annotations

import os

from sluice.log_store.engine import LogStore
from sluice.log_store.file_rows import RANGED_BYTES
from sluice.log_store.merger import merge_once
from sluice.log_store.pending import Acks
from sluice.log_store.records import make_batch
from tests.s3.bucket import Bucket
from tests.support.faulty_proxy import FaultyProxy
from tests.support.harness import TOPIC
from tests.support.stock_readers import START_MS, checkpoint_and_clean, delta_rs_rows, numbered, our_rows, produce

ODD = [
    {"key": None, "value": None},
    {"key": b"", "value": b""},
    {"key": b"\xff\x00", "value": b"\x00" * 10, "timestamp": 0},
    {"key": b"h", "value": b"v", "headers": [("a", b"1"), ("a", None), ("", b"")]},
]


def _agree(bucket: Bucket, log: LogStore) -> int:
    """delta-rs goes to the server itself: its queries hold the interpreter's lock, a proxy in here could not answer."""
    rows = our_rows(log, TOPIC)
    assert delta_rs_rows(f"{bucket.url}/{bucket.table()}", bucket.options) == rows
    return len(rows)


def test_appends_merges_checkpoints_clean_up_and_a_moved_log_start(bucket: Bucket) -> None:
    """I-11, R-5, R-6: after each step, and for a process that opens the table anew."""
    settings = {"checkpoint_interval_versions": 10_000, "commit_interval_ms": 0, "merge_enable": False}
    with bucket.lead(**settings) as log:
        log.create_topic(TOPIC)
        produce(log, TOPIC, ODD)
        for number in range(12):
            produce(log, TOPIC, numbered(10 * number, 10))
        assert _agree(bucket, log) == 124
        assert checkpoint_and_clean(log, TOPIC) == 0  # one checkpoint is not enough to delete anything
        produce(log, TOPIC, numbered(120, 10))
        partition = log.partition(TOPIC, 0)
        merged = merge_once(partition, partition.config, quiet=True)
        assert merged is not None
        assert len(partition.state.files) == 1
        assert _agree(bucket, log) == 134
        assert checkpoint_and_clean(log, TOPIC) > 0
        assert bucket.versions()[0] > 0
        assert _agree(bucket, log) == 134
        log.append(TOPIC, 0, make_batch([{"value": b"in the WAL first"}], default_ms=1), acks=Acks.LEADER).result(60)
        assert log.delete_records(TOPIC, 0, 134) == 134
        assert _agree(bucket, log) == 1
    with bucket.lead(**settings) as log:
        assert _agree(bucket, log) == 1


def test_of_a_large_file_only_what_is_read_is_fetched(bucket: Bucket, proxy: FaultyProxy) -> None:
    """I-9, I-11: a file beyond 16 MiB is read by ranges, a few row groups at a time."""
    rows = [{"value": os.urandom(1 << 20), "timestamp": START_MS + n} for n in range(40)]
    with bucket.through(proxy.endpoint).lead(tail_cache_bytes=0, merge_enable=False) as log:
        log.create_topic(TOPIC)
        produce(log, TOPIC, rows)
        (file,) = log.partition(TOPIC, 0).state.files
        assert file.size > 2 * RANGED_BYTES
        assert _agree(bucket, log) == len(rows)
        before = len(proxy.requests)
        (batch,) = log.reads(TOPIC, 0).fetch(35, max_records=1).rows.batches
        assert batch.column("value").to_pylist() == [rows[35]["value"]]
        gets = [request for request in proxy.requests[before:] if request.path.endswith(".parquet")]
        assert {request.method for request in gets} == {"GET"}
        assert 1 < len(gets) < 12
        assert sum(request.answered for request in gets) < file.size // 2
