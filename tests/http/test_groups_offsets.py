"""Committed offsets over HTTP: commit, look, delete, reset."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from sluice.api import metrics_groups
from tests.http.checks import V3, error_of
from tests.http.conftest import App
from tests.support.group_http import GROUPS, QUICK_GROUPS, Member, committed
from tests.support.logs import append, batch, eventually
from tests.support.server import Server, running

ORDINARY = {"X-Request-Id": "ordinary"}
"""A header that the shortcut of plain commits does not know."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("offsets") / "root", **QUICK_GROUPS) as found:
        yield found


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def row(topic: str, partition: int, offset: int, **more: Any) -> dict[str, Any]:
    return {"topic_name": topic, "partition_id": partition, "offset": offset, **more}


def commit(http: httpx.Client, group: str, *rows: dict[str, Any], **more: Any) -> httpx.Response:
    headers = more.pop("headers", None)
    return http.post(f"{GROUPS}/{group}/offsets", json={"offsets": list(rows), **more}, headers=headers)


# --- commit and look ---------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, ORDINARY], ids=["shortcut", "ordinary"])
def test_what_is_committed_is_there(http: httpx.Client, topic: str, group: str, headers: dict[str, str] | None) -> None:
    answer = commit(http, group, row(topic, 0, 5, metadata="håy"), row(topic, 2, 7), headers=headers)
    assert answer.status_code == 200
    assert [one["error"] for one in answer.json()["offsets"]] == [None, None]
    assert [one["partition_id"] for one in answer.json()["offsets"]] == [0, 2]
    found = http.get(f"{GROUPS}/{group}/offsets").json()["offsets"]
    assert [(one["partition_id"], one["offset"], one["metadata"]) for one in found] == [(0, 5, "håy"), (2, 7, "")]
    assert abs(found[0]["commit_timestamp"] - datetime.now(UTC).timestamp() * 1000) < 60_000
    assert http.get(f"{GROUPS}/{group}").json()["is_simple"] is True


def test_offsets_of_one_topic(http: httpx.Client, topic: str, group: str) -> None:
    commit(http, group, row(topic, 0, 5))
    assert len(http.get(f"{GROUPS}/{group}/offsets", params={"topic": topic}).json()["offsets"]) == 1
    assert http.get(f"{GROUPS}/{group}/offsets", params={"topic": "other"}).json() == {"offsets": []}


def test_a_group_that_nobody_knows_has_committed_nothing(http: httpx.Client, group: str) -> None:
    assert committed(http, group) == {}


def test_one_bad_partition_does_not_spoil_the_others(http: httpx.Client, topic: str, group: str) -> None:
    answer = commit(http, group, row(topic, 0, 5), row(topic, 9, 5), row(topic, 1, 5, metadata="x" * 4097))
    assert answer.status_code == 207
    outcomes = answer.json()["offsets"]
    assert [one["error"] for one in outcomes] == [None, "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_METADATA_TOO_LARGE"]
    assert [one["error_code"] for one in outcomes] == [None, 40403, 40002]
    assert committed(http, group) == {(topic, 0): 5}


@pytest.mark.parametrize(
    ("where", "more", "status"), [(9, {}, 404), (0, {"metadata": "ø" * 2049}, 400)], ids=["unknown", "too large"]
)
def test_when_all_fail_so_does_the_request(
    http: httpx.Client, topic: str, group: str, where: int, more: dict[str, str], status: int
) -> None:
    answer = commit(http, group, row(topic, where, 5, **more))
    assert answer.status_code == status
    assert answer.json()["offsets"][0]["error_code"] // 100 == status
    assert error_of(answer, status)["message"] == answer.json()["offsets"][0]["message"]
    assert http.get(f"{GROUPS}/{group}").status_code == 404


def test_a_stale_generation_commits_nothing(http: httpx.Client, topic: str, group: str) -> None:
    member = Member(http, group, [topic])
    member.enter()
    assert member.commit(topic, 0, 1).status_code == 200
    member.generation -= 1
    told = error_of(member.commit(topic, 0, 2), 409)
    assert (told["error"], told["retriable"]) == ("ILLEGAL_GENERATION", False)
    assert error_of(commit(http, group, row(topic, 0, 3)), 404)["error"] == "UNKNOWN_MEMBER_ID"
    assert committed(http, group) == {(topic, 0): 1}


def test_spark_queries_leave_their_name(http: httpx.Client, topic: str, group: str) -> None:
    assert commit(http, group, row(topic, 0, 5, leader_epoch=3), query="q-1", batch=12).status_code == 200
    (found,) = http.get(f"{GROUPS}/{group}/offsets").json()["offsets"]
    assert (found["query"], found["batch"], found["leader_epoch"]) == ("q-1", 12, 3)


