"""Batches of a Spark sink over HTTP: appended once, whole or not at all, by whom it is granted."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from itertools import chain
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest

from sluice.api.service import Service
from sluice.log_store import staging
from sluice.log_store.sinks import DAY_MS, KEPT_MS, MAX_BATCH
from tests.http.checks import V3, error_of, fetch
from tests.http.conftest import App
from tests.support.logs import eventually, memory_cluster
from tests.support.server import Server
from tests.support.sinks import ARROW, commit, part_of, renamed, rows_of, staged, uploaded


@pytest.fixture
def query() -> str:
    return str(uuid.uuid4())


def values(http: httpx.Client, topic: str, partition: int = 0) -> list[str]:
    found = fetch(http, topic, partition=partition, max_records=100_000, format="string")
    return [record["value"] for record in found["data"]]


def everything(http: httpx.Client, topic: str, partitions: int = 3) -> list[list[str]]:
    return [values(http, topic, number) for number in range(partitions)]


def done(response: httpx.Response) -> tuple[int, bool]:
    assert response.status_code == 200, response.text
    return response.json()["records"], response.json()["duplicate"]


# --- once ----------------------------------------------------------------------------------------


def test_a_batch_is_appended_once_however_often_it_is_committed(http: httpx.Client, topic: str, query: str) -> None:
    parts = [
        uploaded(http, query, 0, topic, rows_of(["a", "b", "c"], ["k", None, None]), "00000-0-x"),
        uploaded(http, query, 0, topic, rows_of(["d"], ["k"]), "00001-0-y"),
    ]
    assert done(commit(http, query, 0, parts)) == (4, False)
    before = everything(http, topic)
    assert sorted(chain(*before)) == ["a", "b", "c", "d"]
    assert done(commit(http, query, 0, parts)) == (0, True)
    again = [uploaded(http, query, 0, topic, rows_of(["z"]), "00000-1-z")]
    assert done(commit(http, query, 0, again)) == (0, True)
    assert everything(http, topic) == before
    assert http.get(f"{V3}/sinks/{query}").json() == {"query_id": query, "last_batch_id": 0}


def test_keys_go_where_a_producer_would_send_them(http: httpx.Client, topic: str, query: str) -> None:
    keys = [f"k{number}" for number in range(20)]
    body = {"records": [{"key": key, "value": key} for key in keys]}
    rows = rows_of([f'"{key}"' for key in keys], [f'"{key}"' for key in keys])  # as JSON stores them
    part = uploaded(http, query, 0, topic, rows, "p")
    assert http.post(f"/topics/{topic}", json=body).status_code == 200
    done(commit(http, query, 0, [part]))
    for rows in everything(http, topic):
        assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]


def test_records_without_a_key_take_turns_over_all_parts(http: httpx.Client, topic: str, query: str) -> None:
    parts = [uploaded(http, query, 7, topic, rows_of(["1", "2"]), f"p{number}") for number in range(3)]
    done(commit(http, query, 7, parts))
    assert [len(rows) for rows in everything(http, topic)] == [2, 2, 2]


def test_explicit_partitions_headers_and_times_are_kept(http: httpx.Client, topic: str, query: str) -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    stamp = pa.array([1_700_000_000_123_456], pa.timestamp("us", tz="UTC"))
    rows = rows_of(["1"], partition=pa.array([2], pa.int32()), headers=headers, timestamp=stamp)
    done(commit(http, query, 0, [uploaded(http, query, 0, topic, rows, "p")]))
    [record] = http.get(f"{V3}/topics/{topic}/partitions/2/records", params={"offset": 0}).json()["data"]
    assert (record["timestamp"], record["headers"]) == (1_700_000_000_123, [{"name": "h", "value": "MQ=="}])


def test_one_batch_may_go_to_many_topics(http: httpx.Client, topic: str, query: str) -> None:
    other = f"{topic}-other"  # made at the commit, as produce makes it
    parts = [uploaded(http, query, 0, name, rows_of([name]), name) for name in (topic, other)]
    assert done(commit(http, query, 0, parts)) == (2, False)
    assert [*chain(*everything(http, topic))] == [topic]
    assert values(http, other) == [other]


def test_an_empty_batch_is_nothing(http: httpx.Client, query: str) -> None:
    assert done(commit(http, query, 3, [])) == (0, True)
    assert http.get(f"{V3}/sinks/{query}").json()["last_batch_id"] is None


def test_two_queries_do_not_know_of_each_other(http: httpx.Client, topic: str, query: str) -> None:
    for name in (query, f"{query}-2"):
        assert done(commit(http, name, 0, [uploaded(http, name, 0, topic, rows_of(["1"]), "p")])) == (1, False)


def test_what_was_staged_is_gone_when_it_is_done(http: httpx.Client, server: Server, topic: str, query: str) -> None:
    part = uploaded(http, query, 0, topic, rows_of(["1"]), "p")
    uploaded(http, query, 0, topic, rows_of(["2"]), "of-an-attempt-that-lost")
    folder = server.root / staging.batch_folder(query, 0)
    assert len(list(folder.iterdir())) == 2
    done(commit(http, query, 0, [part]))
    assert not folder.exists()


# --- refused: nothing anywhere -------------------------------------------------------------------


def test_one_bad_record_refuses_all_of_the_batch(http: httpx.Client, topic: str, query: str) -> None:
    """In the last part, and of another topic: what came before it is not appended either."""
    small = f"{topic}-small"
    made = {"topic_name": small, "partitions_count": 1, "configs": [{"name": "max.message.bytes", "value": "10"}]}
    assert http.post(f"{V3}/topics", json=made).status_code == 201
    parts = [
        uploaded(http, query, 0, topic, rows_of(["1"]), "p0"),
        uploaded(http, query, 0, small, rows_of(["1", "2" * 11]), "p1"),
    ]
    refused = error_of(commit(http, query, 0, parts), 413)
    assert small in refused["message"]
    assert "max.message.bytes (10): index 1" in refused["message"]
    assert [*everything(http, topic), values(http, small)] == [[], [], [], []]
    assert http.post(
        f"{V3}/topics/{small}/configs:alter", json={"data": [{"name": "max.message.bytes", "value": "20"}]}
    )
    assert done(commit(http, query, 0, parts)) == (3, False)


def test_rules_of_the_topic_are_those_of_produce(http: httpx.Client, topic: str, query: str) -> None:
    compacted = {"data": [{"name": "cleanup.policy", "value": "compact"}]}
    assert http.post(f"{V3}/topics/{topic}/configs:alter", json=compacted).status_code < 300
    part = uploaded(http, query, 0, topic, rows_of(["1"]), "p0")
    assert "needs a key: index 0" in error_of(commit(http, query, 0, [part]), 422)["message"]
    far = uploaded(http, query, 1, topic, rows_of(["1"], ["k"], timestamp=pa.array([250_000_000_000_000])), "p1")
    assert "timestamp" in error_of(commit(http, query, 1, [far]), 422)["message"]
    nowhere = uploaded(http, query, 2, topic, rows_of(["1"], ["k"], partition=pa.array([3], pa.int32())), "p2")
    assert "from 0 to 2, not 3" in error_of(commit(http, query, 2, [nowhere]), 404)["message"]


def test_parts_must_be_what_was_said(http: httpx.Client, topic: str, query: str) -> None:
    part = uploaded(http, query, 0, topic, rows_of(["1"]), "p")
    assert "no " in error_of(commit(http, query, 0, [renamed(part, name="q.http.arrows")]), 400)["message"]
    assert "checksum" in error_of(commit(http, query, 0, [renamed(part, crc=part.crc ^ 1)]), 400)["message"]
    assert "holds 1, not 2" in error_of(commit(http, query, 0, [renamed(part, rows=2)]), 400)["message"]
    assert "twice" in error_of(commit(http, query, 0, [part, part]), 400)["message"]
    assert error_of(commit(http, query, 0, [renamed(part, name="../../cluster.json")]), 400)
    assert error_of(commit(http, query, 0, [renamed(part, topic="__consumer_offsets")]), 400)
    assert error_of(commit(http, ".hidden", 0, [part]), 400)
    assert done(commit(http, query, 0, [part])) == (1, False)


def test_a_part_that_is_no_arrow_is_refused_at_the_commit(http: httpx.Client, topic: str, query: str) -> None:
    path = f"{V3}/topics/{topic}/sinks/{query}/batches/0/parts/p.http.arrows"
    media = {"Content-Type": "application/vnd.apache.arrow.stream"}
    assert http.put(path, content=b"nonsense", headers=media).status_code == 200
    body = pa.py_buffer(b"nonsense")
    assert (
        "Arrow"
        in error_of(commit(http, query, 0, [part_of("p.http.arrows", topic, rows_of(["1"]), body)]), 400)["message"]
    )
    assert error_of(http.put(path, content=b"", headers=media), 400)
    assert error_of(http.put(path, content=b"x", headers={"Content-Type": "text/plain"}), 415)
    assert error_of(http.put(path, content=b"x" * (1 << 21), headers=media), 413)
    assert error_of(http.put(path.replace(".http.", ".direct."), content=b"x", headers=media), 400)
    assert error_of(http.put(path.replace("batches/0", "batches/-1"), content=b"x", headers=media), 400)


def test_an_aborted_batch_leaves_nothing(http: httpx.Client, server: Server, topic: str, query: str) -> None:
    uploaded(http, query, 0, topic, rows_of(["1"]), "p")
    path = f"{V3}/sinks/{query}/batches/0"
    assert http.delete(path).json()["dropped"] is True
    assert not (server.root / staging.batch_folder(query, 0)).exists()
    assert http.delete(path).json()["dropped"] is True


# --- who may -------------------------------------------------------------------------------------


@pytest.fixture
def only_t(app: App) -> dict[str, str]:
    """A token that may produce to t, of a service that has tokens."""
    root = app.call("POST", f"{V3}/tokens", json={"name": "root", "grants": ["admin"]}).json()["token"]
    made = app.call(
        "POST",
        f"{V3}/tokens",
        json={"name": "one", "grants": ["produce:topic:t"]},
        headers={"Authorization": f"Bearer {root}"},
    )
    return {"Authorization": f"Bearer {made.json()['token']}"}


def test_each_topic_of_a_batch_must_be_granted(app: App, only_t: dict[str, str], query: str) -> None:
    store = app.log.runtime.store
    mine = staged(store, query, 0, "t", rows_of(["1"]), "a")
    other = staged(store, query, 0, "u", rows_of(["1"]), "b")

    def posted(*parts: staging.Part) -> httpx.Response:
        body = {"parts": [{n: getattr(p, n) for n in p.__struct_fields__} for p in parts]}
        return app.call("POST", f"{V3}/sinks/{query}/batches/0", json=body, headers=only_t)

    assert error_of(posted(mine, other), 403)["error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert app.log.catalog.state.find("u") is None
    assert done(posted(mine)) == (1, False)
    part = f"{V3}/topics/u/sinks/{query}/batches/0/parts/x.http.arrows"
    assert error_of(app.call("PUT", part, content=b"x", headers=only_t), 403)


class Users:
    """Tokens of a service by the names of their users, and the calls of a sink with them."""

    def __init__(self, app: App) -> None:
        self._app = app
        root = app.call("POST", f"{V3}/tokens", json={"name": "root", "grants": ["admin"]}).json()["token"]
        self._headers = {"root": {"Authorization": f"Bearer {root}"}}

    def token(self, name: str, *grants: str) -> None:
        made = self.call("root", "POST", "tokens", json={"name": name, "grants": grants})
        self._headers[name] = {"Authorization": f"Bearer {made.json()['token']}"}

    def call(self, name: str, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self._headers[name] | options.pop("headers", {})
        return self._app.call(method, f"{V3}/{path}", headers=headers, **options)

    def commit(self, name: str, query: str, batch: int, topic: str) -> httpx.Response:
        part = staged(self._app.log.runtime.store, query, batch, topic, rows_of(["1"]), f"of-{name}")
        body = {"parts": [msgspec.structs.asdict(part)]}
        return self.call(name, "POST", f"sinks/{query}/batches/{batch}", json=body)

    def upload(self, name: str, query: str, topic: str) -> httpx.Response:
        path = f"topics/{topic}/sinks/{query}/batches/0/parts/p.http.arrows"
        return self.call(name, "PUT", path, content=b"x", headers={"Content-Type": ARROW})


@pytest.fixture
def users(app: App) -> Users:
    """alice may produce to orders, mallory to other."""
    found = Users(app)
    found.token("alice", "produce:topic:orders")
    found.token("mallory", "produce:topic:other")
    return found


def test_a_batch_of_another_user_is_not_taken_for_ones_own(app: App, users: Users) -> None:
    """An answer of success for rows that are not in the log would be a loss that nobody sees."""
    assert done(users.commit("mallory", "orders-copy", MAX_BATCH, "other")) == (1, False)
    refused = error_of(users.commit("alice", "orders-copy", 0, "orders"), 403)
    assert refused["error"] == "CLUSTER_AUTHORIZATION_FAILED"
    assert "another user" in refused["message"]
    assert done(users.commit("alice", "orders-copy-2", 0, "orders")) == (1, False)
    assert app.log.partition("orders", 0).high_watermark == 1


def test_a_query_belongs_to_whoever_began_it(app: App, users: Users, query: str) -> None:
    assert users.upload("alice", query, "orders").status_code == 200
    assert error_of(users.upload("mallory", query, "other"), 403)
    assert error_of(users.commit("mallory", query, 7, "other"), 403)
    assert error_of(users.call("mallory", "DELETE", f"sinks/{query}/batches/0"), 403)
    assert error_of(users.call("mallory", "GET", f"sinks/{query}"), 403)
    part = staging.part_path(query, 0, "p.http.arrows")
    assert app.log.runtime.store.get(part) == b"x"
    assert users.call("root", "GET", f"sinks/{query}").json()["last_batch_id"] is None
    assert users.call("alice", "DELETE", f"sinks/{query}/batches/0").json()["dropped"] is True
    # What tasks wrote to storage themselves is nobody's before the first commit, so nobody may throw it away.
    staged(app.log.runtime.store, "direct", 0, "orders", rows_of(["1"]), "p")
    assert users.call("mallory", "DELETE", "sinks/direct/batches/0").json()["dropped"] is False
    assert done(users.commit("alice", "direct", 0, "orders")) == (1, False)


def test_a_new_token_of_the_same_name_goes_on_with_the_query(app: App, users: Users, query: str) -> None:
    assert done(users.commit("alice", query, 0, "orders")) == (1, False)
    users.token("alice", "produce:topic:orders")
    app.service.sinks.owners.forget()  # as after a restart
    assert done(users.commit("alice", query, 0, "orders")) == (0, True)
    assert done(users.commit("alice", query, 1, "orders")) == (1, False)
    assert done(users.commit("root", query, 1, "orders")) == (0, True)
    assert error_of(users.commit("mallory", query, 2, "other"), 403)
    # An admin of the storage may give it away.
    app.log.runtime.store.replace(f"{staging.MARKS}/{query}/{staging.OWNER}", b"mallory\n")
    assert done(users.commit("mallory", query, 2, "other")) == (1, False)
    assert error_of(users.commit("alice", query, 3, "orders"), 403)


def test_an_owner_is_forgotten_with_the_query_and_not_before(app: App, users: Users, query: str) -> None:
    store = app.log.runtime.store
    assert users.upload("alice", query, "orders").status_code == 200
    now = store.stat(staging.part_path(query, 0, "p.http.arrows")).modified_ms
    staging.sweep(store, now + KEPT_MS + 60_000, 2 * KEPT_MS)
    assert staging.owner_of(store, query) == "alice"  # its part is still there
    staging.sweep(store, now + DAY_MS + 60_000, DAY_MS)
    assert staging.owner_of(store, query) == "alice"
    staging.sweep(store, now + KEPT_MS + 60_000, DAY_MS)
    assert staging.owner_of(store, query) is None


def test_a_query_from_before_there_were_tokens_goes_on(app: App, query: str) -> None:
    assert done(post(app, query, 0, [staged(app.log.runtime.store, query, 0, "orders", rows_of(["1"]), "p")])) == (
        1,
        False,
    )
    users = Users(app)
    users.token("alice", "produce:topic:orders")
    assert done(users.commit("alice", query, 0, "orders")) == (0, True)
    assert done(users.commit("alice", query, 1, "orders")) == (1, False)


def test_parts_that_bypass_the_service_count_when_they_are_committed(app: App, query: str) -> None:
    limit = {"entries": [{"entity": {"client_id": "me"}, "values": {"producer_byte_rate": 1}}]}
    assert app.call("POST", f"{V3}/quotas", json=limit).status_code == 200

    def committed(batch: int) -> httpx.Response:
        part = staged(app.log.runtime.store, query, batch, "t", rows_of(["1"]), "p")
        body = {"parts": [{n: getattr(part, n) for n in part.__struct_fields__}]}
        return app.call("POST", f"{V3}/sinks/{query}/batches/{batch}", json=body, headers={"Sluice-Client-Id": "me"})

    assert int(committed(0).headers["Sluice-Throttle-Time-Ms"]) > 0
    assert error_of(committed(1), 429)["error"] == "THROTTLING_QUOTA_EXCEEDED"


# --- it takes long, and what is left behind ------------------------------------------------------


def post(app: App, query: str, batch: int, parts: list[staging.Part]) -> httpx.Response:
    body = {"parts": [msgspec.structs.asdict(part) for part in parts]}
    return app.call("POST", f"{V3}/sinks/{query}/batches/{batch}", json=body)


def test_a_commit_that_takes_long_goes_on_and_a_repeat_hears_its_end(query: str) -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        settings = replace(cluster.settings, server=replace(cluster.settings.server, request_timeout_ms=100))
        app = App(Service(log, settings))
        log.create_topic("t", partitions=1)
        parts = [staged(cluster.store, query, 0, "t", rows_of(["1", "2"]), "p")]
        with cluster.store.gate("put_if_absent", "topics/t/0/_delta_log/*") as gate:
            assert error_of(post(app, query, 0, parts), 504)["error"] == "REQUEST_TIMED_OUT"
            gate.wait()
            assert error_of(post(app, query, 0, parts), 504)["retriable"]
            assert "still being appended" in error_of(post(app, query, 1, []), 429)["message"]
            assert app.call("DELETE", f"{V3}/sinks/{query}/batches/0").json()["dropped"] is False
        eventually(lambda: not app.service.sinks.at_work(query))
        # A tenth of a second may be too short for the answer, too.
        told = eventually(lambda: (found := post(app, query, 0, parts)).status_code == 200 and found)
        assert done(told) == (0, True)
        assert log.partition("t", 0).high_watermark == 2
        app.service.close()


def test_a_batch_may_be_larger_than_a_request(http: httpx.Client, topic: str, query: str) -> None:
    """The limit of this service is 1 MiB."""
    rows = rows_of([f"{number}" + "x" * 1000 for number in range(500)])
    parts = [uploaded(http, query, 0, topic, rows, f"{number:05d}") for number in range(5)]
    assert done(commit(http, query, 0, parts)) == (2500, False)
    ends = [http.get(f"/topics/{topic}/partitions/{p}/offsets").json()["end_offset"] for p in range(3)]
    assert sum(ends) == 2500


def test_what_nobody_came_back_for_is_swept(app: App, query: str) -> None:
    store = app.log.runtime.store
    staged(store, query, 0, "t", rows_of(["1"]), "p")
    age_ms = time.time_ns() // 1_000_000 - app.log.runtime.clock.wall_ms()
    app.service.sinks.sweep()
    assert store.list(staging.batch_folder(query, 0))
    app.log.runtime.clock.advance(age_ms / 1000 + 25 * 3600)  # type: ignore[attr-defined]  # the tests' clock
    app.service.sinks.sweep()
    assert not store.list(staging.batch_folder(query, 0))
