"""The calls that the console added to the API: a picture of a log, records by key, runs of jobs."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sluice.ingest.partitioner import murmur2_of
from tests.console.conftest import Service
from tests.http.checks import V3, error_of
from tests.support.jobs import ran


def search(service: Service, topic: str, status: int = 200, **query: Any) -> dict[str, Any]:
    answer = service.server.client.get(f"{V3}/topics/{topic}/records:search", params=query)
    if status != 200:
        return error_of(answer, status)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_the_layout_of_a_partition(service: Service) -> None:
    topic = service.topic("laid-out", segment_bytes=1_000)
    for number in range(4):
        service.produce(topic, *({"value": f"{number}-{one}" + "x" * 100} for one in range(10)))
    body = service.server.client.get(f"{V3}/topics/{topic}/partitions/0/layout").json()
    assert (body["log_start_offset"], body["high_watermark"], body["log_end_offset"]) == (0, 40, 40)
    assert sum(block["records"] for block in body["blocks"]) == 40
    assert {block["kind"] for block in body["blocks"]} == {"small"}
    assert body["segments_count"] == len(body["segments"]) > 1
    assert [one["active"] for one in body["segments"]] == [False] * (len(body["segments"]) - 1) + [True]
    error_of(service.server.client.get(f"{V3}/topics/{topic}/partitions/9/layout"), 404)


@pytest.fixture(scope="module")
def keyed(service: Service) -> str:
    topic = service.topic("keyed", 4)
    client = service.server.client
    for number in range(5):
        records = [{"key": f"c-{one}", "value": number} for one in range(20)]
        assert client.post(f"/topics/{topic}", json={"records": records}).status_code == 200
    binary = {"records": [{"key": base64.b64encode(b"\xff\x00").decode(), "value": "AAAA"}]}
    answer = client.post(
        f"/topics/{topic}", json=binary, headers={"Content-Type": "application/vnd.kafka.binary.v2+json"}
    )
    assert answer.status_code == 200
    return topic


def test_records_of_a_key_newest_first(service: Service, keyed: str) -> None:
    found = search(service, keyed, key='"c-7"')
    assert found["partition_id"] == (murmur2_of(b'"c-7"') & 0x7FFFFFFF) % 4
    assert [(one["key"], one["value"]) for one in found["data"]] == [("c-7", number) for number in (4, 3, 2, 1, 0)]
    assert found["next_before"] is None
    assert found["scanned"] > 5
    none = search(service, keyed, key='"nobody"')
    assert (none["data"], none["next_before"]) == ([], None)


def test_a_search_goes_on_where_it_stopped(service: Service, keyed: str) -> None:
    values, before, rounds = [], None, 0
    while True:
        found = search(service, keyed, key='"c-7"', max_records=2, **({} if before is None else {"before": before}))
        values += [one["value"] for one in found["data"]]
        before, rounds = found["next_before"], rounds + 1
        if before is None:
            break
    assert values == [4, 3, 2, 1, 0]
    assert rounds >= 3


def test_keys_in_other_forms(service: Service, keyed: str) -> None:
    (found,) = search(service, keyed, key="/wA=", key_format="binary", format="binary")["data"]
    assert (found["key"], found["value"]) == ("/wA=", "AAAA")
    assert len(search(service, keyed, key='"c-7"', key_format="string")["data"]) == 5
    elsewhere = (search(service, keyed, key='"c-7"')["partition_id"] + 1) % 4
    assert search(service, keyed, key='"c-7"', partition=elsewhere)["data"] == []


def test_keys_that_are_none(service: Service, keyed: str) -> None:
    assert search(service, keyed, 400, key="c-7")["message"].startswith("key: must be JSON")
    assert search(service, keyed, 400, key="!", key_format="binary")["message"] == "key: must be base64"
    assert search(service, keyed, 400)["details"]["field"] == "key"
    assert search(service, keyed, 400, key="1", max_records=0)["details"]["field"] == "max_records"
    assert search(service, keyed, 404, key="1", partition=99)["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert search(service, keyed, 422, key="/wA=", key_format="binary")["error"] == "INVALID_RECORD"


def test_runs_of_jobs(service: Service) -> None:
    client = service.server.client
    report = ran("orphans", service.server.root, "--token", service.admin).report
    listed = client.get(f"{V3}/jobs").json()
    found = {one["job"]: one for one in listed["data"]}
    assert found["orphans"]["last"]["run_id"] == report.run_id
    assert found["orphans"]["schedule"] == "45 3 * * *"
    assert found["merge"]["last"] is None
    assert {"merges", "compaction_compactions", "retention_segments"} <= {one["name"] for one in listed["service"]}
    (run,) = client.get(f"{V3}/jobs/orphans/runs").json()["data"]
    assert (run["outcome"], run["planned"], run["job"]) == (report.outcome, report.planned, "orphans")
    assert client.get(f"{V3}/jobs/merge/runs").json()["data"] == []
    for name in ("none", "leases", "..", "UP"):
        error_of(client.get(f"{V3}/jobs/{name}/runs"), 404)