def test_a_topic_that_was_made_anew_has_no_commit(http: httpx.Client, topic: str, group: str) -> None:
    """R-8."""
    commit(http, group, row(topic, 0, 5))
    assert http.delete(f"{V3}/topics/{topic}").status_code == 204
    assert committed(http, group) == {}
    http.post(f"{V3}/topics", json={"topic_name": topic, "partitions_count": 3})
    assert committed(http, group) == {}
    eventually(lambda: http.get(f"{GROUPS}/{group}").status_code == 404)


# --- delete ------------------------------------------------------------------------------------


def delete(http: httpx.Client, group: str, *places: tuple[str, int]) -> httpx.Response:
    rows = [{"topic_name": topic, "partition_id": partition} for topic, partition in places]
    return http.request("DELETE", f"{GROUPS}/{group}/offsets", json={"offsets": rows})


def test_offsets_can_be_deleted(http: httpx.Client, topic: str, group: str) -> None:
    commit(http, group, row(topic, 0, 5), row(topic, 1, 6))
    assert delete(http, group, (topic, 0), (topic, 2)).status_code == 200
    assert committed(http, group) == {(topic, 1): 6}
    assert error_of(delete(http, "none", (topic, 0)), 404)["error"] == "GROUP_ID_NOT_FOUND"


def test_offsets_that_members_use_stay(http: httpx.Client, topic: str, group: str) -> None:
    http.post(f"{V3}/topics", json={"topic_name": f"{topic}-other"})
    commit(http, group, row(topic, 0, 5), row(f"{topic}-other", 0, 6))
    Member(http, group, [topic]).enter()
    answer = delete(http, group, (topic, 0), (f"{topic}-other", 0))
    assert answer.status_code == 207
    assert [one["error"] for one in answer.json()["offsets"]] == ["GROUP_SUBSCRIBED_TO_TOPIC", None]
    assert committed(http, group) == {(topic, 0): 5}


# --- reset -------------------------------------------------------------------------------------


def reset(http: httpx.Client, group: str, **body: Any) -> dict[str, Any]:
    answer = http.post(f"{GROUPS}/{group}/offsets:reset", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def filled(http: httpx.Client, topic: str) -> str:
    """Ten records in partition 0, from the years 2001 to 2010."""
    stamps = [int(datetime(2001 + n, 1, 1, tzinfo=UTC).timestamp() * 1000) for n in range(10)]
    records = [{"value": n, "timestamp": ms} for n, ms in enumerate(stamps)]
    assert http.post(f"/topics/{topic}/partitions/0", json={"records": records}).status_code == 200
    return topic


@pytest.mark.parametrize(
    ("scenario", "new"),
    [
        ({"to_earliest": True}, 0),
        ({"to_latest": True}, 10),
        ({"to_current": True}, 4),
        ({"to_offset": 7}, 7),
        ({"to_offset": 99}, 10),
        ({"shift_by": -3}, 1),
        ({"shift_by": -9}, 0),
        ({"to_datetime": "2005-06-01T00:00:00.000"}, 5),
        ({"to_datetime": "2020-01-01T00:00:00Z"}, 10),
        ({"by_duration": "P365D"}, 10),
        ({"by_duration": "P36500D"}, 0),
    ],
    ids=str,
)
def test_a_reset_moves_a_group(http: httpx.Client, filled: str, group: str, scenario: dict[str, Any], new: int) -> None:
    commit(http, group, row(filled, 0, 4))
    plan = [{"topic_name": filled, "partition_id": 0, "current_offset": 4, "new_offset": new}]
    assert reset(http, group, topics=[f"{filled}:0"], **scenario) == {"plan": plan, "executed": False}
    assert committed(http, group) == {(filled, 0): 4}, "a dry run is the default"
    done = reset(http, group, topics=[f"{filled}:0"], dry_run=False, **scenario)
    assert done == {"plan": plan, "executed": True}
    assert committed(http, group) == {(filled, 0): new}


def test_a_whole_topic_all_topics_and_files(http: httpx.Client, filled: str, group: str) -> None:
    whole = reset(http, group, topics=[filled], to_latest=True, dry_run=False)["plan"]
    assert [(one["partition_id"], one["current_offset"], one["new_offset"]) for one in whole] == [
        (0, None, 10),
        (1, None, 0),
        (2, None, 0),
    ]
    assert len(reset(http, group, all_topics=True, to_earliest=True)["plan"]) == 3
    text = f'"{filled}",0,3\n{filled},1,99\n'
    assert [one["new_offset"] for one in reset(http, group, from_file=text)["plan"]] == [3, 0]
    exported = reset(http, group, all_topics=True, to_current=True)["plan"]
    assert reset(http, group, from_file=exported, dry_run=False)["executed"] is True
    nothing = reset(http, group, from_file=f"other,{filled},0,3")
    assert nothing["plan"] == []
    assert "nothing to reset" in nothing["message"]


def test_a_group_with_members_is_not_moved(http: httpx.Client, filled: str, group: str) -> None:
    member = Member(http, group, [filled])
    member.enter()
    member.commit(filled, 0, 4)
    body = {"topics": [filled], "to_earliest": True, "dry_run": False}
    told = error_of(http.post(f"{GROUPS}/{group}/offsets:reset", json=body), 409)
    assert told["error"] == "NON_EMPTY_GROUP"
    assert "Stable" in told["message"]
    assert committed(http, group) == {(filled, 0): 4}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topics": ["T"]}, 400),
        ({"topics": ["T"], "to_earliest": True, "to_latest": True}, 400),
        ({"to_earliest": True}, 400),
        ({"topics": ["T"], "to_datetime": "tomorrow"}, 400),
        ({"topics": ["T"], "by_duration": "1h"}, 400),
        ({"topics": ["T"], "shift_by": 1}, 400),
        ({"topics": ["T:9"], "to_earliest": True}, 404),
        ({"topics": ["T-none"], "to_earliest": True}, 404),
        ({"topics": ["T"], "to_earliest": True, "execute": True}, 400),
    ],
    ids=str,
)
def test_a_reset_that_makes_no_sense(
    http: httpx.Client, topic: str, group: str, body: dict[str, Any], status: int
) -> None:
    if "topics" in body:
        body = body | {"topics": [text.replace("T", topic) for text in body["topics"]]}
    assert error_of(http.post(f"{GROUPS}/{group}/offsets:reset", json=body), status)["retriable"] is (status == 404)
    assert http.get(f"{GROUPS}/{group}").status_code == 404


