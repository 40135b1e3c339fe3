"""A client that speaks bytes, for what no HTTP library would send."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

WAIT_S = 60.0


class Raw:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def until_closed(self) -> bytes:
        """Everything that still comes. The other side closing hard counts as closing."""
        found = b""
        try:
            while piece := self.socket.recv(65536):
                found += piece
        except ConnectionError:
            pass
        return found

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer with a Content-Length: status, headers, body."""
        found = b""
        while b"\r\n\r\n" not in found:
            piece = self.socket.recv(65536)
            assert piece, f"closed after {found!r}"
            found += piece
        head, _, body = found.partition(b"\r\n\r\n")
        status, headers = head_of(head)
        while len(body) < int(headers.get("content-length", "0")):
            body += self.socket.recv(65536)
        return status, headers, body


def head_of(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines)


def refusal_of(whole: bytes, status: int) -> dict[str, Any]:
    """The body of a refusal that ended the connection, after checking its shape."""
    head, _, body = whole.partition(b"\r\n\r\n")
    found, headers = head_of(head)
    assert found == status, whole
    assert headers["connection"] == "close"
    assert headers["x-request-id"]
    told: dict[str, Any] = json.loads(body)
    assert {"error_code", "message", "error", "retriable"} <= told.keys()
    assert int(headers["content-length"]) == len(body)
    return told


@contextmanager
def connected(url: str) -> Iterator[Raw]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S) as connection:
        yield Raw(connection)
