"""v2 consumer instances over HTTP."""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sluice.log_store.tokens_admin import issue
from tests.http.checks import error_of
from tests.http.conftest import App
from tests.support.server import Server, running

PATIENCE_S = 60.0
V2 = "application/vnd.kafka.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
QUICK = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
    "SLUICE_OFFSETS_TOPIC_NUM_PARTITIONS": "2",
    "SLUICE_CONSUMER_INSTANCE_TIMEOUT_MS": "4000",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("consumers_v2") / "root", **QUICK) as found:
        yield found


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


class Api:
    """One instance, by the addresses that it was given."""

    def __init__(self, http: httpx.Client, group: str, **config: Any) -> None:
        settings = {"format": "json", "auto.offset.reset": "earliest"} | config
        made = http.post(f"/consumers/{group}", json=settings, headers={"Content-Type": V2})
        assert made.status_code == 200, made.text
        self.http, self.name, self.base = http, made.json()["instance_id"], made.json()["base_uri"]

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        if body is not None:
            options["json"] = body
        return self.http.request(method, f"{self.base}{path}", **options)

    def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        response = self.call(method, path, body, **options)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def poll(self, timeout: int = 200, **more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ok("GET", "/records", params={"timeout": timeout, **more})
        return found

    @property
    def assigned(self) -> set[int]:
        return {one["partition"] for one in self.ok("GET", "/assignments")["partitions"]}


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"


def read(api: Api, count: int) -> list[tuple[int, int]]:
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count}"
        found += api.poll()
    return sorted((one["partition"], one["offset"]) for one in found)


def fill(http: httpx.Client, topic: str, count: int, partition: int = 0) -> None:
    body = {"records": [{"key": {"n": n}, "value": {"v": n}, "partition": partition} for n in range(count)]}
    assert http.post(f"/topics/{topic}", json=body).is_success


def place(topic: str, partition: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, **more}


def committed(http: httpx.Client, group: str) -> dict[int, int]:
    rows = http.get(f"/v3/clusters/-/consumer-groups/{group}/offsets").json()["offsets"]
    return {row["partition_id"]: row["offset"] for row in rows}


