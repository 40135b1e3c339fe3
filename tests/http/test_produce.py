"""Produce over HTTP: formats, addressing, acknowledgements, idempotence, refusals."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.http.checks import V3, error_of, fetch, new_producer, offsets, produce, values
from tests.support.bodies import ipc

ARROW = "application/vnd.apache.arrow.stream"


@pytest.mark.parametrize("media", ["application/json", "application/vnd.kafka.json.v2+json; charset=utf-8"])
def test_json_records_come_back_as_they_were_sent(http: httpx.Client, topic: str, media: str) -> None:
    record = b'{"key": {"a": 1}, "value": {"b":  1.10}, "headers": [{"name": "h", "value": "YQ=="}], "timestamp": 7}'
    body = b'{"records": [' + record + b', {"value": null}]}'
    sent = http.post(f"/topics/{topic}/partitions/1", content=body, headers={"Content-Type": media})
    assert offsets(sent) == [(1, 0), (1, 1)]
    response = http.get(f"{V3}/topics/{topic}/partitions/1/records", params={"offset": 0})
    assert b'"key":{"a":1},"value":{"b":  1.10}' in response.content
    first, second = response.json()["data"]
    assert (first["timestamp"], first["headers"]) == (7, [{"name": "h", "value": "YQ=="}])
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])


def test_binary_records_are_stored_decoded(http: httpx.Client, topic: str) -> None:
    sent = http.post(
        f"/topics/{topic}/partitions/0",
        content=b'{"records":[{"key":"/w==","value":"AP8="}]}',
        headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
    )
    assert offsets(sent) == [(0, 0)]
    (record,) = fetch(http, topic, format="binary")["data"]
    assert (record["key"], record["value"]) == ("/w==", "AP8=")
    refused = http.get(f"{V3}/topics/{topic}/partitions/0/records", params={"offset": 0})
    assert "offset 0 is no json" in error_of(refused, 422)["message"]


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_arrow_goes_in_and_comes_out(http: httpx.Client, topic: str, codec: str | None) -> None:
    table = pa.table({"value": [b"a", b"b", None], "key": ["x", "y", "x"], "partition": [2, 2, 2]})
    content, headers = ipc(table), {"Content-Type": ARROW}
    if codec is not None:
        content, headers["Content-Encoding"] = pa.compress(content, codec, asbytes=True), codec
    if codec == "gzip":
        content = gzip.compress(ipc(table))
    sent = http.post(f"/topics/{topic}", content=content, headers=headers)
    assert sent.json() == {"partitions": [{"partition": 2, "base_offset": 0, "count": 3}]}
    got = http.get(f"{V3}/topics/{topic}/partitions/2/records", params={"offset": 1}, headers={"Accept": ARROW})
    assert got.headers["Sluice-Next-Offset"] == "3"
    rows = pa.ipc.open_stream(got.content).read_all()
    assert rows.column("offset").to_pylist() == [1, 2]
    assert rows.column("value").to_pylist() == [b"b", None]


@pytest.mark.parametrize("header", ["User-Agent", "X-Other"], ids=["the short way", "the ordinary way"])
@pytest.mark.parametrize("count", [12, 50, 500])
def test_records_without_a_wish_go_by_key_and_are_answered_in_order(
    http: httpx.Client, topic: str, count: int, header: str
) -> None:
    records: list[dict[str, Any]] = [{"key": f"k{n % 5}", "value": n} for n in range(count)]
    placed = offsets(http.post(f"/topics/{topic}", json={"records": records}, headers={header: "1"}))
    by_key = {record["key"]: partition for record, (partition, _) in zip(records, placed, strict=True)}
    assert [by_key[record["key"]] for record in records] == [partition for partition, _ in placed]
    for number in range(3):
        mine = [(offset, record["value"]) for record, (p, offset) in zip(records, placed, strict=True) if p == number]
        stored = fetch(http, topic, partition=number)["data"]
        assert [(record["offset"], record["value"]) for record in stored] == mine


def test_a_summary_says_it_per_partition(http: httpx.Client, topic: str) -> None:
    records = [{"value": n, "partition": n % 2} for n in range(6)]
    for base in (0, 3):
        sent = http.post(f"/topics/{topic}", json={"records": records}, params={"response": "summary"})
        parts = [{"partition": number, "base_offset": base, "count": 3} for number in (0, 1)]
        assert sent.json() == {"partitions": parts}


@pytest.mark.parametrize("acks", ["1", "all", "-1"])
def test_acks(http: httpx.Client, topic: str, acks: str) -> None:
    assert offsets(produce(http, topic, "a", params={"acks": acks})) == [(0, 0)]


def test_acks_0_promises_nothing(http: httpx.Client, topic: str) -> None:
    sent = produce(http, topic, "a", "b", params={"acks": "0"})
    assert sent.status_code == 202
    assert [one["offset"] for one in sent.json()["offsets"]] == [-1, -1]
    produce(http, topic, "c")
    assert values(http, topic) == ["a", "b", "c"]


def test_a_missing_topic_is_created(http: httpx.Client) -> None:
    assert offsets(http.post("/topics/made-by-produce", json={"records": [{"value": 1}]})) == [(0, 0)]
    assert "made-by-produce" in http.get("/topics").json()


# --- idempotence -------------------------------------------------------------------------------


def test_a_repeat_to_a_partition_answers_the_first_offsets(http: httpx.Client, topic: str) -> None:
    producer = new_producer(http, "partition")
    first = produce(http, topic, "a", "b", headers=producer | {"Sluice-Sequence": "0"})
    again = produce(http, topic, "a", "b", headers=producer | {"Sluice-Sequence": "0"})
    assert offsets(first) == offsets(again) == [(0, 0), (0, 1)]
    assert again.json()["duplicate"] is True
    assert offsets(produce(http, topic, "c", headers=producer | {"Sluice-Sequence": "2"})) == [(0, 2)]
    gap = error_of(produce(http, topic, "d", headers=producer | {"Sluice-Sequence": "9"}), 409)
    assert gap["error"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert values(http, topic) == ["a", "b", "c"]


def test_a_repeat_to_a_topic_answers_the_first_offsets(http: httpx.Client, topic: str) -> None:
    producer = new_producer(http, "topic")
    body = {"records": [{"value": n} for n in range(10)]}
    first, again = (
        http.post(f"/topics/{topic}", json=body, headers=producer | {"Sluice-Sequence": "0"}) for _ in range(2)
    )
    assert offsets(first) == offsets(again)
    assert sum(len(values(http, topic, number)) for number in range(3)) == 10
    other = http.post(
        f"/topics/{topic}", json={"records": [{"value": "else"}]}, headers=producer | {"Sluice-Sequence": "0"}
    )
    assert 400 <= other.status_code < 500


def test_a_named_producer_fences_its_predecessor(http: httpx.Client, topic: str) -> None:
    old = new_producer(http, "partition", name=f"web-{topic}")
    new = new_producer(http, "partition", name=f"web-{topic}")
    assert old["Sluice-Producer-Id"] == new["Sluice-Producer-Id"]
    assert offsets(produce(http, topic, "a", headers=new | {"Sluice-Sequence": "0"})) == [(0, 0)]
    error_of(produce(http, topic, "b", headers=old | {"Sluice-Sequence": "0"}), 409)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sluice-Sequence": "0"},
        {"Sluice-Producer-Id": "x", "Sluice-Producer-Epoch": "0", "Sluice-Sequence": "0"},
        {"Sluice-Producer-Id": "1", "Sluice-Producer-Epoch": "0", "Sluice-Sequence": "-1"},
        {"Sluice-Producer-Id": "1", "Sluice-Producer-Epoch": "0", "Sluice-Sequence": "0"},  # of topic mode
    ],
)
def test_stamps_that_are_wrong(http: httpx.Client, topic: str, headers: dict[str, str]) -> None:
    error_of(produce(http, topic, "a", headers=headers), 400)


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, ""),
        (b"{", 400, ""),
        (b"[]", 400, ""),
        (b'{"records":[]}', 400, "records"),
        (b'{"records":[{"value":1,"more":2}]}', 400, "more"),
        (b'{"records":[{"value":1,"partition":7}]}', 404, "records[0].partition"),
        (b'{"records":[{"value":1,"timestamp":"now"}]}', 400, "timestamp"),
        (b'{"records":[{"value":1,"timestamp":99999999999999}]}', 422, "timestamp"),
        (b'{"records":[{"value":"\xff"}]}', 400, ""),
        (b'{"records":[{"value":' + b"[" * 100 + b"]" * 100 + b"}]}", 400, "value"),
    ],
)
def test_bad_bodies(http: httpx.Client, topic: str, body: bytes, status: int, says: str) -> None:
    sent = http.post(f"/topics/{topic}", content=body, headers={"Content-Type": "application/json"})
    assert says in error_of(sent, status)["message"]
    assert [values(http, topic, number) for number in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/topics/{}/partitions/9", {}, 404),
        ("/topics/{}/partitions/x", {}, 404),
        ("/topics/{}", {"params": {"acks": "2"}}, 400),
        ("/topics/{}", {"params": {"timeout_ms": "0"}}, 400),
        ("/topics/{}", {"params": {"response": "none"}}, 400),
        ("/topics/{}", {"headers": {"Content-Type": "text/plain"}}, 415),
        ("/topics/{}", {"headers": {"Content-Encoding": "br"}}, 400),
        ("/topics/{}", {"headers": {"Content-Encoding": "gzip"}}, 400),
        ("/topics/a%20b", {}, 400),
        ("/topics/..%2f..%2fetc", {}, 404),
        ("/topics/__consumer_offsets", {}, 400),
    ],
)
def test_bad_requests(http: httpx.Client, topic: str, path: str, options: dict[str, Any], status: int) -> None:
    error_of(http.post(path.format(topic), content=b'{"records":[{"value":1}]}', **options), status)


def test_a_body_above_the_limit_is_refused_before_it_is_sent(http: httpx.Client, topic: str) -> None:
    host, port = str(http.base_url.host), http.base_url.port
    with socket.create_connection((host, port), timeout=60) as raw:
        raw.sendall(f"POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_body_without_a_length_is_cut_off_at_the_limit(http: httpx.Client, topic: str) -> None:
    # On a connection of its own: the service may close it while the rest of the body is still on its way.
    with httpx.Client(base_url=http.base_url) as alone:
        error_of(alone.post(f"/topics/{topic}", content=(b" " * 65536 for _ in range(64))), 413)


def test_a_bomb_is_stopped_at_the_limit(http: httpx.Client, topic: str) -> None:
    bomb = gzip.compress(b" " * (32 << 20))
    sent = http.post(f"/topics/{topic}", content=bomb, headers={"Content-Encoding": "gzip"})
    assert error_of(sent, 413)["error"] == "RECORD_LIST_TOO_LARGE"


def test_a_record_above_its_topic_s_limit(http: httpx.Client, topic: str) -> None:
    http.put(f"{V3}/topics/{topic}/configs/max.message.bytes", json={"value": 100})
    body = error_of(produce(http, topic, "a", "b" * 200), 413)
    assert body["error"] == "MESSAGE_TOO_LARGE"
    assert body["details"]["record_errors"][0]["batch_index"] == 1


# --- v3 ----------------------------------------------------------------------------------------


def test_v3_one_record(http: httpx.Client, topic: str) -> None:
    record = {
        "partition_id": 1,
        "key": {"type": "STRING", "data": "k"},
        "value": {"type": "JSON", "data": {"a": 1}},
        "timestamp": "2026-01-02T03:04:05Z",
    }
    report = http.post(f"{V3}/topics/{topic}/records", json=record).json()
    assert (report["error_code"], report["partition_id"], report["offset"]) == (200, 1, 0)
    assert report["timestamp"] == "2026-01-02T03:04:05Z"
    assert (report["key"], report["value"]) == ({"type": "STRING", "size": 1}, {"type": "JSON", "size": 7})
    error_of(http.post(f"{V3}/topics/{topic}/records", json={"partition_id": 9}), 404)


@pytest.mark.parametrize("chunked", [False, True])
def test_v3_stream_reports_each_record(http: httpx.Client, topic: str, chunked: bool) -> None:
    good = b'{"partition_id":0,"value":{"type":"STRING","data":"%d"}}'
    body = good % 1 + b" " + b'{"value":{"type":"AVRO","data":1}}' + b'{"partition_id":9}' + good % 2
    content: Any = (body[at : at + 20] for at in range(0, len(body), 20)) if chunked else body
    response = http.post(f"{V3}/topics/{topic}/records", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == (200 if chunked else 207)
    reports = [json.loads(line) for line in response.text.splitlines()]
    assert [report["error_code"] for report in reports] == [200, 400, 40403, 200]
    stored = fetch(http, topic, format="string")["data"]
    assert [record["value"] for record in stored] == ["1", "2"]


def test_v3_batch(http: httpx.Client, topic: str) -> None:
    entry = {"partition_id": 0, "value": {"type": "JSON", "data": 1}}
    entries = [{"id": "a", **entry}, {"id": "b", "partition_id": -1}, {"id": "c", **entry}]
    response = http.post(f"{V3}/topics/{topic}/records:batch", json={"entries": entries})
    assert response.status_code == 207
    body = response.json()
    assert [(one["id"], one["offset"]) for one in body["successes"]] == [("a", 0), ("c", 1)]
    assert [one["id"] for one in body["failures"]] == ["b"]
    error_of(http.post(f"{V3}/topics/{topic}/records:batch", json={"entries": [{"id": "a"}, {"id": "a"}]}), 400)


V3_ONE = b'{"partition_id":0,"value":{"type":"STRING","data":"1"}}'
V3_WRONG = b'{"value":{"type":"AVRO","data":1}}'


def v3_records(http: httpx.Client, topic: str, content: Any, **options: Any) -> httpx.Response:
    headers = {"Content-Type": "application/json", **options.pop("headers", {})}
    return http.post(f"{V3}/topics/{topic}/records", content=content, headers=headers, **options)


def v3_batch(http: httpx.Client, topic: str, *entries: dict[str, Any], **options: Any) -> httpx.Response:
    body = {"entries": [{"id": str(place), **entry} for place, entry in enumerate(entries)]}
    return http.post(f"{V3}/topics/{topic}/records:batch", json=body, **options)


def test_v3_says_by_its_status_that_records_failed(http: httpx.Client, topic: str) -> None:
    assert v3_records(http, topic, V3_ONE * 2).status_code == 200
    assert v3_records(http, topic, V3_ONE + V3_WRONG).status_code == 207
    body = error_of(v3_records(http, topic, b'{"partition_id":9}' + V3_WRONG), 404)
    assert [report["error_code"] for report in body["reports"]] == [40403, 400]
    assert len(fetch(http, topic, format="string")["data"]) == 3


def test_v3_acks_0_promises_nothing(http: httpx.Client, topic: str) -> None:
    one = v3_records(http, topic, V3_ONE, params={"acks": "0"})
    assert (one.status_code, one.json()["partition_id"], one.json()["offset"]) == (202, 0, -1)
    assert v3_records(http, topic, V3_ONE + V3_WRONG, params={"acks": "0"}).status_code == 207
    entry = json.loads(V3_ONE)
    batch = v3_batch(http, topic, entry, entry, params={"acks": "0"})
    assert batch.status_code == 202
    assert [report["offset"] for report in batch.json()["successes"]] == [-1, -1]
    assert v3_batch(http, topic, entry, {"partition_id": -1}, params={"acks": "0"}).status_code == 207
    produce(http, topic, "last")
    assert len(fetch(http, topic, format="string")["data"]) == 6


def test_v3_repeats_answer_the_first_offsets(http: httpx.Client, topic: str) -> None:
    producer = new_producer(http, "topic")
    first, again = (v3_records(http, topic, V3_ONE, headers=producer | {"Sluice-Sequence": "0"}) for _ in range(2))
    assert (first.json()["offset"], "duplicate" in first.json()) == (0, False)
    assert (again.json()["offset"], again.json()["duplicate"]) == (0, True)
    entry = json.loads(V3_ONE)
    for duplicate in (False, True):
        batch = v3_batch(http, topic, entry, entry, headers=producer | {"Sluice-Sequence": "1"}).json()
        assert [report["offset"] for report in batch["successes"]] == [1, 2]
        assert [report.get("duplicate", False) for report in batch["successes"]] == [duplicate, duplicate]
    assert len(fetch(http, topic, format="string")["data"]) == 3
    assert 400 <= v3_records(http, topic, V3_ONE * 3, headers=producer | {"Sluice-Sequence": "1"}).status_code < 500


def test_v3_takes_a_numbered_request_whole_or_not_at_all(http: httpx.Client, topic: str) -> None:
    """Which records are good may be judged otherwise when it is repeated."""
    numbered = new_producer(http, "topic") | {"Sluice-Sequence": "0"}
    for bad, status in ((V3_WRONG, 400), (b'{"partition_id":9}', 404)):
        error_of(v3_records(http, topic, V3_ONE + bad, headers=numbered), status)
    error_of(v3_batch(http, topic, json.loads(V3_ONE), {"partition_id": -1}, headers=numbered), 400)
    assert fetch(http, topic)["data"] == []
    assert v3_records(http, topic, V3_ONE, headers=numbered).json()["offset"] == 0


def test_v3_refuses_numbers_that_it_cannot_heed(http: httpx.Client, topic: str) -> None:
    numbered = new_producer(http, "topic") | {"Sluice-Sequence": "0"}
    stream = error_of(v3_records(http, topic, iter([V3_ONE]), headers=numbered), 400)
    assert stream["details"]["field"] == "Sluice-Sequence"
    of_partition = new_producer(http, "partition") | {"Sluice-Sequence": "0"}
    assert (
        error_of(v3_records(http, topic, V3_ONE, headers=of_partition), 400)["details"]["field"] == "Sluice-Producer-Id"
    )
    error_of(v3_records(http, topic, V3_ONE, headers={"Sluice-Sequence": "0"}), 400)
    assert fetch(http, topic)["data"] == []
