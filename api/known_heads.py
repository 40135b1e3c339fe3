"""Heads of requests that were seen before, byte for byte: what they say is known without parsing them again.

A client that sends small requests sends the same head each time, and taking it apart, header by header, is a good part
of what such a request costs. Only heads of requests that took a shortcut are kept, and whatever depends on more than
the bytes (access, load, the topic) is looked at anew each time.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD_MOST_BYTES = 2_048
MOST = 2_048
"""Together at most 4 MiB. A full table starts anew: heads that are in use come back at once."""
_END = b"\r\n\r\n"


class Head(NamedTuple):
    method: bytes
    url: bytes
    headers: list[tuple[bytes, bytes]]
    size: int
    """Of the body."""


class KnownHeads:
    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}

    def find(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the body, if `data` is exactly one request with a known head."""
        end = data.find(_END, 0, HEAD_MOST_BYTES) + len(_END)
        head = self._heads.get(data[:end])
        return (head, data[end:]) if head is not None and len(data) - end == head.size else None

    def learn(self, data: bytes, method: bytes, url: bytes, headers: list[tuple[bytes, bytes]], size: int) -> None:
        """From `data`, which the parser took for exactly one request."""
        end = data.find(_END, 0, HEAD_MOST_BYTES) + len(_END)
        # Empty lines before a request are allowed: then the first empty line is not the end of its head.
        if end < len(_END) or len(data) - end != size:
            return
        if len(self._heads) >= MOST:
            self._heads.clear()
        self._heads[bytes(data[:end])] = Head(method, url, headers, size)
