"""Roots that the source is tried on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.log_store.engine import LogStore
from tests.support.harness import settings_of
from tests.support.logs import folder_cluster
from tests.support.s3_server import S3Server
from tests.support.spark_buckets import bucket_options, bucket_settings
from tests.support.spark_source import Place


@pytest.fixture
def log(tmp_root: Path) -> Iterator[LogStore]:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=2)
        yield log


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """What a query may say of its source is the same on both."""
    if request.param == "folder":
        yield Place(str(request.getfixturevalue("tmp_root")), request.getfixturevalue("log"), {})
        return
    bucket: S3Server = request.getfixturevalue("s3")
    url = f"{bucket.bucket('lake')}/{uuid.uuid4().hex}"
    with LogStore.open(settings_of(url, **bucket_settings(bucket, tmp_path), merge_enable=False)) as log:
        log.create_topic("t", partitions=2)
        yield Place(url, log, bucket_options(bucket))
