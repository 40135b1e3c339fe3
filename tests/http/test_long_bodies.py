"""Bodies of many megabytes: all of their records are stored, and one that no topic could take costs nobody time."""

from __future__ import annotations

import base64
import sys
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from sluice.api.appending import LONGEST_SPELLING, SPELLING_SLACK, limits_of
from sluice.ingest.hooks import HookLoader
from sluice.ingest.long_bodies import LONG
from tests.http.checks import V3, error_of
from tests.http.conftest import App
from tests.support.logs import values

COUNT = 3_000
TEXT = "x" * 1_000
JSON, BINARY = "application/json", "application/vnd.kafka.binary.v2+json"


def made(app: App, name: str, **configs: str) -> None:
    app.log.create_topic(name, partitions=1, configs={key.replace("_", "."): value for key, value in configs.items()})


def send(
    app: App, path: str, body: bytes, media: str = JSON, coding: str | None = None, **headers: str
) -> httpx.Response:
    packed = body if coding is None else pa.compress(body, codec=coding, asbytes=True)
    named = {"Content-Type": media} | ({} if coding is None else {"Content-Encoding": coding}) | headers
    return app.call("POST", path, content=packed, headers=named)


@pytest.mark.parametrize("coding", [None, "zstd"])
def test_every_record_is_stored_in_its_place(app: App, coding: str | None) -> None:
    made(app, "t")
    texts = [f'"{number}{TEXT}"'.encode() for number in range(COUNT)]
    plain = b'{"records": [' + b", ".join(b'{"value": %b}' % text for text in texts) + b"]}"
    packed = b'{"records":[' + b",".join(b'{"value":"%b"}' % base64.b64encode(text) for text in texts) + b"]}"
    entries = [b'{"id":"%d","value":{"type":"JSON","data":%b}}' % pair for pair in enumerate(texts)]
    batch = b'{"entries":[' + b",".join(entries) + b"]}"
    assert min(map(len, (plain, packed, batch))) > LONG
    for path, body, media in (
        ("/topics/t?response=summary", plain, JSON),
        ("/topics/t?response=summary", packed, BINARY),
        (f"{V3}/topics/t/records:batch", batch, JSON),
    ):
        assert send(app, path, body, media, coding).status_code in (200, 207)
    assert values(app.log, "t") == texts * 3


def test_a_repeat_of_a_long_request_adds_nothing(app: App) -> None:
    made(app, "t")
    producer: dict[str, Any] = app.call("POST", f"{V3}/producers", json={"mode": "topic"}).json()
    stamp = {
        "Sluice-Producer-Id": str(producer["producer_id"]),
        "Sluice-Producer-Epoch": str(producer["producer_epoch"]),
    }
    body = b'{"records":[' + b",".join([b'{"value":"%b"}' % TEXT.encode()] * COUNT) + b"]}"
    first = send(app, "/topics/t?response=summary", body, **stamp, **{"Sluice-Sequence": "0"})
    again = send(app, "/topics/t?response=summary", body, **stamp, **{"Sluice-Sequence": "0"})
    assert (first.status_code, again.status_code, again.json()["duplicate"]) == (200, 200, True)
    assert len(values(app.log, "t")) == COUNT


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_a_record_that_the_topic_cannot_take_is_refused_by_its_length(app: App, coding: str | None) -> None:
    """Whatever its text says: behind the limit this is not even JSON."""
    made(app, "t", max_message_bytes="100000")
    limit = LONGEST_SPELLING * 100_000 + SPELLING_SLACK
    body = b'{"records":[{"value":1},{"value":"' + b"x" * (limit + LONG) + b" nonsense"
    packed = body if coding is None else pa.compress(body, codec=coding, asbytes=True)
    headers = {"Content-Type": JSON} | ({} if coding is None else {"Content-Encoding": coding})
    refused = error_of(app.call("POST", "/topics/t", content=packed, headers=headers), 413)
    assert refused["error"] == "MESSAGE_TOO_LARGE"
    assert f"records[1]: must not be larger than {limit} bytes of JSON" in refused["message"]
    assert values(app.log, "t") == []


def test_a_topic_of_long_records_takes_them(app: App) -> None:
    made(app, "t", max_message_bytes=str(16 << 20))
    value = b'"' + b"x" * (9 << 20) + b'"'
    assert send(app, "/topics/t", b'{"records":[{"value":%b}]}' % value).status_code == 200
    assert values(app.log, "t") == [value]


def test_an_unknown_topic_is_judged_by_the_defaults(app: App) -> None:
    made(app, "known")
    assert limits_of(app.service, "never-heard-of") == limits_of(app.service, "known")
    assert limits_of(app.service, "known").max_text_bytes < app.service.limits.max_text_bytes


class Shorter:
    def serialize(self, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(2, "value", pa.array([b"short"] * batch.num_rows, pa.binary()))


def test_a_serializer_may_make_a_long_record_short(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("hooks_of_a_deployer")
    module.Shorter = Shorter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    app.service.hooks = HookLoader([f"{module.__name__}.Shorter"])
    made(app, "t", serializer_class=f"{module.__name__}.Shorter")
    body = b'{"records":[{"value":"' + b"x" * (9 << 20) + b'"}]}'
    assert send(app, "/topics/t", body).status_code == 200
    assert values(app.log, "t") == [b"short"]


class First:
    def assign(self, topic: str, batch: pa.RecordBatch, explicit: Any, n: int, start: int) -> Any:
        return np.zeros(batch.num_rows, np.int32)


def test_a_partitioner_makes_no_record_shorter(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("hooks_of_a_deployer")
    module.First = First  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    app.service.hooks = HookLoader([f"{module.__name__}.First"])
    made(app, "plain")
    made(app, "placed", partitioner_class=f"{module.__name__}.First")
    assert limits_of(app.service, "placed") == limits_of(app.service, "plain")
