"""Errors of every layer, health, metrics, overload, and the life of the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sluice.api import errors as table
from sluice.api import limits
from sluice.api.limits import PART_BYTES
from sluice.log_store import errors
from sluice.log_store.append_queue import AppendQueue
from tests.http.checks import V3, error_of, fetch, new_producer, offsets, produce, values
from tests.http.conftest import App
from tests.support.logs import eventually
from tests.support.server import QUICK, Server, running


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v3", 404),
        ("GET", "/topics/a/b/c", 404),
        ("PUT", "/topics/a", 405),
        ("DELETE", "/healthz", 405),
        ("BREW", "/topics", 405),
    ],
)
def test_routing_refuses_in_our_shape(app: App, method: str, path: str, status: int) -> None:
    error_of(app.call(method, path), status)


def test_every_error_class_has_a_status() -> None:
    def classes(base: type[errors.SluiceError]) -> set[type[errors.SluiceError]]:
        return {base}.union(*(classes(one) for one in base.__subclasses__()))

    for kind in classes(errors.SluiceError):
        status, code = table.status_of(kind("why"))
        assert status in (code, code // 100)
        assert 400 <= status < 600


def test_a_bug_is_a_500_in_our_shape_and_counted(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.log, "topics", lambda **_: 1 / 0)
    refused = app.call("GET", "/topics", headers={"X-Request-Id": "abc"})
    assert "request abc" in error_of(refused, 500)["message"]
    assert refused.headers["X-Request-Id"] == "abc"
    monkeypatch.undo()
    assert 'sluice_errors_total{error="UNKNOWN_SERVER_ERROR"} 1' in app.call("GET", "/metrics").text


def test_another_leader_is_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise errors.NotLeader("fenced", leader="http://10.0.0.7:8080")

    app.log.create_topic("t")
    monkeypatch.setattr(app.log, "append_topic", refuse)
    refused = app.call("POST", "/topics/t", json={"records": [{"value": 1}]})
    assert error_of(refused, 503)["details"]["leader"] == "http://10.0.0.7:8080"
    assert refused.headers["Sluice-Leader"] == "http://10.0.0.7:8080"


def test_an_acknowledgement_that_does_not_come_is_504(app: App) -> None:
    app.log.create_topic("t")
    app.call("POST", "/topics/t", json={"records": [{"value": 0}]})
    held = threading.Event()
    for _ in range(app.log.settings.log.commit_threads or 16):
        app.log.runtime.commits.submit(held.wait, 20)
    late = app.call("POST", "/topics/t", json={"records": [{"value": 1}]}, params={"timeout_ms": 50})
    body = error_of(late, 504)
    assert (body["error"], body["retriable"]) == ("REQUEST_TIMED_OUT", True)
    assert body["offsets"][0]["error_code"] == 504
    held.set()
    eventually(lambda: app.log.partition("t", 0).high_watermark == 2)


def test_a_full_partition_is_429(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.service.bodies_bytes = app.service.settings.request_memory_max_bytes
    refused = app.call("POST", "/topics/t", json={"records": [{"value": 1}]})
    assert error_of(refused, 429)["error"] == "THROTTLING_QUOTA_EXCEEDED"


def test_a_full_write_ahead_log_is_503(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 2 of the design: nothing was taken, and storage is the reason."""
    monkeypatch.setattr(AppendQueue, "admit", _wal_is_full)
    refused = app.call("POST", "/topics/t?acks=1", json={"records": [{"value": 1}]})
    assert error_of(refused, 503)["error"] == "KAFKA_STORAGE_ERROR"
    assert refused.headers["Retry-After"] == "1"


def _wal_is_full(*_: object) -> None:
    raise errors.WalFull("the write-ahead log is full", retry_after_s=1)


def test_a_small_body_for_many_partitions_is_counted_for_what_it_becomes(app: App) -> None:
    app.log.create_topic("wide", partitions=200)
    records = {"records": [{"value": 1}] * 200}
    app.service.bodies_bytes = app.service.settings.request_memory_max_bytes - 200 * PART_BYTES
    refused = app.call("POST", "/topics/wide", json=records)
    assert error_of(refused, 429)["error"] == "THROTTLING_QUOTA_EXCEEDED"
    app.service.bodies_bytes = 0
    assert app.call("POST", "/topics/wide", json=records).status_code == 200
    assert app.service.bodies_bytes == 0


