"""Fetch, long polls and offsets over HTTP."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import httpx
import pytest

from sluice.api.errors import JSON
from sluice.ingest.arrow_body import CONTENT_TYPE as ARROW
from tests.http.checks import V3, error_of, fetch, offsets, produce
from tests.http.conftest import App
from tests.support.logs import append, batch, timed
from tests.support.server import Server

WAITING = 1_000


def test_a_fetch_is_bounded_and_says_where_to_go_on(http: httpx.Client, topic: str) -> None:
    produce(http, topic, *range(10))
    first = fetch(http, topic, 2, max_records=3)
    assert [record["offset"] for record in first["data"]] == [2, 3, 4]
    assert (first["next_offset"], first["high_watermark"], first["log_start_offset"]) == (5, 10, 0)
    assert [record["offset"] for record in fetch(http, topic, 9, max_bytes=1)["data"]] == [9]
    assert fetch(http, topic, 10)["data"] == []


def test_formats(http: httpx.Client, topic: str) -> None:
    produce(http, topic, {"a": "ä"})
    shown = {form: fetch(http, topic, format=form)["data"][0]["value"] for form in ("json", "string", "binary")}
    assert shown == {"json": {"a": "ä"}, "string": '{"a":"ä"}', "binary": "eyJhIjoiw6QifQ=="}


@pytest.mark.parametrize("max_wait_ms", [0, 50])
@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ([ARROW], ARROW),
        ([ARROW.upper()], ARROW),
        ([f"application/json, {ARROW};q=0"], JSON),
        ([f"application/json;q=0.5, {ARROW}"], ARROW),
        ([f"{ARROW};q=0.1, */*"], JSON),
        (["application/json", f"{ARROW};q=0"], JSON),
        ([ARROW, "application/json;q=0.5"], ARROW),
        ([ARROW, "application/json"], JSON),
    ],
)
def test_the_weights_of_accept_count(
    http: httpx.Client, topic: str, accept: list[str], media: str, max_wait_ms: int
) -> None:
    """Also at the end of the log, where another way leads to the answer."""
    produce(http, topic, 1)
    for offset in (0, 1):
        asked = http.build_request(
            "GET",
            f"{V3}/topics/{topic}/partitions/0/records",
            params={"offset": offset, "max_wait_ms": max_wait_ms},
        )
        del asked.headers["Accept"]
        lines = [*asked.headers.items(), *(("Accept", one) for one in accept)]
        found = http.send(httpx.Request("GET", asked.url, headers=lines))
        assert (found.status_code, found.headers["Content-Type"]) == (200, media)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"offset": "x"}, 400),
        ({"offset": -1}, 400),
        ({"offset": 0, "max_records": 0}, 400),
        ({"offset": 0, "format": "avro"}, 400),
        ({"offset": 1}, 416),
        ({"offset": 2**63}, 400),
    ],
)
def test_bad_fetches(http: httpx.Client, topic: str, query: dict[str, Any], status: int) -> None:
    error_of(http.get(f"{V3}/topics/{topic}/partitions/0/records", params=query), status)


def test_what_is_not_there(http: httpx.Client, topic: str) -> None:
    for path in (f"{V3}/topics/none/partitions/0", f"{V3}/topics/{topic}/partitions/3"):
        assert error_of(http.get(f"{path}/records", params={"offset": 0}), 404)["error_code"] == 40403
    error_of(http.get(f"/v3/clusters/other/topics/{topic}/partitions/0/records", params={"offset": 0}), 404)


def test_offsets_by_time(app: App) -> None:
    app.log.create_topic("t")
    append(app.log, "t", 0, timed(1000, 3000, 2000))
    asked = {"earliest": 0, "latest": 3, "max_timestamp": 1, "1001": 1, "1970-01-01T00:00:01Z": 0, "9000": -1}
    for at, offset in asked.items():
        answer = app.call("GET", f"{V3}/topics/t/partitions/0/offset", params={"at": at}).json()
        assert answer["offset"] == offset, at
    both = app.call("GET", f"{V3}/topics/t/partitions/0/offset", params={"offset_type": "earliest_and_latest"}).json()
    assert (both["earliest_offset"], both["latest_offset"]) == (0, 3)
    assert app.call("GET", "/topics/t/partitions/0/offsets").json() == {"beginning_offset": 0, "end_offset": 3}
    error_of(app.call("GET", f"{V3}/topics/t/partitions/0/offset", params={"at": "yesterday"}), 400)


# --- long polls --------------------------------------------------------------------------------


def poll(client: httpx.AsyncClient, topic: str, offset: int, **query: Any) -> Any:
    return client.get(
        f"{V3}/topics/{topic}/partitions/0/records", params={"offset": offset, "max_wait_ms": 15_000, **query}
    )


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_long_poll_wakes_up_on_commit(app: App) -> None:
    app.log.create_topic("t")

    async def work(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(poll(client, "t", 0))
        await until(lambda: app.service.waiting.count == 1)
        append(app.log, "t", 0, batch("1"))
        answer = await waiting
        assert [record["value"] for record in answer.json()["data"]] == [1]
        assert app.service.waiting.count == 0

    app.run(work)


def test_min_bytes_waits_for_more_than_the_first_commit(app: App) -> None:
    app.log.create_topic("t")

    async def work(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(poll(client, "t", 0, min_bytes=2000, format="string"))
        for text in ("a" * 1000, "b" * 1000):
            await until(lambda: app.service.waiting.count == 1)
            assert not waiting.done()
            append(app.log, "t", 0, batch(text))
        assert len((await waiting).json()["data"]) == 2

    app.run(work)


def test_a_long_poll_ends_with_its_time_and_with_the_service(app: App) -> None:
    app.log.create_topic("t")

    async def work(client: httpx.AsyncClient) -> None:
        assert (await poll(client, "t", 0, max_wait_ms=1)).json()["data"] == []
        waiting = asyncio.create_task(poll(client, "t", 0))
        await until(lambda: app.service.waiting.count == 1)
        app.service.stop()
        assert (await waiting).json()["data"] == []
        error_of(await client.get("/readyz"), 503)

    # Under a manual clock time does not pass by itself: the wait ends by the loop's own timer.
    app.log.runtime.clock.advance(1)
    ticking = app.log.runtime.clock
    original = ticking.boottime
    ticking.boottime = lambda: original() + monotonic()
    app.run(work)


def test_too_many_long_polls_are_refused(app: App) -> None:
    app.log.create_topic("t")
    app.service.waiting._most = 1

    async def work(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(poll(client, "t", 0))
        await until(lambda: app.service.waiting.count == 1)
        error_of(await poll(client, "t", 0), 429)
        append(app.log, "t", 0, batch("1"))
        await waiting

    app.run(work)


def test_a_thousand_long_polls_cost_no_threads(server: Server, topic: str) -> None:
    produce(server.client, topic, 1)
    before = server.threads

    def waiting() -> int:
        text = server.client.get("/metrics").text
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("sluice_long_polls_waiting "))

    async def one() -> bytes:
        """Without a client library, which would cost more than the server."""
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
        path = f"{V3}/topics/{topic}/partitions/0/records?offset=1&max_wait_ms=60000"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    async def work() -> tuple[int, list[bytes]]:
        polls = [asyncio.create_task(one()) for _ in range(WAITING)]
        async with asyncio.timeout(55):
            while await asyncio.to_thread(waiting) < WAITING:
                await asyncio.sleep(0.05)
        threads = server.threads
        assert offsets(await asyncio.to_thread(produce, server.client, topic, 2)) == [(0, 1)]
        return threads, await asyncio.gather(*polls)

    threads, answers = asyncio.run(work())
    assert threads <= before + 64  # pools that fill up, not one each
    assert all(answer.startswith(b"HTTP/1.1 200 ") and b'"offset":1,' in answer for answer in answers)