def test_from_subscribing_to_the_end(http: httpx.Client, topic: str, group: str):
    fill(http, topic, 3)
    one = Api(http, group, name="mine", **{"auto.commit.enable": "false", "fetch.min.bytes": "1"})
    assert one.base.endswith(f"/consumers/{group}/instances/mine")
    assert one.base.startswith("http://")
    assert one.call("POST", "/subscription", {"topics": [topic]}).status_code == 204
    assert one.ok("GET", "/subscription") == {"topics": [topic]}
    until(lambda: one.assigned == {0, 1, 2})
    response = one.call("GET", "/records", headers={"Accept": JSON_RECORDS}, params={"timeout": 5_000})
    assert response.headers["content-type"].startswith(JSON_RECORDS)
    assert [(r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in response.json()] == [
        (topic, 0, n, {"n": n}, {"v": n}) for n in range(3)
    ]
    assert committed(http, group) == {}
    assert {"topic": topic, "partition": 0, "offset": 3, "metadata": ""} in one.ok("POST", "/offsets")
    assert one.call("DELETE", "").status_code == 204
    assert one.call("GET", "/records").json()["error_code"] == 40403
    again = Api(http, group)
    again.ok("POST", "/subscription", {"topics": [topic]})
    fill(http, topic, 1)
    assert read(again, 1) == [(0, 3)]


def test_binary_values_are_base64(http: httpx.Client, topic: str, group: str):
    fill(http, topic, 1)
    one = Api(http, group, format="binary")
    one.ok("POST", "/assignments", {"partitions": [place(topic, 0)]})
    (found,) = one.poll(5_000)
    assert base64.b64decode(found["value"]) == b'{"v":0}'
    refused = one.call("GET", "/records", headers={"Accept": JSON_RECORDS})
    assert (refused.status_code, refused.json()["error_code"]) == (406, 40601)


def test_members_share_out_with_each_other_and_go_when_they_are_left_alone(http, topic: str, group: str):
    one, two = Api(http, group), Api(http, group)
    for api in (one, two):
        api.ok("POST", "/subscription", {"topic_pattern": f"{topic}.*"})
    until(lambda: len(one.assigned | two.assigned) == 3 and len(one.assigned) + len(two.assigned) == 3)
    until(lambda: http.get(f"/v3/clusters/-/consumer-groups/{group}").json()["state"].lower() == "stable")
    until(lambda: one.assigned == {0, 1, 2})  # nobody asks for the other one any more
    assert two.call("GET", "/subscription").json()["error_code"] == 40403


def test_what_stays_is_read_on_through_a_rebalance(http: httpx.Client, topic: str, group: str):
    for partition in range(3):
        fill(http, topic, 2, partition)
    one = Api(http, group, **{"auto.commit.enable": False})
    one.ok("POST", "/subscription", {"topics": [topic]})
    assert len(read(one, 6)) == 6
    two = Api(http, group, **{"auto.commit.enable": False})
    two.ok("POST", "/subscription", {"topics": [topic]})
    until(lambda: len(one.assigned) + len(two.assigned) == 3 and bool(two.assigned))
    moved = read(two, 2 * len(two.assigned))
    assert one.poll(100) == []
    lost = {0, 1, 2} - one.assigned
    assert moved == [(partition, n) for partition in sorted(lost) for n in range(2)]
    refused = one.call("POST", "/offsets", {"offsets": [place(topic, lost.pop(), offset=1)]})
    assert (refused.status_code, refused.json()["error"]) == (409, "REBALANCE_IN_PROGRESS")


def test_positions(http: httpx.Client, topic: str, group: str):
    fill(http, topic, 5)
    one = Api(http, group)
    one.ok("POST", "/assignments", {"partitions": [place(topic, 0)]})
    assert one.ok("GET", "/positions") == {"offsets": [place(topic, 0, offset=0)]}
    one.ok("POST", "/positions", {"offsets": [place(topic, 0, offset=3)]})
    assert read(one, 2) == [(0, 3), (0, 4)]
    one.ok("POST", "/positions/beginning", {"partitions": [place(topic, 0)]})
    assert len(read(one, 5)) == 5
    one.ok("POST", "/positions/end", {"partitions": [place(topic, 0)]})
    assert one.ok("GET", "/positions") == {"offsets": [place(topic, 0, offset=5)]}
    one.ok("POST", "/positions", {"timestamps": [place(topic, 0, timestamp=0)]})
    assert one.ok("GET", "/positions") == {"offsets": [place(topic, 0, offset=0)]}
    assert one.call("POST", "/positions", {"offsets": [place(topic, 1, offset=3)]}).status_code == 400


def test_an_explicit_commit_names_the_last_record_that_was_dealt_with(http: httpx.Client, topic: str, group: str):
    fill(http, topic, 5)
    one = Api(http, group)
    one.ok("POST", "/assignments", {"partitions": [place(topic, 0)]})
    one.ok("POST", "/offsets", {"offsets": [place(topic, 0, offset=2, metadata="so far")]})
    assert committed(http, group) == {0: 3}
    body = {"partitions": [place(topic, 0), place(topic, 1)]}
    assert one.ok("GET", "/offsets", body) == {"offsets": [place(topic, 0, offset=3, metadata="so far")]}
    assert one.ok("GET", "/offsets") == {"offsets": [place(topic, 0, offset=3, metadata="so far")]}


def test_an_instance_commits_what_earlier_polls_handed_out_and_all_of_it_when_it_is_deleted(http, topic, group):
    fill(http, topic, 4)
    one = Api(http, group)
    one.ok("POST", "/subscription", {"topics": [topic]})
    until(lambda: len(one.assigned) == 3)
    first = one.poll(5_000, max_bytes=1)
    rest = read(one, 4 - len(first))
    assert len(first) + len(rest) == 4
    one.ok("DELETE", "/subscription")
    assert one.ok("GET", "/subscription") == {"topics": []}
    assert one.assigned == set()
    assert committed(http, group)[0] < 4
    two = Api(http, group)
    two.ok("POST", "/subscription", {"topics": [topic]})
    assert read(two, 4 - committed(http, group)[0])[-1] == (0, 3)
    two.ok("DELETE", "")
    assert committed(http, group)[0] == 4


def test_a_poll_waits_for_records(http: httpx.Client, server: Server, topic: str, group: str):
    one = Api(http, group)
    one.ok("POST", "/assignments", {"partitions": [place(topic, n) for n in range(3)]})
    assert one.poll(0) == []
    with httpx.Client(base_url=server.url) as other:
        timer = threading.Timer(0.2, lambda: fill(other, topic, 1, 2))
        timer.start()
        assert [(r["partition"], r["offset"]) for r in one.poll(30_000)] == [(2, 0)]
        timer.join()


def test_a_small_answer_leaves_the_rest_for_the_next_one(http: httpx.Client, topic: str, group: str):
    for partition in range(3):
        fill(http, topic, 50, partition)
    one = Api(http, group)
    one.ok("POST", "/assignments", {"partitions": [place(topic, n) for n in range(3)]})
    first = one.poll(1_000, max_bytes=1)
    assert 0 < len(first) < 150
    assert len(first) + len(read(one, 150 - len(first))) == 150


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"format": "avro"}, 422, 42204),
        ({"auto.offset.reset": "smallest"}, 422, 42204),
        ({"fetch.min.bytes": "many"}, 422, 42204),
        ({"consumer.request.timeout.ms": -1}, 422, 42204),
        ({"nmae": "x"}, 422, 42204),
        ({"name": "a/b"}, 422, 42204),
    ],
)
def test_wrong_configs_are_refused(http: httpx.Client, group: str, body, status, code):
    refused = http.post(f"/consumers/{group}", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (status, code)


def test_what_does_not_fit_is_refused(http: httpx.Client, topic: str, group: str):
    one = Api(http, group, name="same")
    taken = http.post(f"/consumers/{group}", json={"name": "same"})
    assert (taken.status_code, taken.json()["error_code"]) == (409, 40902)
    one.ok("POST", "/assignments", {"partitions": [place(topic, 0)]})
    mixed = one.call("POST", "/subscription", {"topics": [topic]})
    assert (mixed.status_code, mixed.json()["error_code"]) == (409, 40903)
    one.ok("DELETE", "/subscription")
    one.ok("POST", "/subscription", {"topics": [topic]})
    mixed = one.call("POST", "/assignments", {"partitions": [place(topic, 0)]})
    assert (mixed.status_code, mixed.json()["error_code"]) == (409, 40903)
    for method, path in [("GET", "/records"), ("DELETE", ""), ("POST", "/offsets"), ("GET", "/positions")]:
        unknown = http.request(method, f"/consumers/{group}/instances/nobody{path}")
        assert (unknown.status_code, unknown.json()["error_code"]) == (404, 40403)
    two = Api(http, group)
    for pattern in ("(", "a" * 1_001, "a{9999}{9999}", r"(a)\1"):
        refused = two.call("POST", "/subscription", {"topic_pattern": pattern})
        assert error_of(refused, 400)["message"].startswith("topic_pattern: "), pattern
    assert two.call("POST", "/subscription", {}).status_code == 400
    missing = two.call("POST", "/assignments", {"partitions": [place("no-such-topic", 0)]})
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40401)


