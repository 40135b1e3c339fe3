"""Hostile names, headers and framings on real connections: answered in our shape, and nothing outside the root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import counts
from tests.http.checks import V3, error_of
from tests.http.raw import connected, head_of
from tests.http.test_hostile import refused
from tests.support.bodies import v2
from tests.support.hostile_names import BODY, names, raw_requests
from tests.support.logs import eventually
from tests.support.server import Server, running

ADDRESSES = (
    ("POST", "/topics/{}"),
    ("POST", "/topics/t/partitions/{}"),
    ("GET", "/topics/{}"),
    ("POST", f"{V3}/topics/{{}}/records"),
    ("GET", f"{V3}/topics/{{}}/partitions/{{}}/records?offset=0"),
    ("GET", f"{V3}/topics/t/partitions/0/offset?at={{}}"),
    ("PUT", f"{V3}/topics/{{}}/configs/{{}}"),
    ("DELETE", f"{V3}/topics/{{}}"),
    ("GET", f"{V3}/tokens/{{}}"),
    ("GET", "/v3/clusters/{}"),
    ("GET", f"{V3}/brokers/{{}}/log-dirs?topic={{}}&page_token={{}}"),
)
SENDERS = 32
ANSWER_S = 5.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,249}(~[0-9a-f]{32})?")
"""A topic, and the id of one that had its name before."""


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    quick = {"SLUICE_REQUEST_TIMEOUT_MS": "1000", "SLUICE_HEADER_TIMEOUT_MS": "1000"}
    with running(tmp_path_factory.mktemp("names") / "deep" / "er" / "root", **quick) as found:
        assert found.client.post("/topics/t", content=BODY).status_code == 200
        yield found


@contextmanager
def nothing_outside(server: Server) -> Iterator[None]:
    """Around three folders above the root, and at its top."""
    above = server.root.parent.parent.parent

    def outside() -> set[Path]:
        return {path for path in above.rglob("*") if not path.is_relative_to(server.root)}

    before = outside()
    yield
    assert outside() == before
    assert {path.name for path in server.root.iterdir()} <= {"_sluice", "topics"}
    for folder in (server.root / "topics").iterdir():
        assert ALLOWED.fullmatch(folder.name), folder


def test_hostile_names_stay_inside_the_root(exposed: Server) -> None:
    with nothing_outside(exposed):
        for name in names(counts.HOSTILE_NAMES):
            for method, address in ADDRESSES:
                path = address.replace("{}", name)
                with connected(exposed.url) as raw:
                    body = v2(b'{"value":1}')
                    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}"
                    raw.send(head.encode("utf-8", "replace") + b"\r\n\r\n" + body)
                    status = int(raw.until_closed().split(b" ", 2)[1])
                assert status < 500, (method, path)
    assert exposed.client.get("/readyz").status_code == 200


def test_reserved_names_cannot_be_written(exposed: Server) -> None:
    group = "/v3/clusters/-/consumer-groups/g/offsets"  # the topic of offsets is there from its first use on
    offsets = {"offsets": [{"topic_name": "t", "partition_id": 0, "offset": 0}]}
    exposed.client.post(group, json=offsets)
    for name in ("__consumer_offsets", "__cluster_metadata", "%2e%2e", "%2e", "a" * 250):
        answer = exposed.client.post(f"/topics/{name}", content=BODY)
        assert 400 <= answer.status_code < 500, (name, answer.text)
        told = error_of(answer, answer.status_code)
        refused(name, told)
        assert told["error"] == "INVALID_TOPIC_EXCEPTION"


def end_of(server: Server) -> int:
    found: int = server.client.get("/topics/t/partitions/0/offsets").json()["end_offset"]
    return found


def first_answer(server: Server, message: bytes) -> bytes:
    """Nothing, where the service waits for more, or closes."""
    with connected(server.url) as raw, suppress(ConnectionError, TimeoutError):
        raw.socket.settimeout(ANSWER_S)
        raw.send(message)
        found = b""
        while piece := raw.socket.recv(65536):
            found += piece
            head, end, body = found.removeprefix(CONTINUE).partition(b"\r\n\r\n")
            if end and len(body) >= int(head_of(head)[1].get("content-length", "0")):
                return head + end + body
    return b""


def test_hostile_headers(exposed: Server) -> None:
    """What was answered 200 was stored once, and nothing that was refused was: no message hides in another."""
    messages = list(raw_requests(counts.HOSTILE_HEADERS, "t"))
    before = end_of(exposed)
    with nothing_outside(exposed), ThreadPoolExecutor(SENDERS) as pool:
        answers = list(pool.map(lambda message: first_answer(exposed, message), messages))
    for message, answer in zip(messages, answers, strict=True):
        status = int(answer.split(b" ", 2)[1]) if answer else 0
        assert status < 500, (message[:1000], answer)
        if status >= 400:
            assert b'"error_code":' in answer, (message[:1000], answer)
    stored = sum(b'"offset":' in answer for answer in answers)
    assert stored > counts.HOSTILE_HEADERS // 20
    eventually(lambda: end_of(exposed) >= before + stored)
    # A whole request with rubbish behind it may be stored though the connection ends before its answer.
    assert end_of(exposed) <= before + stored + answers.count(b"")
    assert exposed.client.get("/readyz").status_code == 200


SMUGGLED = b"POST /topics/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
        b"Content-Length: +5\r\n\r\nabcde",
        b"Content-Length: 5,5\r\n\r\nabcde",
        b"Content-Length: 0x5\r\n\r\nabcde",
        b"Content-Length: -1\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
    ],
)
def test_framings_that_two_servers_may_read_differently_end_the_connection(exposed: Server, framing: bytes) -> None:
    with connected(exposed.url) as raw:
        raw.send(b"POST /topics/t HTTP/1.1\r\nHost: x\r\n" + framing + SMUGGLED)
        told = raw.until_closed()
    assert told.startswith(b"HTTP/1.1 400"), told
    assert told.count(b"HTTP/1.1 ") == 1
    assert exposed.client.get("/topics/smuggled").status_code == 404
