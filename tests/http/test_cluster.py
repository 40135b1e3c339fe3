"""The broker, its settings, its files; and the metrics, read as strictly as Prometheus reads them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sluice.api.service import Service
from sluice.log_store.clock import ManualClock, SystemClock
from tests.http.checks import V3, error_of, produce
from tests.http.conftest import App
from tests.support.logs import eventually, folder_cluster, memory_cluster
from tests.support.server import Server

BROKERS = f"{V3}/brokers"


def test_the_broker(server: Server) -> None:
    http = server.client
    assert http.get("/brokers").json() == {"brokers": [0]}
    (only,) = http.get(BROKERS).json()["data"]
    assert http.get(f"{BROKERS}/0").json() == only
    assert (only["kind"], only["broker_id"], only["fenced"]) == ("KafkaBroker", 0, False)
    assert f"http://{only['host']}:{only['port']}" == server.url
    assert http.get(only["configs"]["related"]).status_code == 200
    assert http.get(only["log_dirs"]["related"]).status_code == 200


@pytest.mark.parametrize("path", ["/1", "/-", "/x", "/1/configs", "/-/log-dirs"])
def test_there_is_no_other_broker(app: App, path: str) -> None:
    assert error_of(app.call("GET", f"{BROKERS}{path}"), 404)["details"] == {"field": "broker_id"}


def test_a_link_of_a_partition_leads_to_its_replica(http: httpx.Client, topic: str) -> None:
    partition = http.get(f"{V3}/topics/{topic}/partitions/2").json()
    (replica,) = http.get(partition["replicas"]["related"]).json()["data"]
    assert (replica["broker_id"], replica["is_leader"], replica["partition_id"]) == (0, True, 2)
    assert http.get(partition["leader"]["related"]).status_code == 200
    error_of(http.get(f"{V3}/topics/{topic}/partitions/3/replicas"), 404)


def test_settings_are_shown_but_no_secret() -> None:
    with memory_cluster() as cluster:
        secret = replace(cluster.settings.storage, s3_secret_access_key="hush")
        log = cluster.open(settings=replace(cluster.settings, storage=secret))
        service = Service(log, log.settings)
        answer = App(service).call("GET", f"{BROKERS}/-/configs")
        service.close()
    assert "hush" not in answer.text
    found = {one["name"]: one for one in answer.json()["data"]}
    assert (found["s3.secret.access.key"]["value"], found["s3.secret.access.key"]["is_sensitive"]) == (None, True)
    assert (found["commit.interval.ms"]["value"], found["commit.interval.ms"]["is_default"]) == ("0", False)
    assert found["fsync"]["value"] in ("true", "false")


def test_log_dirs_tell_bytes_files_and_offsets(http: httpx.Client, topic: str) -> None:
    for number in range(3):
        assert produce(http, topic, number, partition=1).status_code == 200
    listed = http.get(f"{BROKERS}/0/log-dirs", params={"topic": topic}).json()
    facts = [(one["partition_id"], one["files"], one["high_watermark"], one["problem"]) for one in listed["data"]]
    assert facts == [(0, 0, 0, None), (1, 3, 3, None), (2, 0, 0, None)]
    mine = listed["data"][1]
    assert mine["small_files"] == 3
    assert mine["size_bytes"] > 0
    assert (mine["log_start_offset"], mine["log_end_offset"]) == (0, 3)
    error_of(http.get(f"{BROKERS}/0/log-dirs", params={"topic": "none"}), 404)


def test_log_dirs_come_in_pages(app: App) -> None:
    for name in "ab":
        app.log.create_topic(name, partitions=3)
    found, link = [], f"{BROKERS}/0/log-dirs?page_size=4"
    pages = 0
    while link is not None:
        page = app.call("GET", link).json()
        found += [(one["topic_name"], one["partition_id"]) for one in page["data"]]
        link, pages = page["metadata"]["next"], pages + 1
    assert (found, pages) == ([(name, number) for name in "ab" for number in range(3)], 2)
    for token in ("x", "a:", "a:-1", ":1"):
        error_of(app.call("GET", f"{BROKERS}/0/log-dirs", params={"page_token": token}), 400)


# --- metrics ---------------------------------------------------------------------------------------

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9.e+-]+|\+Inf|NaN)")
_KINDS = {"counter", "gauge", "histogram"}


def families(text: str) -> dict[str, dict[str, float]]:
    """{family: {sample with labels: value}} after checking the rules of the text format."""
    assert text.endswith("\n")
    found: dict[str, dict[str, float]] = {}
    kind = name = ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert re.fullmatch(_NAME, name)
            assert name not in found, f"{name} comes twice"
            typed = next(lines).split(" ")
            assert typed[:3] == ["#", "TYPE", name]
            kind, found[name] = typed[3], {}
            assert kind in _KINDS
            assert name.endswith("_total") == (kind == "counter"), name
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        assert sample[1] in {name + suffix for suffix in suffixes}, line
        key = f"{sample[1]}{{{sample[2] or ''}}}"
        assert key not in found[name], f"{key} comes twice"
        found[name][key] = float(sample[3])
    for name, samples in found.items():
        _check_histogram(name, samples)
    return found


def _check_histogram(name: str, samples: dict[str, float]) -> None:
    counts = {key.partition("{")[2]: value for key, value in samples.items() if key.startswith(f"{name}_count{{")}
    for labels, count in counts.items():
        inner = labels.rstrip("}")
        buckets = [
            value
            for key, value in samples.items()
            if key.startswith(f"{name}_bucket{{") and re.sub(r',?le="[^"]*"', "", key).endswith(f"{{{inner}}}")
        ]
        assert buckets == sorted(buckets), name
        assert buckets[-1] == count, name


WANTED = [
    "sluice_http_requests_total",
    "sluice_http_request_seconds",
    "sluice_http_request_bytes_total",
    "sluice_http_response_bytes_total",
    "sluice_produced_records_total",
    "sluice_produced_bytes_total",
    "sluice_fetched_records_total",
    "sluice_fetched_bytes_total",
    "sluice_errors_total",
    "sluice_throttles_total",
    "sluice_long_polls_waiting",
    "sluice_event_loop_lag_seconds",
    "sluice_commit_seconds",
    "sluice_versions_total",
    "sluice_partition_high_watermark",
    "sluice_partition_log_end",
    "sluice_partition_log_start",
    "sluice_wal_bytes",
    "sluice_wal_parked_files",
    "sluice_checkpoints_total",
    "sluice_cleaned_commits_total",
    "sluice_cleaned_checkpoints_total",
    "sluice_cleaned_states_total",
    "sluice_cleaned_checksums_total",
    "sluice_housekeeping_merges_total",
    "sluice_housekeeping_removed_deleted_total",
    "sluice_housekeeping_orphans_deleted_total",
    "sluice_housekeeping_leftovers_deleted_total",
]


def test_metrics_are_complete_and_in_the_format(app: App) -> None:
    app.call("POST", "/topics/t", json={"records": [{"value": 1}]})
    app.call("GET", f"{V3}/topics/t/partitions/0/records", params={"offset": 0})
    app.call("GET", "/topics/none")
    answer = app.call("GET", "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = families(answer.text)
    assert set(WANTED) <= found.keys()
    assert found["sluice_fetched_records_total"] == {'sluice_fetched_records_total{topic="t"}': 1}
    assert found["sluice_http_request_bytes_total"]["sluice_http_request_bytes_total{}"] > 10
    assert found["sluice_http_response_bytes_total"]["sluice_http_response_bytes_total{}"] > 10
    versions = found["sluice_versions_total"]["sluice_versions_total{}"]
    assert versions >= 2
    assert found["sluice_commit_seconds"]["sluice_commit_seconds_count{}"] == versions


def test_the_number_of_series_is_bounded(app: App) -> None:
    app.service.settings = replace(app.service.settings, metrics_max_partitions=2)
    app.log.create_topic("wide", partitions=5)
    for number in range(5):
        app.call("POST", f"/topics/wide/partitions/{number}", json={"records": [{"value": 1}]})
    app.call("POST", "/topics/gone", json={"records": [{"value": 1}]})
    app.log.delete_topic("gone")
    for name in "abc":
        app.call("GET", f"/{name}/made-up")
        app.call(f"BREW{name}", "/topics")
    found = families(app.call("GET", "/metrics").text)
    assert len(found["sluice_partition_high_watermark"]) == 2
    assert found["sluice_partitions_open"]["sluice_partitions_open{}"] == 6  # and the catalog's own
    assert list(found["sluice_produced_records_total"]) == ['sluice_produced_records_total{topic="wide"}']
    assert not [key for key in found["sluice_http_requests_total"] if "made-up" in key or "BREW" in key]


def test_every_kind_of_clean_up_is_counted(tmp_path: Path) -> None:
    tomorrow = ManualClock(SystemClock().wall_ms() + 86_400_000)  # by then the files are old
    with folder_cluster(tmp_path / "root", clock=tomorrow, json_retention_ms=1, file_delete_delay_ms=1) as cluster:
        log = cluster.open()
        app = App(Service(log, cluster.settings))
        log.create_topic("t")
        partition, folder = log.partition("t", 0), tmp_path / "root" / "topics/t/0"
        for number in range(9):
            app.call("POST", "/topics/t", json={"records": [{"value": number}]})
            if number == 0:
                (folder / "_delta_log" / "00000000000000000000.crc").touch()
            if number % 3 == 2:
                partition.checkpoint()
        log.delete_records("t", 0, 5)
        partition.checkpoint()
        cluster.tick(100_000)
        (folder / ".gone.parquet.crc").touch()
        (folder / "part-nobody-knows.parquet").touch()
        log.background.housekeeping.sweep(partition)
        found = families(app.call("GET", "/metrics").text)
        app.service.close()
    counts = {name: sum(samples.values()) for name, samples in found.items()}
    for name in (
        "checkpoints",
        "cleaned_commits",
        "cleaned_checkpoints",
        "cleaned_states",
        "cleaned_checksums",
        "housekeeping_removed_deleted",
        "housekeeping_orphans_deleted",
        "housekeeping_leftovers_deleted",
    ):
        assert counts[f"sluice_{name}_total"] >= 1, name


def test_the_loop_is_watched(server: Server) -> None:
    def rung() -> float:
        found = families(server.client.get("/metrics").text)
        return found["sluice_event_loop_lag_seconds"]["sluice_event_loop_lag_seconds_count{}"]

    before = rung()
    eventually(lambda: rung() > before)


def test_openapi_names_them(app: App) -> None:
    paths = json.loads(app.call("GET", "/openapi.json").text)["paths"]
    for path in ("/brokers", "/v3/clusters/{c}/brokers/{b}/log-dirs", "/v3/clusters/{c}/quotas"):
        assert "get" in paths[path]
