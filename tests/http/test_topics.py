"""Topics, configs, partitions, deletion, plans over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from sluice.log_store.plans import PlanKind
from tests.http.checks import V3, error_of, fetch, produce
from tests.http.conftest import App
from tests.support.logs import append_one_by_one, rewrite

TOPICS = f"{V3}/topics"


def test_the_life_of_a_topic(http: httpx.Client) -> None:
    body = {"topic_name": "life", "partitions_count": 2, "configs": [{"name": "retention.ms", "value": 1000}]}
    assert http.post(TOPICS, json=body | {"validate_only": True}).status_code == 200
    error_of(http.get(f"{TOPICS}/life"), 404)
    made = http.post(TOPICS, json=body)
    assert made.status_code == 201
    assert made.headers["Location"] == made.json()["metadata"]["self"]
    found = http.get(f"{TOPICS}/life").json()
    assert (found["kind"], found["partitions_count"], found["replication_factor"]) == ("KafkaTopic", 2, 1)
    assert error_of(http.post(TOPICS, json=body), 400)["error"] == "TOPIC_ALREADY_EXISTS"
    assert http.patch(f"{TOPICS}/life", json={"partitions_count": 5}).json()["partitions_count"] == 5
    error_of(http.patch(f"{TOPICS}/life", json={"partitions_count": 5}), 400)
    assert "life" in [one["topic_name"] for one in http.get(TOPICS).json()["data"]]
    assert http.delete(f"{TOPICS}/life").status_code == 204
    error_of(http.delete(f"{TOPICS}/life"), 404)
    assert http.post(TOPICS, json=body).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic_name": "a b"},
        {"topic_name": ".."},
        {"topic_name": "x" * 250},
        {"topic_name": "\ud800"},
        {"topic_name": "ok", "partitions_count": 0},
        {"topic_name": "ok", "partitions_count": "3"},
        {"topic_name": "ok", "replication_factor": 3},
        {"topic_name": "ok", "configs": [{"name": "no.such", "value": "1"}]},
        {"topic_name": "ok", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"topic_name": "ok", "more": 1},
        {"topic_name": "ok", "\udfff": 1},
    ],
)
def test_topics_that_cannot_be(http: httpx.Client, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()  # httpx itself would refuse half a surrogate pair
    error_of(http.post(TOPICS, content=content, headers={"Content-Type": "application/json"}), 400)
    error_of(http.get(f"{TOPICS}/ok"), 404)


def test_bodies_that_are_no_json_or_too_large(http: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    for content in (b"", b"{", b"[1]", b"\xff", b"[" * 100_000):
        error_of(http.post(TOPICS, content=content, headers=headers), 400)
    broken = error_of(http.post(TOPICS, content=b'{"topic_name": }', headers=headers), 400)
    assert broken["details"] == {"field": "body"}
    assert broken["message"] == "body: is no JSON at position 15: Expecting value"
    for content in (b" " * ((1 << 20) + 1), (b" " * 65536 for _ in range(32)), b"[" + b"1," * 100_001 + b"1]"):
        large = error_of(http.post(TOPICS, content=content, headers=headers), 413)
        assert (large["error"], large["details"]["field"]) == ("RECORD_LIST_TOO_LARGE", "body")


def test_v2_shapes(http: httpx.Client, topic: str) -> None:
    found = http.get(f"/topics/{topic}").json()
    assert (found["name"], len(found["partitions"])) == (topic, 3)
    assert found["configs"]["cleanup.policy"] == "delete"
    assert http.get(f"/topics/{topic}/partitions").json() == found["partitions"]
    assert http.get(f"/topics/{topic}/partitions/1").json() == found["partitions"][1]
    assert error_of(http.get("/topics/none"), 404)["error_code"] == 40401
    assert error_of(http.get(f"/topics/{topic}/partitions/9"), 404)["error_code"] == 40402


def test_clusters(http: httpx.Client) -> None:
    (only,) = http.get("/v3/clusters").json()["data"]
    assert http.get(f"/v3/clusters/{only['cluster_id']}").json() == only == http.get(V3).json()
    error_of(http.get("/v3/clusters/other"), 404)


def test_configs_are_effective_at_once(http: httpx.Client, topic: str) -> None:
    configs = f"{TOPICS}/{topic}/configs"
    assert http.put(f"{configs}/max.message.bytes", json={"value": "10"}).status_code == 204
    found = http.get(f"{configs}/max.message.bytes").json()
    assert (found["value"], found["is_default"], found["source"]) == ("10", False, "DYNAMIC_TOPIC_CONFIG")
    error_of(produce(http, topic, "x" * 20), 413)
    assert http.delete(f"{configs}/max.message.bytes").status_code == 204
    assert produce(http, topic, "x" * 20).status_code == 200
    changes = [
        {"name": "retention.ms", "value": "5"},
        {"name": "cleanup.policy", "operation": "APPEND", "value": "compact"},
    ]
    assert http.post(f"{configs}:alter", json={"data": changes, "validate_only": True}).status_code == 204
    assert http.get(f"{configs}/retention.ms").json()["is_default"]
    assert http.post(f"{configs}:alter", json={"data": changes}).status_code == 204
    values = {one["name"]: one["value"] for one in http.get(configs).json()["data"]}
    assert (values["retention.ms"], values["cleanup.policy"]) == ("5", "delete,compact")


def test_configs_that_cannot_be(http: httpx.Client, topic: str) -> None:
    configs = f"{TOPICS}/{topic}/configs"
    error_of(http.get(f"{configs}/no.such"), 404)
    error_of(http.put(f"{configs}/no.such", json={"value": 1}), 400)
    error_of(http.put(f"{configs}/retention.ms", json={"value": None}), 400)
    error_of(http.put(f"{configs}/retention.ms", json={}), 400)
    error_of(http.post(f"{configs}:alter", json={"data": [{"name": "retention.ms", "operation": "MOVE"}]}), 400)
    error_of(http.get(f"{TOPICS}/none/configs"), 404)


def test_partitions_tell_their_offsets(http: httpx.Client, topic: str) -> None:
    produce(http, topic, 1, 2, partition=1)
    found = http.get(f"{TOPICS}/{topic}/partitions").json()["data"]
    assert [(one["partition_id"], one["high_watermark"]) for one in found] == [(0, 0), (1, 2), (2, 0)]
    one = http.get(f"{TOPICS}/{topic}/partitions/1").json()
    assert (one["log_start_offset"], one["log_end_offset"], one["kind"]) == (0, 2, "KafkaPartition")
    error_of(http.get(f"{TOPICS}/{topic}/partitions/3"), 404)
    error_of(http.get(f"{TOPICS}/{topic}/partitions/x"), 400)


def test_records_are_deleted(http: httpx.Client, topic: str) -> None:
    produce(http, topic, 1, 2, 3)
    path = f"{TOPICS}/{topic}/records:delete"
    deleted = http.post(path, json={"offsets": [{"partition": 0, "before_offset": 2}]})
    assert deleted.json() == {"offsets": [{"partition": 0, "low_watermark": 2}]}
    error_of(http.get(f"{TOPICS}/{topic}/partitions/0/records", params={"offset": 0}), 416)
    assert fetch(http, topic, 2)["log_start_offset"] == 2
    some = [{"partition": 0, "before_offset": 99}, {"partition": 0, "before_offset": -1}]
    partly = http.post(path, json={"offsets": some})
    assert partly.status_code == 207
    assert [one.get("error") for one in partly.json()["offsets"]] == ["OFFSET_OUT_OF_RANGE", None]
    alone = error_of(http.post(path, json={"offsets": some[:1]}), 416)
    assert alone["error"] == "OFFSET_OUT_OF_RANGE"
    both = error_of(http.post(path, json={"offsets": some[:1] * 2}), 416)
    assert [one["error_code"] for one in both["offsets"]] == [416, 416]
    error_of(http.post(path, json={"offsets": [{"partition": 9, "before_offset": 0}]}), 404)
    error_of(http.post(path, json={"offsets": []}), 400)


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(app: App) -> None:
    app.log.create_topic("t", configs={"cleanup.policy": "compact"})
    body = {"offsets": [{"partition": 0, "before_offset": 0}]}
    refused = error_of(app.call("POST", f"{TOPICS}/t/records:delete", json=body), 400)
    assert refused["error"] == "POLICY_VIOLATION"
    assert refused["message"] == "t-0: cleanup.policy has no `delete`, so no records may be deleted"


def test_a_plan_is_applied_once_and_then_refused(app: App) -> None:
    app.log.create_topic("t")
    append_one_by_one(app.log, "t", ["1", "2", "3"])
    path = f"{TOPICS}/t/partitions/0"
    before = app.call("GET", f"{path}/segments").json()
    assert [one["base_offset"] for one in before["data"]] == [0, 1, 2]
    plan = rewrite(app.log, "t", PlanKind.MERGE, app.log.partition("t", 0).state.files)
    (added,) = plan.adds
    names = ("path", "size", "base_offset", "end_offset", "records", "min_ms", "max_ms", "modified_ms")
    body = {
        "plan_id": plan.plan_id,
        "kind": "merge",
        "base_version": before["metadata"]["version"],
        "removes": [one["path"] for one in before["data"]],
        "adds": [{name: getattr(added, name) for name in (*names, "file_crc", "footer_crc")}],
    }
    done = app.call("POST", f"{path}/plans", json=body).json()
    assert app.call("POST", f"{path}/plans", json=body).json() == done
    (live,) = app.call("GET", f"{path}/segments").json()["data"]
    assert (live["records"], live["state"]) == (3, "live")
    refused = app.call("POST", f"{path}/plans", json=body | {"plan_id": "another"})
    assert "not live any more" in error_of(refused, 409)["message"]
    error_of(app.call("POST", f"{path}/plans", json=body | {"kind": "burn"}), 400)
