from __future__ import annotations

import pytest

from sluice.api import known_heads
from sluice.api.known_heads import Head, KnownHeads

HEADERS = [(b"host", b"sluice"), (b"content-length", b"2")]
HEAD = b"POST /topics/t HTTP/1.1\r\nHost: sluice\r\nContent-Length: 2\r\n\r\n"


@pytest.fixture
def heads() -> KnownHeads:
    made = KnownHeads()
    made.learn(HEAD + b"{}", b"POST", b"/topics/t", HEADERS, 2)
    return made


def test_the_same_head_is_known_with_another_body(heads: KnownHeads) -> None:
    assert heads.find(HEAD + b"[]") == (Head(b"POST", b"/topics/t", HEADERS, 2), b"[]")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEAD, id="the body is yet to come"),
        pytest.param(HEAD + b"{", id="half a body"),
        pytest.param(HEAD + b"{}" + HEAD + b"{}", id="two requests"),
        pytest.param(HEAD[:-2], id="half a head"),
        pytest.param(HEAD.replace(b"sluice", b"Sluice") + b"{}", id="another head"),
        pytest.param(b"\r\n" + HEAD + b"{}", id="an empty line before it"),
        pytest.param(b"\r\n\r\n" + HEAD + b"{}", id="two of them"),
        pytest.param(b"x" * 10_000, id="no head at all"),
    ],
)
def test_whatever_is_not_exactly_one_such_request_is_for_the_parser(heads: KnownHeads, data: bytes) -> None:
    assert heads.find(data) is None


@pytest.mark.parametrize("before", [b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n"])
def test_lines_before_a_request_are_not_learned(before: bytes) -> None:
    heads = KnownHeads()
    heads.learn(before + HEAD + b"{}", b"POST", b"/topics/t", HEADERS, 2)
    assert heads.find(b"\r\n\r\n" + HEAD + b"{}") is None
    assert heads.find(HEAD + b"{}") is None or before == b"\r\n"


def test_the_table_is_bounded(heads: KnownHeads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_heads, "MOST", 10)
    for number in range(100):
        heads.learn(b"GET /%d HTTP/1.1\r\n\r\n" % number, b"GET", b"/%d" % number, [], 0)
        assert len(heads._heads) <= 10
    long = b"GET / HTTP/1.1\r\nx: " + b"x" * known_heads.HEAD_MOST_BYTES + b"\r\n\r\n"
    heads.learn(long, b"GET", b"/", [], 0)
    assert heads.find(long) is None
