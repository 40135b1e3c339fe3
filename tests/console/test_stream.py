"""The stream behind the pages, and their files, over plain HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from sluice.api.console.assets import assets
from tests.console.conftest import Service, started
from tests.http.checks import V3, error_of
from tests.support.group_http import Member
from tests.support.server import running

Event = tuple[str, dict[str, Any]]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def watching(service: Service, token: str | None = None, **query: str) -> Iterator[Iterator[Event]]:
    headers = bearer(token or service.admin)
    with (
        httpx.Client(base_url=service.server.url, timeout=30, headers=headers) as client,
        client.stream("GET", "/console/events", params=query) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer.iter_lines())


def events(lines: Iterator[str]) -> Iterator[Event]:
    for line in lines:
        if line.startswith("event: "):
            data = next(lines)
            yield line.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def until(stream: Iterator[Event], told: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The first sample of which it is true. Samples come every second, so a loop of them ends."""
    return next(body for name, body in islice(stream, 30) if name == "sample" and told(body))


# --- the stream ----------------------------------------------------------------------------------


def test_what_is_produced_and_read_shows_up_as_rates(service: Service) -> None:
    topic = service.topic("streamed", 2)
    with watching(service, topic=topic) as stream:
        assert next(stream)[0] == "history"
        until(stream, lambda body: body["topic"] and body["topic"]["known"] == 2)
        service.produce(topic, *({"value": one} for one in range(30)))
        body = until(stream, lambda body: body["topic"]["records_in"] > 0)
        assert body["topic"]["bytes_in"] > 0
        assert body["service"]["ack_p99_ms"] >= body["service"]["ack_p50_ms"] > 0
        assert body["total"]["records_in"] >= body["topic"]["records_in"]
        service.server.client.get(f"{V3}/topics/{topic}/partitions/0/records", params={"offset": 0})
        until(stream, lambda body: body["topic"]["records_out"] > 0)
        last = next(stream)[1]["topic"]
    assert (last["records"], last["files"], last["partitions"], last["known"]) == (30, 1, 2, 2)
    assert [(row["high_watermark"], row["log_end_offset"]) for row in last["list"]] == [(30, 30), (0, 0)]
    with watching(service, topic=topic) as stream:
        points = next(stream)[1]["points"]  # a page that is opened later begins with the past
    assert sum((point["topic"] or {}).get("records_in", 0) for point in points) > 0
    assert sum((point["topic"] or {}).get("versions", 0) for point in points) > 0


def test_a_group_in_detail(service: Service) -> None:
    topic = service.topic("grouped", 2)
    service.produce(topic, {"value": 1}, {"value": 2})
    member = Member(service.server.client, "watched", [topic])
    member.enter()
    service.commit("other", topic, 1)
    with watching(service, group="watched") as stream:
        group = until(stream, lambda body: body["group"])["group"]
        assert group["member_list"][0]["partitions"] == [[topic, 0], [topic, 1]]
        assert (group["state"], group["members"], group["lags"]) == ("STABLE", 1, [])
    with watching(service, group="other") as stream:
        (row,) = until(stream, lambda body: body["group"])["group"]["lags"]
    assert (row["topic"], row["partition"], row["current_offset"], row["lag"]) == (topic, 0, 1, 1)


def test_only_what_the_token_may_see(service: Service) -> None:
    for name in ("open-a", "closed-b"):
        service.topic(name)
        service.produce(name, {"value": 1})
        service.commit("open-group", name, 0)
        service.commit("closed-group", name, 0)
    made = service.token("consume:topic:open-*", "consume:group:open-*")
    with watching(service, made["token"], topic="closed-b", group="open-group") as stream:
        body = until(stream, lambda body: body["group"] and body["topics"])
    assert [one["name"] for one in body["topics"]] == ["open-a"]
    assert body["total"]["topics"] == 1
    assert body["topic"] is None
    assert [one["name"] for one in body["groups"]] == ["open-group"]
    assert (body["group"]["lag"], [row["topic"] for row in body["group"]["lags"]]) == (1, ["open-a"])
    assert "closed" not in json.dumps(body)


