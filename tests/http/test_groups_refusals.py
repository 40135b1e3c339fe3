"""Calls about groups that are refused: by name, in our shape, and without leaving a group behind."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.checks import V3, error_of
from tests.http.conftest import App
from tests.http.test_tokens import bearer, make
from tests.support.group_http import GROUPS, Member
from tests.support.server import running

SUBSCRIPTION = {"name": "range", "metadata": {"topics": ["t"]}}


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "body", "status", "error"),
    [
        ("members:join", {"protocols": [], "session_timeout_ms": 50}, 400, "INVALID_SESSION_TIMEOUT"),
        ("members:join", {"protocols": []}, 409, "INCONSISTENT_GROUP_PROTOCOL"),
        ("members:join", {"protocols": [SUBSCRIPTION, SUBSCRIPTION]}, 400, "INVALID_REQUEST"),
        ("members:join", {"protocols": [{"name": "range", "metadata": {"topics": "t"}}]}, 400, "INVALID_REQUEST"),
        ("members:join", {"protocols": [{"name": "range", "metadata": None}]}, 400, "INVALID_REQUEST"),
        ("members:join", {"protocols": [SUBSCRIPTION], "what": 1}, 400, "INVALID_REQUEST"),
        ("members:join", {"protocols": [SUBSCRIPTION], "member_id": "x"}, 404, "UNKNOWN_MEMBER_ID"),
        ("members:join", "[]", 400, "INVALID_REQUEST"),
        ("members:join", "{", 400, "INVALID_REQUEST"),
        ("members:sync", {"member_id": "x", "generation_id": 1}, 404, "UNKNOWN_MEMBER_ID"),
        ("members:sync", {"member_id": "x", "generation_id": "1"}, 400, "INVALID_REQUEST"),
        ("members:heartbeat", {"member_id": "x", "generation_id": 1}, 404, "UNKNOWN_MEMBER_ID"),
        ("members:heartbeat", {"member_id": "x"}, 400, "INVALID_REQUEST"),
        ("members:leave", {"members": []}, 400, "INVALID_REQUEST"),
        ("offsets", {"generation_id": 3, "member_id": "x", "offsets": []}, 409, "ILLEGAL_GENERATION"),
        ("offsets", {"offsets": [{"topic_name": "t", "partition_id": 0}]}, 400, "INVALID_REQUEST"),
        ("offsets", {"offsets": [{"topic_name": "t", "partition_id": 0, "offset": -1}]}, 400, "INVALID_REQUEST"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    http: httpx.Client, group: str, call: str, body: Any, status: int, error: str
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    answer = http.post(f"{GROUPS}/{group}/{call}", content=text, headers={"Content-Type": "application/json"})
    assert error_of(answer, status)["error"] == error
    assert http.get(f"{GROUPS}/{group}").status_code == 404, "a refusal leaves no group behind"


def test_a_strategy_that_there_is_not_is_told_to_the_leader(http: httpx.Client, topic: str, group: str) -> None:
    member = Member(http, group, [topic])
    member.join()
    refused = error_of(member.post("members:sync", **member.identity, strategy="best"), 400)
    assert "range, roundrobin, sticky, cooperative-sticky" in refused["message"]


@pytest.mark.parametrize("name", ["x" * 250, "a%00b"])
def test_a_group_id_that_is_none(http: httpx.Client, name: str) -> None:
    for call, body in (("members:join", {"protocols": [SUBSCRIPTION]}), ("offsets", {"offsets": []})):
        assert error_of(http.post(f"{GROUPS}/{name}/{call}", json=body), 400)["error"] == "INVALID_GROUP_ID"
    assert error_of(http.get(f"{GROUPS}/{name}"), 400)["error"] == "INVALID_GROUP_ID"


def test_another_cluster_is_not_here(http: httpx.Client) -> None:
    body = {"member_id": "x", "generation_id": 1}
    error_of(http.post("/v3/clusters/other/consumer-groups/g/members:heartbeat", json=body), 404)


# --- who may -----------------------------------------------------------------------------------


def test_topics_in_bodies_need_a_grant_of_their_own(app: App) -> None:
    for name in ("mine", "theirs"):
        app.log.create_topic(name)
    make(app, "admin")
    me = make(app, "consume:group:g", "consume:topic:mine")
    join = {"protocols": [{"name": "range", "metadata": {"topics": ["mine", "theirs"]}}]}
    refused = error_of(app.call("POST", f"{GROUPS}/g/members:join", json=join, headers=me), 403)
    assert refused["error"] == "TOPIC_AUTHORIZATION_FAILED"
    rows = [{"topic_name": name, "partition_id": 0, "offset": 1} for name in ("mine", "theirs")]
    answer = app.call("POST", f"{GROUPS}/g/offsets", json={"offsets": rows}, headers=me)
    assert answer.status_code == 207
    assert [row["error"] for row in answer.json()["offsets"]] == [None, "TOPIC_AUTHORIZATION_FAILED"]
    reset = {"to_earliest": True, "topics": ["theirs"]}
    admin = make(app, "admin:group:g", "consume:topic:mine")
    error_of(app.call("POST", f"{GROUPS}/g/offsets:reset", json=reset, headers=admin), 403)
    error_of(app.call("POST", f"{GROUPS}/g/offsets:reset", json=reset, headers=me), 403)


def test_lists_show_only_what_may_be_seen(app: App) -> None:
    app.log.create_topic("t")
    admin = make(app, "admin")
    body = {"offsets": [{"topic_name": "t", "partition_id": 0, "offset": 1}]}
    for name in ("mine", "theirs"):
        assert app.call("POST", f"{GROUPS}/{name}/offsets", json=body, headers=admin).status_code == 200
    me = make(app, "consume:group:mine")
    shown = app.call("GET", GROUPS, headers=me).json()["data"]
    assert [one["consumer_group_id"] for one in shown] == ["mine"]
    assert app.call("GET", f"{GROUPS}/mine/offsets", headers=me).json() == {"offsets": []}
    assert app.call("GET", f"{GROUPS}/mine/lags", headers=me).json()["data"] == []


def test_the_shortcut_of_plain_commits_asks_for_the_same_grants(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server:
        http = server.client
        for name in ("mine", "theirs"):
            http.post(f"{V3}/topics", json={"topic_name": name})
        root = bearer(http.post(f"{V3}/tokens", json={"name": "root", "grants": ["admin"]}).json()["token"])
        grants = {"name": "me", "grants": ["consume:group:g", "consume:topic:mine"]}
        made = http.post(f"{V3}/tokens", json=grants, headers=root).json()
        me = bearer(made["token"])

        def commit(group: str, topic: str, headers: dict[str, str]) -> httpx.Response:
            body = {"offsets": [{"topic_name": topic, "partition_id": 0, "offset": 1}]}
            return http.post(f"{GROUPS}/{group}/offsets", json=body, headers=headers)

        assert [commit("g", "mine", me).status_code for _ in range(2)] == [200, 200]
        refused = commit("g", "theirs", me)
        assert refused.status_code == 403
        assert refused.json()["offsets"][0]["error"] == "TOPIC_AUTHORIZATION_FAILED"
        assert error_of(commit("other", "mine", me), 403)["error"] == "GROUP_AUTHORIZATION_FAILED"
        error_of(commit("g", "mine", {}), 401)
        beat = {"member_id": "x", "generation_id": 1}
        error_of(http.post(f"{GROUPS}/other/members:heartbeat", json=beat, headers=me), 403)
        assert http.delete(f"{V3}/tokens/{made['token_id']}", headers=root).status_code == 204
        error_of(commit("g", "mine", me), 401)