def test_a_request_for_more_partitions_than_memory_is_meant_for_passes_when_it_is_alone(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PART_BYTES", app.service.settings.request_memory_max_bytes)
    app.log.create_topic("wide", partitions=20)
    assert app.call("POST", "/topics/wide", json={"records": [{"value": 1}] * 20}).status_code == 200


def test_memory_of_bodies_is_given_back(app: App) -> None:
    app.call("POST", "/topics/t", json={"records": [{"value": 1}]})
    app.call("POST", "/topics/t", content=b"{")
    assert app.service.bodies_bytes == 0


def test_health_and_readiness(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.call("GET", "/healthz").json() == {"status": "ok"}
    assert app.call("GET", "/readyz").json() == {"status": "ready"}
    monkeypatch.setattr(app.log, "troubles", lambda: ["t-0: parked"])
    assert error_of(app.call("GET", "/readyz"), 503)["troubles"] == ["t-0: parked"]


def test_metrics(app: App) -> None:
    app.call("POST", "/topics/t", json={"records": [{"value": 1}, {"value": 2}]})
    app.call("GET", f"{V3}/topics/t/partitions/0/records", params={"offset": 7})
    lines = app.call("GET", "/metrics").text.splitlines()
    assert 'sluice_http_requests_total{method="POST",route="/topics/{t}",status="200"} 1' in lines
    assert 'sluice_produced_records_total{topic="t"} 2' in lines
    assert 'sluice_partition_high_watermark{topic="t",partition="0"} 2' in lines
    assert 'sluice_errors_total{error="OFFSET_OUT_OF_RANGE"} 1' in lines
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines if line)


def test_openapi_names_every_route(app: App) -> None:
    schema = app.call("GET", "/openapi.json").json()
    told = {(method, path) for path, operations in schema["paths"].items() for method in operations}
    for method, path in (
        ("post", "/topics/{t}"),
        ("get", "/topics/{t}"),
        ("get", "/v3/clusters/{c}/topics/{t}/partitions/{p}/records"),
        ("post", "/v3/clusters/{c}/topics/{t}/records:batch"),
        ("post", "/v3/clusters/{c}/topics/{t}/partitions/{p}/plans"),
    ):
        assert (method, path) in told
    assert app.call("GET", "/docs").status_code == 200


# --- the process -------------------------------------------------------------------------------


def test_kill_9_keeps_what_was_acknowledged_and_who_sent_it(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server:
        http = server.client
        http.post(f"{V3}/topics", json={"topic_name": "t", "partitions_count": 3})
        one, whole = new_producer(http, "partition"), new_producer(http, "topic")
        body = {"records": [{"value": n} for n in range(9)]}
        to_one = [offsets(produce(http, "t", n, headers=one | {"Sluice-Sequence": str(n)})) for n in range(3)]
        to_all = offsets(http.post("/topics/t", json=body, headers=whole | {"Sluice-Sequence": "0"}))
        assert offsets(produce(http, "t", "acks=1", params={"acks": 1}))
        before = [values(http, "t", number) for number in range(3)]
        server.kill()
        server.start()
        http = server.client
        assert [values(http, "t", number) for number in range(3)][1:] == before[1:]
        eventually(lambda: values(http, "t", 0)[-1] == "acks=1")
        again = [offsets(produce(http, "t", n, headers=one | {"Sluice-Sequence": str(n)})) for n in range(3)]
        assert again == to_one
        assert offsets(http.post("/topics/t", json=body, headers=whole | {"Sluice-Sequence": "0"})) == to_all
        assert sum(len(values(http, "t", number)) for number in range(3)) == 3 + 9 + 1


def accepted(http: httpx.Client, topic: str) -> int:
    """Records that have an offset, committed or not."""
    found = http.get(f"{V3}/brokers/0/log-dirs", params={"topic": topic}).json()["data"]
    return sum(one["log_end_offset"] for one in found)


def test_sigterm_commits_what_was_accepted_and_exits_with_0(tmp_path: Path) -> None:
    with running(tmp_path / "root", SLUICE_COMMIT_INTERVAL_MS="500") as server:
        produce(server.client, "t", "first")
        with ThreadPoolExecutor(8) as pool:
            poll = pool.submit(fetch, server.client, "t", 1, max_wait_ms=60_000, min_bytes=1 << 20)
            sent = [pool.submit(produce, server.client, "t", n, params={"acks": acks}) for n, acks in enumerate("11")]
            sent += [pool.submit(produce, server.client, "t", n) for n in (2, 3)]
            assert all(one.result().status_code == 200 for one in sent[:2])
            eventually(lambda: accepted(server.client, "t") == 5)
            unacked = produce(server.client, "t", "acks=0", params={"acks": 0})
            assert unacked.status_code == 202
            assert server.terminate() == 0
            answered = [one.result() for one in sent]
            poll.result()
        assert all(one.status_code == 200 for one in answered)
        server.start()
        found = values(server.client, "t")
        assert sorted(found, key=str) == sorted(["first", 0, 1, 2, 3, "acks=0"], key=str)


def test_a_second_leader_is_refused_and_told_where(server: Server) -> None:
    command = [sys.executable, "-m", "tests.support.server", "--root", str(server.root), "--port", "0"]
    second = subprocess.run(command, env=os.environ | QUICK, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "NOT_LEADER_OR_FOLLOWER" in second.stderr
    assert server.url in second.stderr


def test_force_takes_over_from_a_leader_that_is_alive(tmp_path: Path) -> None:
    """R-1: it is fenced, says where the new one is, and goes on serving reads."""
    with running(tmp_path / "root") as old:
        assert old.client.post("/topics/t?acks=all", json={"records": [{"value": "old"}]}).status_code == 200
        new = Server(tmp_path / "root")
        try:
            new.start("--force")
            assert new.client.post("/topics/t?acks=all", json={"records": [{"value": "new"}]}).status_code == 200
            refused = old.client.post("/topics/t?acks=all", json={"records": [{"value": "late"}]})
            assert error_of(refused, 503)["error"] == "NOT_LEADER_OR_FOLLOWER"
            assert refused.headers["Sluice-Leader"] == new.url
            assert sorted(values(new.client, "t")) == sorted(values(old.client, "t")) == ["new", "old"]
        finally:
            new.close()


def test_sigint_stops_in_order_too(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server:
        server.signal(signal.SIGINT)
        assert server.wait() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_it_says_where_it_listens_as_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.server", "--root", str(tmp_path / "root"), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | QUICK) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["listening"]
        assert httpx.get(f"{url}/healthz").status_code == 200
        process.terminate()
        assert process.wait(60) == 0
        watchdog.cancel()