def test_without_a_reset_rule_a_missing_commit_is_an_error(http: httpx.Client, topic: str, group: str):
    one = Api(http, group, **{"auto.offset.reset": "none"})
    one.ok("POST", "/assignments", {"partitions": [place(topic, 0)]})
    assert one.call("GET", "/records").status_code == 416


def test_many_idle_instances_need_no_threads(http: httpx.Client, server: Server, topic: str, group: str):
    before = server.threads
    made = [Api(http, f"{group}-{n}", name="i") for n in range(100)]
    for api in made:
        api.ok("POST", "/subscription", {"topics": [topic]})
    assert server.threads <= before + 40
    until(lambda: made[-1].assigned == {0, 1, 2})
    for api in made:
        api.call("DELETE", "")


def test_a_token_reads_only_what_it_is_granted(app: App):
    app.log.create_topic("orders")
    app.log.create_topic("other")
    now_ms = app.log.runtime.clock.wall_ms()

    def token(*grants: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {issue(app.log.catalog, 'test', grants, now_ms=now_ms).text}"}

    token("admin")
    reader, stranger = token("consume:group:g", "consume:topic:orders"), token("consume:group:h")

    async def work(client: httpx.AsyncClient) -> None:
        base = "/consumers/g/instances/i"
        assert (await client.post("/consumers/g", json={"name": "i"}, headers=stranger)).status_code == 403
        assert (await client.post("/consumers/g", json={"name": "i"}, headers=reader)).status_code == 200
        for path, body in [
            ("/subscription", {"topics": ["other"]}),
            ("/assignments", {"partitions": [place("other", 0)]}),
            ("/offsets", {"offsets": [place("other", 0, offset=1)]}),
        ]:
            refused = await client.post(f"{base}{path}", json=body, headers=reader)
            assert (refused.status_code, refused.json()["error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        await client.post(f"{base}/subscription", json={"topic_pattern": "o.*"}, headers=reader)
        assert (await client.get(f"{base}/subscription", headers=reader)).json() == {"topics": ["orders"]}
        assert (await client.delete(base, headers=reader)).status_code == 204

    app.run(work)


def test_a_pattern_cannot_hold_the_service_up(http: httpx.Client, group: str) -> None:
    """Python's own engine would need longer than anybody lives for this name."""
    name = f"{group}-{'a' * 60}"
    assert http.post("/v3/clusters/-/topics", json={"topic_name": name}).status_code == 201
    api = Api(http, group)
    api.ok("POST", "/subscription", {"topic_pattern": ".*-(a|a|aa)+b"})
    assert api.poll() == []
    assert api.ok("GET", "/assignments") == {"partitions": []}
