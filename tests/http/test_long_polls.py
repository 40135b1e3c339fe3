"""Long polls on real connections: they wait in a table, and are answered like any other fetch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from tests.http.checks import V3, error_of, offsets
from tests.http.test_small_produce import answer, connected
from tests.support.server import Server, running

ARROW = "application/vnd.apache.arrow.stream"
WAIT_S = 45.0


def put(http: httpx.Client, topic: str, *values: object) -> None:
    offsets(http.post(f"/topics/{topic}/partitions/0", json={"records": [{"value": value} for value in values]}))


def path(topic: str, offset: int, **query: object) -> str:
    given = {"offset": offset, "max_wait_ms": 60_000} | query
    return f"{V3}/topics/{topic}/partitions/0/records?" + "&".join(f"{name}={value}" for name, value in given.items())


def waiting(http: httpx.Client) -> int:
    lines = http.get("/metrics").text.splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("sluice_long_polls_waiting "))


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come about")


class Polls:
    """Polls in threads, each on its own connection."""

    def __init__(self, server: Server, pool: ThreadPoolExecutor) -> None:
        self._server = server
        self._pool = pool

    def start(self, url: str, **headers: str) -> Future[httpx.Response]:
        return self._pool.submit(httpx.get, self._server.url + url, headers=headers, timeout=90)


@pytest.fixture
def polls(server: Server) -> Iterator[Polls]:
    with ThreadPoolExecutor(40) as pool:
        yield Polls(server, pool)


def test_a_commit_answers_all_that_wait_for_it(http: httpx.Client, topic: str, polls: Polls) -> None:
    put(http, topic, "first")
    before = waiting(http)
    asked = [polls.start(path(topic, 1, max_records=1 + n % 3)) for n in range(30)]
    in_arrow = polls.start(path(topic, 1), Accept=ARROW)
    until(lambda: waiting(http) == before + 31)
    put(http, topic, "a", "b", "c")
    for n, future in enumerate(asked):
        found = future.result(WAIT_S)
        body = found.json()
        count = 1 + n % 3
        assert [record["value"] for record in body["data"]] == ["a", "b", "c"][:count]
        assert body["next_offset"] == int(found.headers["Sluice-Next-Offset"]) == 1 + count
        assert body["high_watermark"] == int(found.headers["Sluice-High-Watermark"]) == 4
    rows = pa.ipc.open_stream(in_arrow.result(WAIT_S).content).read_all()
    assert rows.column("value").to_pylist() == [b'"a"', b'"b"', b'"c"']
    assert in_arrow.result().headers["content-type"] == ARROW
    until(lambda: waiting(http) == before)


def test_it_ends_with_its_time(http: httpx.Client, topic: str) -> None:
    put(http, topic, 1)
    found = http.get(path(topic, 1, max_wait_ms=300)).json()
    assert (found["data"], found["next_offset"], found["high_watermark"]) == ([], 1, 1)


def test_min_bytes_waits_for_more_than_the_first_commit(http: httpx.Client, topic: str, polls: Polls) -> None:
    put(http, topic, 1)
    before = waiting(http)
    asked = polls.start(path(topic, 1, min_bytes=3000))
    until(lambda: waiting(http) == before + 1)
    put(http, topic, "x" * 1000)
    put(http, topic, "y" * 1000)
    assert not asked.done()
    put(http, topic, "z" * 1000)
    assert len(asked.result(WAIT_S).json()["data"]) == 3


def test_a_reader_that_left_is_forgotten(server: Server, http: httpx.Client, topic: str) -> None:
    put(http, topic, 1)
    before = waiting(http)
    with connected(server) as connection:
        connection.sendall(f"GET {path(topic, 1)} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
        until(lambda: waiting(http) == before + 1)
    until(lambda: waiting(http) == before)
    put(http, topic, 2)


def test_the_connection_is_good_for_the_next_request(server: Server, http: httpx.Client, topic: str) -> None:
    put(http, topic, 1)
    with connected(server) as connection:
        for wait_ms in (50, 20):
            connection.sendall(f"GET {path(topic, 1, max_wait_ms=wait_ms)} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
            status, headers, body = answer(connection)
            assert (status, body["data"]) == (200, [])
            assert headers["x-request-id"]


def test_a_topic_that_goes_takes_its_polls_along(http: httpx.Client, topic: str, polls: Polls) -> None:
    put(http, topic, 1)
    before = waiting(http)
    asked = polls.start(path(topic, 1, max_wait_ms=4000))
    until(lambda: waiting(http) == before + 1)
    assert http.delete(f"{V3}/topics/{topic}").status_code == 204
    assert error_of(asked.result(WAIT_S), 404)["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_token_that_was_revoked_ends_its_poll(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server, ThreadPoolExecutor(2) as pool:
        http = server.client
        made = http.post(f"{V3}/tokens", json={"name": "admin", "grants": ["admin"]})
        admin = {"Authorization": f"Bearer {made.json()['token']}"}
        made = http.post(f"{V3}/tokens", json={"name": "r", "grants": ["consume:topic:t"]}, headers=admin).json()
        http.headers.update(admin)
        put(http, "t", "seen")
        asked = Polls(server, pool).start(path("t", 1), Authorization=f"Bearer {made['token']}")
        until(lambda: waiting(http) == 1)
        assert http.delete(f"{V3}/tokens/{made['token_id']}").status_code in (200, 204)
        put(http, "t", "not to be seen")
        assert error_of(asked.result(WAIT_S), 401)


def test_a_stop_answers_what_waits(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server, ThreadPoolExecutor(2) as pool:
        put(server.client, "t", 1)
        asked = Polls(server, pool).start(path("t", 1, max_wait_ms=60_000))
        until(lambda: waiting(server.client) == 1)
        assert server.terminate() == 0
        assert asked.result(WAIT_S).json()["data"] == []
