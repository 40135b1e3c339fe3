"""Clients that send too much, too slowly or too often, byte by byte on a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

import pytest

from tests.http.checks import V3, error_of
from tests.http.conftest import App
from tests.http.raw import WAIT_S, Raw, connected, refusal_of
from tests.support.logs import eventually
from tests.support.server import Server, running

CONNECTIONS = 10
HASTY = {
    "SLUICE_HEADER_TIMEOUT_MS": "1000",
    "SLUICE_REQUEST_TIMEOUT_MS": "600",
    "SLUICE_STREAM_TIMEOUT_MS": "1000",
    "SLUICE_KEEP_ALIVE_TIMEOUT_MS": "1000",
    "SLUICE_SEND_TIMEOUT_MS": "1000",
}
TIGHT = {
    "SLUICE_HEADER_MAX_BYTES": "4 KiB",
    "SLUICE_HEADER_MAX_COUNT": "20",
    "SLUICE_URL_MAX_BYTES": "1 KiB",
    "SLUICE_REQUEST_MAX_BYTES": "256 KiB",
    "SLUICE_MAX_CONNECTIONS": str(CONNECTIONS),
}


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("limits") / "root", **TIGHT) as found:
        yield found


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """For what has to be late: on a busy machine others would be, too."""
    with running(tmp_path_factory.mktemp("times") / "root", **HASTY) as found:
        yield found


@pytest.fixture
def raw(tight: Server) -> Iterator[Raw]:
    with connected(tight.url) as found:
        yield found


@pytest.fixture
def late(hasty: Server) -> Iterator[Raw]:
    with connected(hasty.url) as found:
        yield found


def healthy(server: Server) -> bool:
    return server.client.get("/healthz").status_code == 200


# --- sizes ---------------------------------------------------------------------------------------


def test_one_header_that_never_ends_is_cut(raw: Raw, tight: Server) -> None:
    raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
    try:
        for _ in range(200):
            raw.send(b"a" * 1000)
    except ConnectionError:
        pass
    refusal_of(raw.until_closed(), 431)
    assert healthy(tight)


@pytest.mark.parametrize(
    "headers",
    [
        b"X-Long: " + b"a" * 4100 + b"\r\n",
        b"".join(b"X-%d: %s\r\n" % (n, b"a" * 400) for n in range(11)),
        b"".join(b"X-%d: a\r\n" % n for n in range(20)),
    ],
    ids=["one large", "large together", "many"],
)
def test_headers_have_a_size_and_a_number(raw: Raw, headers: bytes) -> None:
    raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
    assert refusal_of(raw.until_closed(), 431)["error"] == "INVALID_REQUEST"


def test_headers_up_to_the_limit_pass(raw: Raw) -> None:
    raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 4000 + b"\r\n\r\n")
    assert raw.answer()[0] == 200


@pytest.mark.parametrize("pieces", [1, 20])
def test_a_url_has_a_length(raw: Raw, pieces: int) -> None:
    try:
        raw.send(b"GET /topics?")
        for _ in range(pieces):
            raw.send(b"x" * (2000 // pieces))
        raw.send(b" HTTP/1.1\r\n\r\n")
    except ConnectionError:
        pass
    assert refusal_of(raw.until_closed(), 414)["details"] == {"field": "URL"}


@pytest.mark.parametrize("text", [b"\x16\x03\x01\x02\x00\x01", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_refused_in_our_shape(raw: Raw, text: bytes) -> None:
    raw.send(text)
    assert refusal_of(raw.until_closed(), 400)["error"] == "INVALID_REQUEST"


def test_a_chunked_body_without_end_is_cut_at_the_limit(raw: Raw, tight: Server) -> None:
    raw.send(b"POST /topics/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    for _ in range(5):
        raw.send(chunk)
    assert refusal_of(raw.until_closed(), 413)
    assert healthy(tight)


@pytest.mark.parametrize("start", [b"0\r\nX-Trailer: ", b"1;extension="], ids=["trailer", "chunk extension"])
def test_what_stands_around_a_body_has_an_end_too(raw: Raw, tight: Server, start: bytes) -> None:
    raw.send(b"POST /topics/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + start)
    with suppress(ConnectionError):
        for _ in range(200):
            raw.send(b"a" * 1000)
    assert raw.until_closed().startswith(b"HTTP/1.1 431")
    assert healthy(tight)


def test_many_small_chunks_are_fine(tight: Server) -> None:
    body = b'{"records":[{"value":"%s"}]}' % (b"x" * 3000)
    answer = tight.client.post("/topics/small", content=(body[n : n + 1] for n in range(len(body))))
    assert answer.status_code == 200, answer.text


def test_a_declared_length_is_refused_before_a_byte_is_read(raw: Raw) -> None:
    raw.send(b"POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
    assert raw.answer()[0] == 413


# --- times ---------------------------------------------------------------------------------------


def dripped(raw: Raw, drop: bytes) -> bytes:
    """What a client is told that sends one drop after the other; what drips must buy it no time."""
    begun = monotonic()
    raw.socket.settimeout(0.05)
    while monotonic() - begun < WAIT_S:
        try:
            raw.send(drop)
            found = raw.socket.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
        raw.socket.settimeout(WAIT_S)
        return found + raw.until_closed()
    raise AssertionError("it may go on for ever")


def test_a_connection_that_says_nothing_is_closed(late: Raw) -> None:
    assert late.until_closed() == b""


def test_a_head_that_drips_is_told_so(late: Raw) -> None:
    late.send(b"GET /healthz HTTP/1.1\r\n")
    assert refusal_of(dripped(late, b"X-A: b\r\n"), 408)["error"] == "REQUEST_TIMED_OUT"


def test_empty_lines_buy_no_time(late: Raw) -> None:
    late.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert late.answer()[0] == 200
    assert dripped(late, b"\r\n") == b""


def test_an_idle_connection_is_closed(late: Raw) -> None:
    late.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert late.answer()[0] == 200
    assert late.until_closed() == b""


@pytest.mark.parametrize("path", ["/topics/t", f"{V3}/topics"])
def test_a_body_that_drips_is_answered_408(late: Raw, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    late.send(head.encode())
    found = dripped(late, b" ")
    assert found.startswith(b"HTTP/1.1 408"), found
    assert b"REQUEST_TIMED_OUT" in found
    assert b'"field":"body"' in found


def test_a_body_that_does_not_come_is_answered_408(late: Raw) -> None:
    body = b'{"records":[{"value":1}]}'
    head = "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    late.send(f"{head}{len(body)}\r\n\r\n".encode() + body[:-1])
    assert late.answer()[0] == 408


def test_a_silent_stream_of_records_is_ended(hasty: Server) -> None:
    hasty.client.post(f"{V3}/topics", json={"topic_name": "stream"})
    record = b'{"value":{"type":"STRING","data":"a"}}'
    with connected(hasty.url) as raw:
        head = f"POST {V3}/topics/stream/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        raw.send(head.encode() + b"%x\r\n%s\r\n" % (len(record), record))
        found = raw.until_closed()
    assert b'"offset":0' in found
    assert b"REQUEST_TIMED_OUT" in found


def test_a_silent_stream_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server, connected(server.url) as raw:
        record = b'{"value":{"type":"STRING","data":"a"}}'
        head = f"POST {V3}/topics/t/records HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        raw.send(head.encode() + b"%x\r\n%s\r\n" % (len(record), record))
        assert raw.answer()[0] == 200
        assert server.terminate() == 0, "it ends long before a stream may be silent no longer"
        raw.until_closed()


def test_an_upgrade_that_nobody_offers_is_an_ordinary_request(raw: Raw) -> None:
    raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert raw.answer()[0] == 200


def test_pipelined_requests_are_answered_in_order_and_garbage_after_them_is_not_an_answer(raw: Raw) -> None:
    get = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: %d\r\n\r\n"
    raw.send(get % 1 + get % 2)
    found = b""
    while found.count(b'{"status":"ok"}') < 2:
        found += raw.socket.recv(65536)
    assert found.index(b"x-request-id: 1") < found.index(b"x-request-id: 2")
    raw.send(b"\x00\x01 garbage\r\n\r\n")
    refusal_of(raw.until_closed(), 400)


def test_an_answer_that_nobody_reads_is_given_up(hasty: Server) -> None:
    big = "x" * 200_000
    for _ in range(40):
        hasty.client.post("/topics/big/partitions/0", json={"records": [{"value": big}]})
    path = f"{V3}/topics/big/partitions/0/records?offset=0&max_bytes=8000000&max_records=1000"
    with connected(hasty.url) as slow:
        slow.socket.setsockopt(1, 8, 4096)  # SOL_SOCKET, SO_RCVBUF
        slow.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

        def reset() -> bool:
            try:
                slow.send(b"\r\n")
            except ConnectionError:
                return True
            return False

        eventually(reset)


# --- numbers -------------------------------------------------------------------------------------


def test_too_many_connections_are_refused_but_health_is_answered(tight: Server) -> None:
    tight.client.close()
    with ExitStack() as stack:
        early = stack.enter_context(connected(tight.url))
        early.send(b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert early.answer()[0] == 200
        held = [stack.enter_context(connected(tight.url)) for _ in range(CONNECTIONS)]
        for one in held:
            one.send(f"GET {V3}/topics/hold/partitions/0/records?offset=0 HTTP/1.1\r\n".encode())
        late = stack.enter_context(connected(tight.url))
        late.send(b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n")
        status, headers, body = late.answer()
        assert status == 429
        assert (headers["retry-after"], headers["connection"]) == ("1", "close")
        assert json.loads(body)["error"] == "THROTTLING_QUOTA_EXCEEDED"
        early.send(b"GET /topics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert early.answer()[0] == 200, "who was there first suffers from the crowd"
        probe = stack.enter_context(connected(tight.url))
        for path in (b"/healthz", b"/readyz", b"/metrics"):
            probe.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert probe.answer()[0] == 200
    tight.client = type(tight.client)(base_url=tight.url, timeout=60)
    eventually(lambda: tight.client.get("/topics").status_code == 200)


def test_requests_at_work_are_bounded(app: App) -> None:
    app.service.active = app.service.settings.max_requests
    error_of(app.call("GET", "/topics"), 429)
    assert app.call("GET", "/healthz").status_code == 200
    app.service.active -= 1
    assert app.call("GET", "/topics").status_code == 200
    assert app.service.active == app.service.settings.max_requests - 1


def test_refusals_of_connections_are_counted(raw: Raw, tight: Server) -> None:
    raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 4100 + b"\r\n\r\n")
    refusal_of(raw.until_closed(), 431)
    text = tight.client.get("/metrics").text
    assert 'sluice_http_requests_total{method="OTHER",route="unparsed",status="431"}' in text


# --- what a client accepts and sends ---------------------------------------------------------------

V2 = "application/vnd.kafka.v2+json"
JSON = "application/json"


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("*/*", JSON),
        (JSON, JSON),
        (V2, V2),
        (f"{V2}, application/json", JSON),
        (f"{V2}, application/json;q=0.9", V2),
        (f"{V2};q=0.5, application/*;q=0.8", JSON),
        (f"text/html, {V2};q=0.1", V2),
        ("application/json;q=0, */*", V2),
    ],
)
def test_v2_answers_carry_the_type_that_was_asked_for(app: App, accept: str, answered: str) -> None:
    app.log.create_topic("t")
    for path in ("/topics", "/brokers", "/topics/t/partitions/0/offsets"):
        answer = app.call("GET", path, headers={"Accept": accept})
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, answered)
    made = app.call("POST", "/topics/t", json={"records": [{"value": 1}]}, headers={"Accept": accept})
    assert (made.status_code, made.headers["Content-Type"]) == (200, answered)


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/topics", "text/html"),
        ("/topics", "application/json;q=0"),
        (f"{V3}/topics", V2),
        (f"{V3}/topics", "application/xml, text/*"),
    ],
)
def test_an_accept_that_nobody_can_serve_is_406(app: App, path: str, accept: str) -> None:
    assert error_of(app.call("GET", path, headers={"Accept": accept}), 406)["details"] == {"field": "Accept"}


def test_arrow_errors_are_json_and_other_pages_do_not_negotiate(app: App) -> None:
    headers = {"Accept": "application/vnd.apache.arrow.stream"}
    missing = app.call("GET", f"{V3}/topics/none/partitions/0/records?offset=0", headers=headers)
    assert missing.headers["Content-Type"] == JSON
    assert app.call("GET", "/docs", headers={"Accept": "text/html"}).status_code == 200
    assert app.call("GET", "/metrics", headers={"Accept": "text/plain"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/topics/t"),
        ("POST", f"{V3}/topics/t/records"),
        ("POST", f"{V3}/topics/t/records:batch"),
        ("POST", f"{V3}/topics"),
        ("PUT", f"{V3}/topics/t/configs/retention.ms"),
        ("POST", f"{V3}/quotas"),
    ],
)
def test_a_body_of_an_unknown_type_is_415(app: App, method: str, path: str) -> None:
    app.log.create_topic("t")
    refused = app.call(method, path, content=b"<a/>", headers={"Content-Type": "application/xml"})
    assert error_of(refused, 415)["details"] == {"field": "Content-Type"}