def test_refused_before_it_begins(service: Service) -> None:
    client = service.server.client
    with httpx.Client(base_url=service.server.url) as nobody:
        for path in ("/console/events", "/console/session"):
            assert error_of(nobody.get(path), 401)["error"] == "SASL_AUTHENTICATION_FAILED"
    assert error_of(client.get("/console/events?topic=none"), 404)["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_of(client.get("/console/events?samples=0"), 400)["details"]["field"] == "samples"


def test_a_revoked_token_ends_its_stream(service: Service) -> None:
    made = service.token("consume:topic:*")
    with watching(service, made["token"]) as stream:
        next(stream)
        next(stream)
        assert service.server.client.delete(f"{V3}/tokens/{made['token_id']}").status_code == 204
        rest = list(stream)
    assert rest[-1][0] == "refused"
    assert rest[-1][1]["error"] == "SASL_AUTHENTICATION_FAILED"


def test_streams_are_bounded_cost_no_thread_and_end_with_the_service(tmp_path: Path) -> None:
    with running(tmp_path / "root", SLUICE_CONSOLE_MAX_STREAMS="8") as server, ExitStack() as stack:
        service = started(server)
        for _ in range(12):  # who leaves makes room
            with watching(service) as stream:
                assert next(stream)[0] == "history"
        first = stack.enter_context(watching(service))
        next(first)
        next(first)
        threads = server.threads
        more = [stack.enter_context(watching(service)) for _ in range(7)]
        for stream in more:
            assert next(stream)[0] == "history"
            assert next(stream)[0] == "sample"
        assert server.threads <= threads + 1  # a thread of a pool that was not needed before
        refused = error_of(server.client.get("/console/events"), 429)
        assert "console.max.streams" in refused["message"]
        stopped: list[int] = []
        stop = threading.Thread(target=lambda: stopped.append(server.terminate()))
        stop.start()
        assert [list(stream)[-1] for stream in (first, *more)] == [("end", {})] * 8
        stop.join()
        assert stopped == [0]


# --- the session and the files -------------------------------------------------------------------


def test_the_session_tells_who_one_is_and_no_secret(service: Service) -> None:
    made = service.token("consume:topic:a*", name="reader")
    answer = service.server.client.get("/console/session", headers=bearer(made["token"]))
    body = answer.json()
    assert (body["name"], body["grants"], body["admin"]) == ("reader", ["consume:topic:a*"], False)
    assert made["token"] not in answer.text
    assert made["token"].rpartition("_")[2] not in answer.text


def test_files_are_served_under_a_strict_policy(service: Service) -> None:
    with httpx.Client(base_url=service.server.url) as nobody:
        page = nobody.get("/console")
        assert page.content == nobody.get("/console/").content
        paths = ["/console", *(f"/console/assets/{name}" for name in assets())]
        for path in paths:
            answer = nobody.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = nobody.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for name in ("none.js", "__init__.py"):
            error_of(nobody.get(f"/console/assets/{name.replace('.', '%2e')}"), 404)
        error_of(nobody.get("/console/assets/..%2Fassets.py"), 401)  # no file of ours has such a name


def test_no_file_holds_script_or_style_in_markup_or_another_address() -> None:
    page = assets()["index.html"].content.decode()
    assert page.count("<script") == page.count('<script type="module" src="/console/assets/') == 1
    assert "style=" not in page
    assert "<style" not in page
    for name, asset in assets().items():
        text = asset.content.decode()
        addresses = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s\"']*", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name


@pytest.mark.parametrize("path", ["/console", "/console/assets/app.js", "/console/session", "/console/events"])
def test_it_can_be_switched_off(switched_off: httpx.Client, path: str) -> None:
    assert "console.enable" in error_of(switched_off.get(path), 404)["message"]


@pytest.fixture(scope="module")
def switched_off(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running(tmp_path_factory.mktemp("off") / "root", SLUICE_CONSOLE_ENABLE="false") as server:
        yield server.client
