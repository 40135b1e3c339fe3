"""One bucket for all, a prefix for each test; every process that a test starts is ended with it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.s3.bucket import Bucket
from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.harness import Process
from tests.support.s3_server import S3Server

Start = Callable[..., Process]


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path) -> Bucket:
    return Bucket(s3, f"{s3.bucket('lake')}/{uuid.uuid4().hex}", tmp_path, s3.endpoint)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


@pytest.fixture
def start(bucket: Bucket, history: Path) -> Iterator[Start]:
    """`start(machine, settings={…}, **spec)`: a worker on the bucket that writes to `history`."""
    started: list[Process] = []

    def begin(
        machine: str = "first", *, to: Path = history, settings: dict[str, Any] | None = None, **spec: Any
    ) -> Process:
        spec["settings"] = bucket.changes(machine, **settings or {})
        started.append(Process(bucket.url, to, **spec))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for process in started:
        process.kill()


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3.port) as proxy:
        yield proxy
