"""Quotas over HTTP: what is done, what is told, what is refused, and that it all survives a restart."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pyarrow as pa
import pytest

from sluice.api.quotas import client_of
from tests.http.checks import V3, error_of, produce, values
from tests.http.conftest import App
from tests.support.server import Server, running

QUOTAS = f"{V3}/quotas"
RECORDS = {"records": [{"value": "x" * 2000}]}
ME = {"Sluice-Client-Id": "me"}


def limit(app: App, entity: dict[str, str | None], **rates: float | None) -> None:
    body = {"entries": [{"entity": entity, "values": rates}]}
    answer = app.call("POST", QUOTAS, json=body)
    assert answer.status_code == 200, answer.text


def send(app: App, topic: str = "t", **headers: str) -> httpx.Response:
    return app.call("POST", f"/topics/{topic}", json=RECORDS, headers=headers)


def poll(app: App, **query: Any) -> httpx.Response:
    params = {"offset": 0, "max_wait_ms": 0, **query}
    return app.call("GET", f"{V3}/topics/t/partitions/0/records", params=params, headers=ME)


def tick(app: App, seconds: float) -> None:
    app.log.runtime.clock.advance(seconds)  # type: ignore[attr-defined]  # the tests' clock


def metric(app: App, line: str) -> bool:
    return line in app.call("GET", "/metrics").text.splitlines()


# --- produce -------------------------------------------------------------------------------------


def test_a_request_over_the_quota_is_done_and_the_next_is_refused_unread(app: App) -> None:
    limit(app, {"client_id": "me"}, producer_byte_rate=100)
    first = send(app, **ME)
    assert first.status_code == 200
    throttle_ms = int(first.headers["Sluice-Throttle-Time-Ms"])
    size = len(json.dumps(RECORDS, separators=(",", ":")))
    assert throttle_ms == round((size / 10 - 100) / 100 * 10 * 1000)
    refused = send(app, **ME)
    assert error_of(refused, 429)["error"] == "THROTTLING_QUOTA_EXCEEDED"
    assert int(refused.headers["Retry-After"]) == -(-throttle_ms // 1000)
    assert app.log.partition("t", 0).high_watermark == 1
    assert send(app, **{"Sluice-Client-Id": "other"}).status_code == 200
    assert metric(app, 'sluice_throttles_total{kind="producer_byte_rate"} 2')
    tick(app, throttle_ms / 1000 + 0.01)
    assert send(app, **ME).status_code == 200


def test_a_refused_body_is_not_taken_into_memory(app: App) -> None:
    limit(app, {"client_id": None}, producer_byte_rate=1)
    send(app, **ME)
    taken = []

    async def pieces() -> Any:
        for _ in range(3):
            taken.append(1)
            yield b"x" * 1000

    refused = app.call("POST", "/topics/t", content=pieces(), headers=ME)
    error_of(refused, 429)
    assert app.service.bodies_bytes == 0


@pytest.mark.parametrize("path", [f"{V3}/topics/t/records", f"{V3}/topics/t/records:batch", "/topics/t/partitions/0"])
def test_every_way_to_produce_counts(app: App, path: str) -> None:
    app.log.create_topic("t")
    limit(app, {"topic": "t"}, producer_byte_rate=1)
    record = {"value": {"type": "STRING", "data": "x" * 100}}
    body = {"entries": [{"id": "1", **record}]} if path.endswith("batch") else record if "v3" in path else RECORDS
    first = app.call("POST", path, json=body)
    assert first.status_code in (200, 207), first.text
    assert "Sluice-Throttle-Time-Ms" in first.headers
    error_of(app.call("POST", path, json=body), 429)


def test_a_topics_quota_is_shared_by_all(app: App) -> None:
    limit(app, {"topic": "t"}, producer_byte_rate=10)
    assert send(app, **ME).status_code == 200
    error_of(send(app, **{"Sluice-Client-Id": "other"}), 429)
    assert send(app, "u", **ME).status_code == 200


def test_a_stream_is_read_more_slowly(server: Server, topic: str) -> None:
    """Muted as Kafka means it: the connection is not read until the time is over, and everything arrives."""
    entity = {"topic": topic}
    server.client.post(QUOTAS, json={"entries": [{"entity": entity, "values": {"producer_byte_rate": 500}}]})

    def pieces() -> Any:
        for size in (5300, 10):  # the first takes more than ten seconds' worth
            yield json.dumps({"partition_id": 0, "value": {"type": "STRING", "data": "x" * size}}).encode()

    response = server.client.post(f"{V3}/topics/{topic}/records", content=pieces())
    assert [json.loads(line)["error_code"] for line in response.text.splitlines()] == [200] * 2
    assert response.elapsed.total_seconds() > 0.5
    server.client.post(QUOTAS, json={"entries": [{"entity": entity, "values": {"producer_byte_rate": None}}]})


# --- fetch ---------------------------------------------------------------------------------------


def test_a_throttled_fetch_is_empty_and_says_for_how_long(app: App) -> None:
    send(app)
    limit(app, {"client_id": "me"}, consumer_byte_rate=100)
    first = poll(app)
    assert len(first.json()["data"]) == 1
    throttle_ms = first.json()["throttle_time_ms"]
    assert first.headers["Sluice-Throttle-Time-Ms"] == str(throttle_ms)
    second = poll(app)
    body = second.json()
    assert (body["data"], body["next_offset"], body["high_watermark"]) == ([], 0, 1)
    assert body["throttle_time_ms"] == throttle_ms
    assert metric(app, 'sluice_throttles_total{kind="consumer_byte_rate"} 2')
    tick(app, throttle_ms / 1000 + 0.01)
    again = poll(app, offset=1)
    assert again.status_code == 200
    assert "throttle_time_ms" not in again.json()


def test_a_throttled_arrow_fetch_is_an_empty_stream(app: App) -> None:
    send(app)
    limit(app, {"client_id": "me"}, consumer_byte_rate=10)
    poll(app)
    headers = ME | {"Accept": "application/vnd.apache.arrow.stream"}
    answer = app.call("GET", f"{V3}/topics/t/partitions/0/records", params={"offset": 0}, headers=headers)
    assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0
    assert int(answer.headers["Sluice-Throttle-Time-Ms"]) > 0


def test_a_throttled_poll_waits_its_time_and_then_reads(server: Server, topic: str) -> None:
    assert produce(server.client, topic, "x" * 10_500).status_code == 200
    entity = {"topic": topic}
    server.client.post(QUOTAS, json={"entries": [{"entity": entity, "values": {"consumer_byte_rate": 1000}}]})
    path = f"{V3}/topics/{topic}/partitions/0/records"
    begun = monotonic()
    first = server.client.get(path, params={"offset": 0, "format": "string"})
    throttle_ms = int(first.headers["Sluice-Throttle-Time-Ms"])
    assert 0 < throttle_ms < 10_000
    waited = server.client.get(path, params={"offset": 0, "max_wait_ms": 30_000, "format": "string"})
    assert len(waited.json()["data"]) == 1
    assert monotonic() - begun > throttle_ms / 1000 * 0.9
    server.client.post(QUOTAS, json={"entries": [{"entity": entity, "values": {"consumer_byte_rate": None}}]})


def test_a_throttled_poll_whose_timer_rings_early_reads_all_the_same(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(app, {"client_id": "me"}, consumer_byte_rate=100)
    send(app)
    assert len(poll(app).json()["data"]) == 1
    paused: list[float] = []

    async def rings_early(seconds: float) -> None:
        paused.append(seconds)
        tick(app, seconds - 0.002)

    monkeypatch.setattr(app.service.waiting, "pause", rings_early)
    assert len(poll(app, max_wait_ms=60_000).json()["data"]) == 1
    assert len(paused) == 2


# --- mutations -----------------------------------------------------------------------------------


def test_topics_are_created_grown_and_deleted_at_a_rate(app: App) -> None:
    limit(app, {"user": "anonymous"}, controller_mutation_rate=1)
    create = {"topic_name": "a", "partitions_count": 15}
    assert app.call("POST", f"{V3}/topics", json=create).status_code == 201  # a bucket of 11, drawn below zero
    dry = app.call("POST", f"{V3}/topics", json={"topic_name": "b", "validate_only": True})
    assert dry.status_code == 200
    for method, path, body in (
        ("POST", f"{V3}/topics", {"topic_name": "b"}),
        ("PATCH", f"{V3}/topics/a", {"partitions_count": 16}),
        ("DELETE", f"{V3}/topics/a", None),
        ("POST", "/topics/made-by-produce", RECORDS),
    ):
        refused = app.call(method, path, json=body)
        assert error_of(refused, 429)["error"] == "THROTTLING_QUOTA_EXCEEDED", path
        assert refused.headers["Retry-After"] == "4"
    assert [meta.name for meta in app.log.topics()] == ["a"]
    tick(app, 4.1)
    assert app.call("DELETE", f"{V3}/topics/a").status_code == 204


# --- the calls themselves ------------------------------------------------------------------------


def test_quotas_are_described_as_they_were_set(app: App) -> None:
    limit(app, {"user": "alice", "client_id": None}, producer_byte_rate=5, consumer_byte_rate=7.5)
    limit(app, {"topic": "t"}, producer_byte_rate=1)
    limit(app, {"user": "alice", "client_id": None}, producer_byte_rate=None)
    listed = app.call("GET", QUOTAS).json()
    assert listed["kind"] == "SluiceQuotaList"
    assert [(one["entity"], one["values"]) for one in listed["data"]] == [
        ({"topic": "t"}, {"producer_byte_rate": 1.0}),
        ({"user": "alice", "client_id": None}, {"consumer_byte_rate": 7.5}),
    ]
    only = app.call("GET", QUOTAS, params={"user": "alice", "client_id": ""}).json()["data"]
    assert [one["entity"] for one in only] == [{"user": "alice", "client_id": None}]
    assert app.call("GET", QUOTAS, params={"user": "bob"}).json()["data"] == []


def test_all_entries_or_none(app: App) -> None:
    good = {"entity": {"user": "a"}, "values": {"producer_byte_rate": 1}}
    for bad in (
        {"entity": {"user": "b"}, "values": {"request_percentage": 50}},
        {"entity": {}, "values": {"producer_byte_rate": 1}},
        {"entity": {"user": "b"}, "values": {"producer_byte_rate": 0}},
        {"entity": {"user": "b"}, "values": {"producer_byte_rate": "9"}},
    ):
        error_of(app.call("POST", QUOTAS, json={"entries": [good, bad]}), 400)
    dry = app.call("POST", QUOTAS, json={"entries": [good], "validate_only": True})
    assert dry.json()["data"][0]["values"] == {"producer_byte_rate": 1.0}
    assert app.call("GET", QUOTAS).json()["data"] == []


@pytest.mark.parametrize("given", ["", "a b", "x" * 101, "a\tb", "ä".encode().decode("latin-1")])
def test_a_client_id_must_be_a_plain_name(app: App, given: str) -> None:
    refused = app.call("GET", "/topics", headers={"Sluice-Client-Id": given.encode("latin-1")})  # type: ignore[dict-item]
    assert error_of(refused, 400)["details"] == {"field": "Sluice-Client-Id"}


def test_who_asks() -> None:
    assert client_of({}) == ("anonymous", "default")
    assert client_of({"sluice.user": "alice", "sluice.client_id": "c"}) == ("alice", "c")


def test_a_user_is_the_name_of_a_token(app: App) -> None:
    def token(name: str, grant: str, **headers: str) -> dict[str, str]:
        made = app.call("POST", f"{V3}/tokens", json={"name": name, "grants": [grant]}, headers=headers)
        assert made.status_code in (200, 201), made.text
        return {"Authorization": f"Bearer {made.json()['token']}"}

    admin = token("root", "admin")
    writer, other = (token(name, "produce:topic:*", **admin) for name in ("writer", "other"))
    entry = {"entity": {"user": "writer"}, "values": {"producer_byte_rate": 1}}
    for headers, status in ((writer, 403), (admin, 200)):
        assert app.call("POST", QUOTAS, json={"entries": [entry]}, headers=headers).status_code == status
    assert send(app, **writer).status_code == 200
    error_of(send(app, **writer, **ME), 429)
    assert send(app, **other).status_code == 200


def test_quotas_survive_kill_9(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server:
        entry = {"entity": {"client_id": None}, "values": {"producer_byte_rate": 1}}
        assert server.client.post(QUOTAS, json={"entries": [entry]}).status_code == 200
        server.kill()
        server.start()
        (kept,) = server.client.get(QUOTAS).json()["data"]
        assert (kept["entity"], kept["values"]) == ({"client_id": None}, {"producer_byte_rate": 1.0})
        assert produce(server.client, "t", "x" * 100).status_code == 200
        error_of(produce(server.client, "t", "x"), 429)
        assert len(values(server.client, "t")) == 1
