"""The group protocol over HTTP: members come, share the partitions, go, and survive a restart of the service."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.http.checks import V3, error_of
from tests.support.group_http import GROUPS, QUICK_GROUPS, Member, committed, together
from tests.support.logs import eventually
from tests.support.server import Server, running

SUBSCRIPTION = {"name": "range", "metadata": {"topics": ["t"]}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("groups") / "root", **QUICK_GROUPS) as found:
        yield found


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def all_of(topic: str) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(3)}


def state(http: httpx.Client, group: str) -> str | None:
    answer = http.get(f"{GROUPS}/{group}")
    return answer.json()["state"] if answer.status_code == 200 else None


# --- three members -----------------------------------------------------------------------------


def test_three_members_share_a_topic_and_two_take_over_when_one_leaves(
    http: httpx.Client, topic: str, group: str
) -> None:
    members = [Member(http, group, [topic]) for _ in range(3)]
    owned = together(members)
    assert [len(one) for one in owned] == [1, 1, 1]
    assert set.union(*owned) == all_of(topic)
    assert len({member.generation for member in members}) == 1
    assert all(member.heartbeat().json() == {} for member in members)

    gone, *rest = members
    left = gone.leave()
    assert left.status_code == 200
    assert left.json() == {
        "members": [{"member_id": gone.member_id, "group_instance_id": None, "error_code": None, "error": None}]
    }
    told = error_of(rest[0].heartbeat(), 409)
    assert (told["error"], told["retriable"]) == ("REBALANCE_IN_PROGRESS", False)
    assert set.union(*together(rest)) == all_of(topic)
    assert {member.generation for member in rest} == {gone.generation + 1}
    assert error_of(gone.heartbeat(), 404)["error"] == "UNKNOWN_MEMBER_ID"


def test_only_the_leader_hears_who_the_members_are(http: httpx.Client, topic: str, group: str) -> None:
    members = [Member(http, group, [topic]) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(Member.join, members))
    leaders = [body for body in answers if body["members"]]
    (leader,) = leaders
    assert leader["leader"] == leader["member_id"]
    assert {one["member_id"] for one in leader["members"]} == {member.member_id for member in members}
    assert leader["members"][0]["metadata"] == {"topics": [topic]}
    assert (leader["protocol_type"], leader["protocol_name"]) == ("consumer", "range")


def test_a_leader_may_bring_the_assignment_itself(http: httpx.Client, topic: str, group: str) -> None:
    member = Member(http, group, [topic])
    member.join()
    mine = [{"member_id": member.member_id, "assignment": [[topic, 2], ["elsewhere", 0]]}]
    answer = member.post("members:sync", **member.identity, assignments=mine)
    assert answer.json() == {
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": [[topic, 2], ["elsewhere", 0]],
    }


def test_other_kinds_of_groups_keep_what_they_say(http: httpx.Client, group: str) -> None:
    body: dict[str, Any] = {"protocol_type": "connect", "protocols": [{"name": "v1", "metadata": {"url": "x"}}]}
    needed = http.post(f"{GROUPS}/{group}/members:join", json=body).json()["details"]["member_id"]
    joined = http.post(f"{GROUPS}/{group}/members:join", json=body | {"member_id": needed}).json()
    assert joined["members"][0]["metadata"] == {"url": "x"}
    assigned = {"member_id": needed, "generation_id": 1, "assignments": [{"member_id": needed, "assignment": {"a": 1}}]}
    assert http.post(f"{GROUPS}/{group}/members:sync", json=assigned).json()["assignment"] == {"a": 1}


def test_a_subscription_and_an_assignment_have_a_limit(http: httpx.Client, topic: str, group: str) -> None:
    large = {"topics": [topic], "user_data": "x" * (1 << 20)}
    join = {"protocols": [{"name": "range", "metadata": large}]}
    answer = http.post(f"{GROUPS}/{group}/members:join", json=join)
    assert error_of(answer, 413)["error"] == "MESSAGE_TOO_LARGE"
    member = Member(http, group, [topic])
    member.join()
    mine = [{"member_id": member.member_id, "assignment": [[topic, n] for n in range(100_000)]}]
    answer = member.post("members:sync", **member.identity, assignments=mine)
    assert error_of(answer, 413)["details"] == {"limit": 1 << 20}


# --- static members, sessions ------------------------------------------------------------------


def test_a_static_member_that_starts_again_keeps_what_it_read(http: httpx.Client, topic: str, group: str) -> None:
    first, second = members = [Member(http, group, [topic], instance=name) for name in ("a", "b")]
    together(members)
    again = Member(http, group, [topic], instance="a")
    assert again.enter() == first.owned
    assert again.generation == first.generation
    assert again.member_id != first.member_id
    assert second.heartbeat().status_code == 200
    assert error_of(first.heartbeat(), 409)["error"] == "FENCED_INSTANCE_ID"
    assert error_of(first.commit(topic, 0, 1), 409)["error"] == "FENCED_INSTANCE_ID"


def test_who_is_silent_for_its_session_is_removed(http: httpx.Client, topic: str, group: str) -> None:
    silent, alive = members = [Member(http, group, [topic], session_ms=ms) for ms in (2_000, 20_000)]
    together(members)
    eventually(lambda: alive.heartbeat().status_code == 409)
    assert alive.enter() == all_of(topic)
    assert error_of(silent.heartbeat(), 404)["error"] == "UNKNOWN_MEMBER_ID"


def test_an_administrator_removes_a_static_member_by_its_name(http: httpx.Client, topic: str, group: str) -> None:
    member = Member(http, group, [topic], instance="a")
    member.enter()
    left = member.post("members:leave", members=[{"group_instance_id": "a"}, {"group_instance_id": "none"}])
    assert [(one["error_code"], one["error"]) for one in left.json()["members"]] == [
        (None, None),
        (40403, "UNKNOWN_MEMBER_ID"),
    ]
    assert state(http, group) == "EMPTY"


# --- waiting -----------------------------------------------------------------------------------


def test_waiting_joins_cost_no_thread_and_a_stop_answers_them(tmp_path: Path) -> None:
    slow = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "60000"}
    with running(tmp_path / "root", **slow) as server, ThreadPoolExecutor(30) as pool:
        server.client.post(f"{V3}/topics", json={"topic_name": "t"})
        body = {"protocols": [SUBSCRIPTION]}
        url = f"{GROUPS}/g/members:join"
        ids = [server.client.post(url, json=body).json()["details"]["member_id"] for _ in range(30)]
        before = server.threads

        def join(member_id: str) -> httpx.Response:
            return httpx.post(f"{server.url}{url}", json=body | {"member_id": member_id}, timeout=90)

        waiting = [pool.submit(join, member_id) for member_id in ids]

        def arrived() -> bool:
            return "sluice_long_polls_waiting 30" in server.client.get("/metrics").text

        eventually(arrived)
        assert server.threads < before + 25, "pools may have grown, but not with the waiting"
        assert state(server.client, "g") == "PREPARING_REBALANCE"
        assert server.terminate() == 0
        for one in waiting:
            told = error_of(one.result(), 503)
            assert (told["error"], told["retriable"]) == ("NOT_COORDINATOR", True)


def test_who_hangs_up_while_it_waits_does_not_hold_up_the_others(
    server: Server, http: httpx.Client, topic: str, group: str
) -> None:
    stays, goes = members = [Member(http, group, [topic], session_ms=ms) for ms in (20_000, 2_000)]
    together(members)
    host, port = server.url.removeprefix("http://").split(":")
    body = {"member_id": goes.member_id, "session_timeout_ms": 2_000, "rebalance_timeout_ms": 60_000}
    text = json.dumps(body | {"protocols": [{"name": "range", "metadata": {"topics": [topic, "more"]}}]})
    head = f"POST {GROUPS}/{group}/members:join HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as wire:
        wire.sendall((head + text).encode())
        eventually(lambda: state(http, group) == "PREPARING_REBALANCE")
    eventually(lambda: "sluice_long_polls_waiting 0" in http.get("/metrics").text)
    # It counts as not joined; its session is over long before the rebalance timeout of a minute.
    assert stays.enter() == all_of(topic)


# --- a restart ---------------------------------------------------------------------------------


def test_a_restart_is_noticed_by_no_member(tmp_path: Path) -> None:
    with running(tmp_path / "root", **QUICK_GROUPS) as server:
        server.client.post(f"{V3}/topics", json={"topic_name": "t", "partitions_count": 3})
        members = [Member(server.client, "g", ["t"]) for _ in range(2)]
        together(members)
        for offset, stop in enumerate((server.kill, server.terminate)):
            assert members[0].commit("t", 0, offset).status_code == 200
            stop()
            server.start()
            for member in members:
                member.http = server.client
                assert member.heartbeat().status_code == 200, member.heartbeat().text
                answer = member.post("members:sync", **member.identity)
                assert {tuple(pair) for pair in answer.json()["assignment"]} == member.owned
            assert committed(server.client, "g") == {("t", 0): offset}
            assert state(server.client, "g") == "STABLE"


# --- what is shown -----------------------------------------------------------------------------


def test_groups_are_listed_and_described(http: httpx.Client, topic: str, group: str) -> None:
    member = Member(http, group, [topic])
    member.enter()
    listed = http.get(GROUPS).json()
    assert listed["kind"] == "KafkaConsumerGroupList"
    assert group in [one["consumer_group_id"] for one in listed["data"]]
    shown = http.get(f"{GROUPS}/{group}").json()
    assert (shown["state"], shown["partition_assignor"], shown["is_simple"]) == ("STABLE", "range", False)
    assert shown["metadata"]["self"].endswith(f"/consumer-groups/{group}")
    (consumer,) = http.get(shown["consumers"]["related"]).json()["data"]
    assert (consumer["consumer_id"], consumer["client_id"]) == (member.member_id, "test")
    assert http.get(consumer["metadata"]["self"]).json() == consumer
    assigned = http.get(consumer["assignments"]["related"]).json()["data"]
    assert [(one["topic_name"], one["partition_id"]) for one in assigned] == sorted(member.owned)
    assert http.get(assigned[0]["partition"]["related"]).status_code == 200


def test_a_group_with_any_name_has_a_working_address(http: httpx.Client, topic: str) -> None:
    name = "größe & co? #1"
    member = Member(http, quote(name, safe=""), [topic])
    member.enter()
    assert member.commit(topic, 0, 3).status_code == 200
    (shown,) = [one for one in http.get(GROUPS).json()["data"] if one["consumer_group_id"] == name]
    assert http.get(shown["metadata"]["self"]).json()["state"] == "STABLE"


def test_a_group_is_deleted_when_it_is_empty(http: httpx.Client, topic: str, group: str) -> None:
    member = Member(http, group, [topic])
    member.enter()
    member.commit(topic, 0, 3)
    assert error_of(http.delete(f"{GROUPS}/{group}"), 409)["error"] == "NON_EMPTY_GROUP"
    member.leave()
    assert http.delete(f"{GROUPS}/{group}").status_code == 204
    assert error_of(http.get(f"{GROUPS}/{group}"), 404)["error"] == "GROUP_ID_NOT_FOUND"
    assert error_of(http.delete(f"{GROUPS}/{group}"), 404)["error_code"] == 40405
    assert committed(http, group) == {}
