"""A sink whose tasks write to a bucket: parts, commit, crash and repeat."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.api.sinks_append import SinkBatch
from sluice.ingest.hooks import HookLoader
from sluice.ingest.limits import IngestLimits
from sluice.log_store import staging, steps
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import StorageError
from sluice.log_store.staging import Part
from sluice.streaming.spark.sink_options import SinkOptions
from sluice.streaming.spark.staging import open_upload, stage
from tests.s3.bucket import Bucket
from tests.support.harness import TOPIC


def options_of(bucket: Bucket) -> SinkOptions:
    given = bucket.options
    options = {
        "server": "http://127.0.0.1:1",
        "path": bucket.url,
        "topic": TOPIC,
        "s3.endpoint": given["endpoint"],
        "s3.region": given["region"],
        "s3.access.key.id": given["access_key_id"],
        "s3.secret.access.key": given["secret_access_key"],
        "s3.allow.http": "true",
    }
    return SinkOptions.parse(options, streaming=True, environ={})


def attempt(bucket: Bucket, texts: list[str]) -> list[Part]:
    """What a task does."""
    upload = open_upload(options_of(bucket), "q", 0)
    rows = [(TOPIC, pa.RecordBatch.from_pydict({"value": [text]})) for text in texts]
    parts = [part for row in rows for part in stage(iter([row]), upload, task=0, attempt=0, part_bytes=1 << 20)]
    upload.close()
    return parts


def commit(log: LogStore, parts: list[Part]) -> int:
    return SinkBatch(log, HookLoader(()), IngestLimits(), "q", 0).commit(parts).count


def test_a_batch_in_a_bucket_is_appended_once(bucket: Bucket) -> None:
    """R-5: half of it by a leader that dies, the rest by the next, with the rows where the first put them."""

    def cut(step: str) -> None:
        if step == "sink-piece":
            raise StorageError("cut")

    with bucket.lead() as log:
        log.create_topic(TOPIC, partitions=2)
        steps.set_hook(cut)
        try:
            with pytest.raises(StorageError):
                commit(log, attempt(bucket, ["a", "b", "c"]))
        finally:
            steps.set_hook(None)
    with bucket.lead("second") as log:
        assert commit(log, attempt(bucket, ["c", "b", "a"])) == 2
        assert commit(log, attempt(bucket, ["b", "a", "c"])) == 0
    found = sorted(value for number in range(2) for _, value in bucket.delta_rows(number))
    assert found == [b"a", b"b", b"c"]
    assert bucket.store.list_folders(staging.STAGING) == []
    assert staging.last_done(bucket.store, "q") == 0
