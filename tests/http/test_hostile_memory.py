"""However large a body is, or would become: beside the body itself it costs less than twice the limit of a body."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.http.checks import error_of
from tests.http.raw import connected
from tests.support.hostile_sizes import LARGE
from tests.support.server import Server, running

LIMIT = 8 << 20
AT_ONCE = 4
SLACK = 2 << 20
"""What sockets and allocators hold of each."""
SETTINGS = {
    "SLUICE_REQUEST_MAX_BYTES": str(LIMIT),
    "SLUICE_REQUEST_MEMORY_MAX_BYTES": str(AT_ONCE * LIMIT),
    "SLUICE_REQUEST_TIMEOUT_MS": "20000",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # gives memory back at once, so that one body leaves no room for the next
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("memory") / "root", **SETTINGS) as found:
        for large in LARGE.values():  # what is imported at first use is not what a body costs
            found.client.post(large.path, content=large.make(4096)[:4096], headers={"Content-Type": large.media})
        yield found


def status(server: Server, name: str) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def growth(server: Server, name: str, at_once: int) -> int:
    """Bytes by which the peak of the service rises above what it has now and the bodies themselves."""
    large = LARGE[name]
    body = large.make(LIMIT)
    headers = {"Content-Type": large.media} | ({"Content-Encoding": large.encoding} if large.encoding else {})

    def send(_: int) -> httpx.Response:
        return httpx.post(server.url + large.path, content=body, headers=headers, timeout=60)

    Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # forgets the peak
    before = status(server, "VmRSS")
    with ThreadPoolExecutor(at_once) as pool:
        for answer in pool.map(send, range(at_once)):
            if answer.status_code >= 300 and answer.status_code != 207:
                assert error_of(answer, answer.status_code)["error_code"] // 100 not in (5, 500), (name, answer.text)
    return status(server, "VmHWM") - before - at_once * len(body)


@pytest.mark.parametrize("name", LARGE)
def test_one_body_costs_less_than_twice_the_limit(measured: Server, name: str) -> None:
    grown = growth(measured, name, 1)
    assert grown < 2 * LIMIT + SLACK, f"{name}: {grown / LIMIT:.2f} times the limit"


def test_several_at_once_cost_no_more_each(measured: Server) -> None:
    for name in ("gzip", "zstd", "tiny records", "one wide value", "tiny entries", "arrow dictionary", "arrow zstd"):
        grown = growth(measured, name, AT_ONCE)
        assert grown < (2 * LIMIT + SLACK) * AT_ONCE, f"{name}: {grown / LIMIT:.2f} times the limit"


def test_chunks_without_end(measured: Server) -> None:
    Path(f"/proc/{measured.pid}/clear_refs").write_text("5")
    before = status(measured, "VmRSS")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    for path in ("/topics/t", "/v3/clusters/-/topics/t/records:batch", "/v3/clusters/-/topics/t/records"):
        with connected(measured.url) as raw:
            raw.send(f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            with pytest.raises(ConnectionError):
                raw.send(chunk * (20 * LIMIT // len(chunk)))
    assert status(measured, "VmHWM") - before < 2 * LIMIT
    assert measured.client.get("/healthz").status_code == 200
