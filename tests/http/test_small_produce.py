"""Small produce requests on real connections: the short way must be the same service as the long one."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.checks import V3, error_of, fetch, offsets, values
from tests.support.server import Server, running

WAIT_S = 60


def message(topic: str, value: object, *, more: str = "", version: str = "1.1", path: str = "") -> bytes:
    body = json.dumps({"records": [{"value": value}]}).encode()
    head = f"POST /topics/{topic}{path} HTTP/{version}\r\nHost: sluice\r\nContent-Type: application/json\r\n{more}"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 80), timeout=WAIT_S) as connection:
        yield connection


def answer(connection: socket.socket) -> tuple[int, dict[str, str], dict[str, Any]]:
    """One answer: status, headers, body."""
    data = b""
    while b"\r\n\r\n" not in data:
        got = connection.recv(1)
        assert got, f"closed after {data!r}"
        data += got
    lines = data.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
    body = b""
    while len(body) < int(headers["content-length"]):
        body += connection.recv(int(headers["content-length"]) - len(body))
    return int(lines[0].split()[1]), headers, json.loads(body)


def test_many_at_once_each_get_their_own_offset(server: Server, http: httpx.Client, topic: str) -> None:
    def one(number: int) -> tuple[int, tuple[int, int]]:
        (place,) = offsets(http.post(f"/topics/{topic}", json={"records": [{"value": number}]}))
        return number, place

    with ThreadPoolExecutor(24) as pool:
        told = dict(pool.map(one, range(300)))
    stored = {
        (partition, record["offset"]): record["value"]
        for partition in range(3)
        for record in fetch(http, topic, partition=partition, max_records=1000)["data"]
    }
    assert {number: stored[place] for number, place in told.items()} == {number: number for number in range(300)}
    assert len(stored) == 300


def test_the_answer_looks_like_any_other(server: Server, topic: str) -> None:
    with connected(server) as connection:
        connection.sendall(message(topic, 1))
        status, headers, body = answer(connection)
        assert status == 200
        assert headers["content-type"] == "application/json"
        assert {"x-request-id", "date"} <= headers.keys()
        (told,) = body["offsets"]
        assert told | {"partition": 0} == {"partition": 0, "offset": 0, "error_code": None, "error": None}
        connection.sendall(message(topic, 1, path="?response=summary&acks=1"))
        _, _, body = answer(connection)
        assert body.keys() == {"partitions"}


@pytest.mark.parametrize("at", [1, 40, -1, -20])
def test_a_body_in_pieces(server: Server, topic: str, at: int) -> None:
    sent = message(topic, "x" * 200)
    with connected(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(sent[:at])
        connection.sendall(sent[at:])
        assert answer(connection)[0] == 200


def test_a_body_of_many_kilobytes(http: httpx.Client, topic: str) -> None:
    """Larger than what uvicorn reads ahead of its application."""
    records = [{"value": "x" * 100} for _ in range(1500)]
    assert len(offsets(http.post(f"/topics/{topic}", json={"records": records}))) == 1500


def test_pipelined_requests_are_answered_in_order(server: Server, http: httpx.Client, topic: str) -> None:
    with connected(server) as connection:
        path = "/partitions/0"
        connection.sendall(b"".join(message(topic, n, path=path) for n in range(5)))
        found = [answer(connection) for _ in range(5)]
    assert [body["offsets"][0]["offset"] for _, _, body in found] == list(range(5))
    assert values(http, topic) == list(range(5))


def test_a_refusal_between_two_that_are_taken(server: Server, topic: str) -> None:
    wrong = b"POST /topics/%b HTTP/1.1\r\nHost: s\r\nContent-Length: 3\r\n\r\n{,}" % topic.encode()
    with connected(server) as connection:
        for sent, status in ((message(topic, 1), 200), (wrong, 400), (message(topic, 2), 200)):
            connection.sendall(sent)
            assert answer(connection)[0] == status


@pytest.mark.parametrize(("more", "version"), [("Connection: close\r\n", "1.1"), ("", "1.0")])
def test_a_connection_that_is_not_kept(server: Server, topic: str, more: str, version: str) -> None:
    with connected(server) as connection:
        connection.sendall(message(topic, 1, more=more, version=version))
        assert answer(connection)[0] == 200
        assert connection.recv(1) == b""


def test_a_client_that_left(server: Server, http: httpx.Client, topic: str) -> None:
    """What was accepted is in the log, and nobody is disturbed."""
    offsets(http.post(f"/topics/{topic}/partitions/0", json={"records": [{"value": -1}]}))
    for n in range(20):
        with connected(server) as connection:
            connection.sendall(message(topic, n, path="/partitions/0"))
    pause = threading.Event()
    for _ in range(600):
        if len(values(http, topic)) == 21:
            break
        pause.wait(0.1)
    assert sorted(values(http, topic)) == list(range(-1, 20))
    assert http.get("/readyz").status_code == 200


def test_what_the_topic_refuses_is_refused(http: httpx.Client, topic: str) -> None:
    changed = http.put(f"{V3}/topics/{topic}/configs/cleanup.policy", json={"value": "compact"})
    assert changed.status_code in (200, 204), changed.text
    refused = http.post(f"/topics/{topic}", json={"records": [{"value": 1}]})
    assert error_of(refused, 422)["error"] == "INVALID_RECORD"
    assert offsets(http.post(f"/topics/{topic}", json={"records": [{"key": "k", "value": 1}]}))


def test_they_are_counted(http: httpx.Client, topic: str) -> None:
    def count() -> float:
        lines = http.get("/metrics").text.splitlines()
        name = 'sluice_http_requests_total{method="POST",route="/topics/{t}",status="200"}'
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before = count()
    offsets(http.post(f"/topics/{topic}", json={"records": [{"value": 1}]}))
    assert count() == before + 1


def test_a_graceful_stop_answers_what_was_taken(tmp_path: Path) -> None:
    slow = {"SLUICE_COMMIT_INTERVAL_MS": "1500"}
    with running(tmp_path / "root", **slow) as server:
        offsets(server.client.post("/topics/t/partitions/0", json={"records": [{"value": 0}]}))
        with connected(server) as connection:
            connection.sendall(message("t", 1, path="/partitions/0"))  # grouped: waits for the interval
            assert server.client.get("/healthz").status_code == 200  # it was read by now
            stopped = threading.Thread(target=server.terminate)
            stopped.start()
            assert answer(connection)[0] == 200
            stopped.join(WAIT_S)
        server.start()
        assert values(server.client, "t") == [0, 1]


def test_a_head_that_was_seen_before(server: Server, http: httpx.Client, topic: str) -> None:
    """It is not parsed again: whole or in pieces, alone or with company, on this connection or another."""
    again = message(topic, "aa")
    cut = again.index(b"\r\n\r\n") + 4
    with connected(server) as one, connected(server) as other:
        for connection in (one, one, other, one):
            connection.sendall(again)
            assert answer(connection)[0] == 200
        one.sendall(again[:cut])
        other.sendall(message(topic, "bb"))  # the same head
        assert answer(other)[0] == 200
        one.sendall(again[cut:])
        assert answer(one)[0] == 200
        one.sendall(again + again + message(topic, "c"))
        assert [answer(one)[0] for _ in range(3)] == [200, 200, 200]
        one.sendall(message(topic, "aa", more="Connection: close\r\n"))
        assert answer(one)[0] == 200
        assert one.recv(1) == b""
    found = [record for partition in range(3) for record in fetch(http, topic, partition=partition)["data"]]
    assert sorted(record["value"] for record in found) == ["aa"] * 8 + ["bb", "c"]


def test_a_known_head_whose_body_is_refused(server: Server, topic: str) -> None:
    good = message(topic, "abc")
    bad = good[: -len(b'{"value": "abc"}]}')] + b'{"valve": "abc"}]}'
    with connected(server) as connection:
        for sent, status in ((good, 200), (good, 200), (bad, 400), (good, 200), (bad, 400)):
            connection.sendall(sent)
            assert answer(connection)[0] == status


def test_a_known_head_is_asked_for_its_token_each_time(tmp_path: Path) -> None:
    tokens = f"{V3}/tokens"
    with running(tmp_path / "root") as server, connected(server) as connection:
        first = server.client.post(tokens, json={"name": "ops", "grants": ["admin"]}).json()
        admin = {"Authorization": f"Bearer {first['token']}"}
        writer = server.client.post(tokens, json={"name": "w", "grants": ["produce:topic:*"]}, headers=admin).json()
        sent = message("t", 1, more=f"Authorization: Bearer {writer['token']}\r\n")
        for _ in range(3):
            connection.sendall(sent)
            assert answer(connection)[0] == 200
        assert server.client.delete(f"{tokens}/{writer['token_id']}", headers=admin).status_code == 204
        connection.sendall(sent)
        assert answer(connection)[0] == 401
