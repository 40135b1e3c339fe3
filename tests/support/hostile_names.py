"""Hostile names, headers and framings, each made from a number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import quote

_PIECES = (
    "..", ".", "/", "\\", "%", "%2e", "%2f", "%00", "\0", "ä", "\ud7ff", " ", "~", "a", "_", "__", ":", "\n",
    "\r\n", "*",
    "'", '"', "<", ">", "|", "?", "#", "&", ";", "=", "é" * 99, "a" * 300, "orders", "_sluice", "topics",
    "_delta_log",
    "-", "CON", "\u202e", "\u0000", "\U0001f4a9", "${x}", "{t}", "file:", "s3://b", "~root", "$HOME", "\t", "\x7f",
)  # fmt: skip
KNOWN = (
    "..", ".", "../..", "..%2f..", "%2e%2e", "%252e%252e", "../../../../etc/passwd", "..\\..", "/etc/passwd",
    "//", "a/../b",
    "__consumer_offsets", "__cluster_metadata", "__x", "\0", "a\0b", "a" * 249, "a" * 250, "a" * 5000, "", " ",
    "t ", "t.",
    "a\r\nX-Evil: 1", "..;/", "....//", "%c0%ae%c0%ae/", "\u2025", "．．", "A" * 200 + "/..", "topics", "-", "*",
    "t?x=1", "t#x",
)  # fmt: skip


def names(count: int) -> Iterator[str]:
    """Ready for a path: either escaped as a client would, or as they are where that is a URL at all."""
    rng = random.Random("names")
    for number in range(count):
        text = KNOWN[number] if number < len(KNOWN) else "".join(rng.choices(_PIECES, k=rng.randint(1, 6)))
        yield quote(text, safe=rng.choice(("", "", "/.%\\:;")), errors="replace")


_NAMES = (
    b"Content-Type", b"Content-Encoding", b"Accept", b"X-Request-Id", b"Sluice-Sequence", b"Sluice-Producer-Id",
    b"Sluice-Producer-Epoch", b"Sluice-Client-Id", b"Host", b"Authorization", b"Expect", b"Content-Length",
    b"Connection",
    b"Transfer-Encoding", b"Upgrade", b"Range", b"Cookie", b"X-Forwarded-For", b"Trailer", b"TE", b"X" * 300,
    b"X\x00Y",
    b"X Y", b"", b"X:Y", b"X\rY", b"Content-Length ", b" Content-Length", b"X\xff", b"Content_Length",
)  # fmt: skip
_VALUES = (
    b"", b" ", b"\xff\xfe", b"a" * 5_000, b"a" * 40_000, b"9" * 400, "٣".encode(), b"-1", b"+5", b"1e9",
    b"0x10", b"5, 5",
    b"gzip, gzip", b"gzip", b"br", b"chunked", b"Chunked", b"chunked, identity", b"identity", b"xchunked",
    b"\x0bchunked",
    b"18446744073709551616", b"00000000000000000005", b"5;a", b"a\x00b", b"a\rb", b"a\nb", b"a\r\n b",
    b"a\r\nEvil: 1",
    b"Bearer x", b"Bearer sluice_a_b", b"Basic eDp5", b"Bearer " + b"x" * 9_000, b"*/*;q=x", b"text/html",
    b"a/b;" * 500,
    b"100-continue", b"close", b"Upgrade, HTTP2-Settings", b"h2c", b"websocket", b"../../x", b"%s%n%x", b"\t5\t",
    b"application/json; charset=\xff", b"application/json" * 100, b"localhost:99999", b"a@b", b"[::1", b"\x80",
)  # fmt: skip
BODY = b'{"records":[{"value":1}]}'


def raw_requests(count: int, topic: str) -> Iterator[bytes]:
    """Whole messages as bytes: one to three strange headers, sometimes beside the right ones, in any place."""
    rng = random.Random("headers")
    for _ in range(count):
        lines = [b"%b: %b" % (rng.choice(_NAMES), rng.choice(_VALUES)) for _ in range(rng.choice((1, 1, 2, 3)))]
        if rng.random() < 0.25:
            lines = [b"X-Harmless: " + rng.choice((b"a", b"\xff", b"a" * 5_000, b"../.."))]
        if rng.random() < 0.8:
            lines.insert(rng.randrange(len(lines) + 1), b"Content-Length: %d" % len(BODY))
        if rng.random() < 0.9:
            lines.insert(rng.randrange(len(lines) + 1), b"Host: sluice")
        method, version = (
            rng.choice((b"POST", b"POST", b"POST", b"post", b"GET", b"X")),
            rng.choice((b"1.1", b"1.1", b"1.0")),
        )
        first = b"%b /topics/%b HTTP/%b" % (method, topic.encode(), version)
        yield b"\r\n".join([first, *lines, b"", _body(rng)])


def _body(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return BODY
    whole = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    wrong = (
        b"5\r\nab",
        b"-1\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
        b"zz\r\n",
        b"1 \r\na\r\n0\r\n\r\n",
        b"",
        BODY[:-3],
        BODY * 2,
    )
    return rng.choice((BODY, BODY, whole, *wrong))
