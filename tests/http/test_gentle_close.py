"""A refusal reaches a client that sends all it has before it reads; a reset would take the answer away again."""

from __future__ import annotations

import socket
import time

import pytest

from sluice.api.gentle_close import DISCARD_RATE, LINGER_BYTES
from tests.http.checks import V3
from tests.http.raw import WAIT_S, Raw, connected, refusal_of
from tests.support.server import Server

PATH = f"{V3}/topics/t/records:batch"
LONG = 8 << 20
"""More than the sockets of both sides hold, and than the 1 MiB that the service reads of a refused body."""


def head(*lines: str) -> bytes:
    return "\r\n".join(
        [f"POST {PATH} HTTP/1.1", "Host: here", "Content-Type: application/json", *lines, "", ""]
    ).encode()


@pytest.mark.parametrize("turn", range(5))
def test_a_declared_body_that_is_too_long(server: Server, turn: int) -> None:
    with connected(server.url) as raw:
        raw.send(head(f"Content-Length: {LONG}"))
        raw.send(b" " * LONG)
        assert refusal_of(raw.until_closed(), 413)["error"] == "RECORD_LIST_TOO_LARGE"


@pytest.mark.parametrize("turn", range(5))
def test_a_chunked_body_that_is_too_long(server: Server, turn: int) -> None:
    with connected(server.url) as raw:
        raw.send(head("Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        raw.send(chunk * (LONG // len(chunk)))
        assert refusal_of(raw.until_closed(), 413)["error"] == "RECORD_LIST_TOO_LARGE"


@pytest.mark.parametrize("turn", range(5))
def test_headers_that_are_too_long(server: Server, turn: int) -> None:
    with connected(server.url) as raw:
        raw.send(head("X: " + "x" * LONG))
        assert refusal_of(raw.until_closed(), 431)


def test_a_refused_body_of_bearable_length_leaves_the_connection_in_use(server: Server) -> None:
    with connected(server.url) as raw:
        for _ in range(3):
            raw.send(head("Content-Length: 300000").replace(b"application/json", b"text/nonsense"))
            raw.send(b" " * 300_000)
            status, headers, _ = raw.answer()
            assert (status, headers.get("connection")) == (415, None)


def send_for_ever(raw: Raw) -> None:
    chunk, begun, sent = b"10000\r\n" + b" " * 0x10000 + b"\r\n", time.monotonic(), 0
    while time.monotonic() < begun + WAIT_S and sent < LINGER_BYTES + (64 << 20):
        raw.send(chunk)
        sent += len(chunk)


def test_who_never_stops_is_cut(server: Server) -> None:
    with connected(server.url) as raw:
        raw.send(head("Transfer-Encoding: chunked"))
        with pytest.raises(ConnectionError):
            send_for_ever(raw)


@pytest.mark.parametrize("piece", [8 << 10, 24 << 20])
@pytest.mark.parametrize("closes", [False, True])
def test_what_nobody_wants_is_read_slowly(server: Server, closes: bool, piece: int) -> None:
    """Both ways in which a refused body is read on: to its end, and until the connection is closed."""
    size, turns = (24 << 20, 1) if closes else (1 << 20, 12)  # the latter is as much as a request may have here
    held_by_sockets = 8 << 20 if closes else 0
    begun = time.monotonic()
    for _ in range(turns):
        with connected(server.url) as raw:
            raw.send(head(f"Content-Length: {size}").replace(b"application/json", b"text/nonsense"))
            status, headers, _ = raw.answer()
            assert (status, headers.get("connection")) == (415, "close" if closes else None)
            raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if piece < size:
                raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, piece)  # no more is on its way at a time
            for _ in range(max(1, size // piece)):
                raw.send(b" " * min(size, piece))  # behind its refusal
            if not closes:
                raw.send(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
                assert raw.answer()[0] == 200
    assert time.monotonic() - begun > (turns * size - held_by_sockets) / DISCARD_RATE / 2