# --- lag ---------------------------------------------------------------------------------------


def test_lag_is_shown_by_partition_and_all_in_all(http: httpx.Client, filled: str, group: str) -> None:
    commit(http, group, row(filled, 0, 4), row(filled, 1, 0))
    lags = http.get(f"{GROUPS}/{group}/lags").json()
    assert lags["kind"] == "KafkaConsumerLagList"
    first, second = lags["data"]
    assert (first["lag"], first["current_offset"], first["log_end_offset"]) == (6, 4, 10)
    age = datetime.now(UTC).timestamp() - datetime(2005, 1, 1, tzinfo=UTC).timestamp()
    assert first["lag_seconds"] == pytest.approx(age, abs=60)
    assert (second["lag"], second["lag_seconds"]) == (0, 0)
    assert http.get(first["metadata"]["self"]).json()["lag"] == 6
    error_of(http.get(f"{GROUPS}/{group}/lags/{filled}/partitions/2"), 404)
    shown = http.get(f"{GROUPS}/{group}/lag-summary").json()
    assert (shown["max_lag"], shown["total_lag"], shown["max_lag_topic_name"]) == (6, 6, filled)
    assert shown["max_lag_seconds"] == pytest.approx(age, abs=60)
    assert shown["status"] == "OK"
    metrics = http.get("/metrics").text
    labels = f'{{group="{group}",topic="{filled}",partition="0"}}'
    assert f"sluice_group_lag_records{labels} 6" in metrics
    assert f"sluice_group_lag_seconds{labels}" in metrics
    assert f'sluice_group_status{{group="{group}",status="OK"}} 1' in metrics


def test_metrics_of_groups_are_bounded(app: App) -> None:
    app.log.create_topic("t", partitions=5)
    append(app.log, "t", 3, batch("a"))
    body = {"offsets": [row("t", partition, 0) for partition in range(5)]}
    assert app.call("POST", f"{GROUPS}/g/offsets", json=body).status_code == 200
    lines = metrics_groups.lines(app.service.groups, app.service.lags, 2)
    shown = [line for line in lines if line.startswith("sluice_group_lag_records{")]
    assert len(shown) == 2
    assert shown[0] == 'sluice_group_lag_records{group="g",topic="t",partition="3"} 1', "the worst comes first"
    assert "sluice_groups_lag_records 1" in lines
    assert 'sluice_groups{state="EMPTY"} 1' in lines
