"""What the service writes to standard error: whole lines, no secrets, no forgeries, within bounds."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api import access_log
from sluice.api.logging_lines import JsonLines, TextLines
from sluice.api.logging_setup import BURST, INTERVAL_S, QueuedLines, Repeats
from tests.http.checks import V3
from tests.http.conftest import App
from tests.support.logs import WAIT_S, eventually
from tests.support.server import QUICK

Json = dict[str, Any]


@contextmanager
def logged(folder: Path, **settings: str) -> Iterator[tuple[httpx.Client, Path]]:
    """A service whose standard error is a file. Stopped in order at the end."""
    folder.mkdir()
    log = folder / "stderr"
    command = [sys.executable, "-m", "tests.support.server", "--root", str(folder / "root"), "--port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | QUICK | settings
        )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert told.startswith("sluice listening on "), log.read_text()
        with httpx.Client(base_url=told.split()[-1], timeout=WAIT_S) as client:
            yield client, log
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


def lines(log: Path) -> list[Json]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """The log of a short life with something of everything."""
    folder = tmp_path_factory.mktemp("logs") / "json"
    with logged(folder, SLUICE_LOG_ACCESS_LEVEL="info") as (client, log):
        secret = {"Authorization": "Bearer sluice-secret", "X-Request-Id": "abc-1", "Sluice-Client-Id": "tester"}
        record = {"records": [{"value": "private-content"}]}
        assert client.post("/topics/t?acks=1", json=record, headers=secret).status_code == 200
        client.get("/topics/none?token=in-the-query", headers={"X-Request-Id": "abc-2"})
        client.get("/healthz", headers={"X-Request-Id": "abc-3"})
        client.get('/%0a{"level":"error","message":"forged"}', headers={"X-Request-Id": "abc-4"})
    return lines(log)


def one(told: list[Json], request_id: str) -> Json:
    (found,) = [line for line in told if line.get("request_id") == request_id]
    return found


def test_every_line_says_when_where_and_how_bad(told: list[Json]) -> None:
    for line in told:
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert line["time"].endswith("Z")


def test_an_access_line_has_it_all(told: list[Json]) -> None:
    line = one(told, "abc-1")
    assert line["logger"] == "sluice.access"
    assert {name: line[name] for name in ("method", "route", "status", "error", "client_id", "level")} == {
        "method": "POST",
        "route": "/topics/{t}",
        "status": 200,
        "error": None,
        "client_id": "tester",
        "level": "info",
    }
    assert line["ms"] > 0
    assert line["bytes_in"] > 20
    assert line["bytes_out"] > 20
    assert line["client"].startswith("127.0.0.1:")
    refused = one(told, "abc-2")
    assert (refused["status"], refused["error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_start_and_stop_are_told(told: list[Json]) -> None:
    messages = [line["message"] for line in told]
    (listening,) = [line for line in told if line["message"].startswith("listening on http://")]
    assert listening["cluster_id"]
    assert messages[-2].startswith("stopping")
    assert messages[-1].startswith("stopped")


def test_probes_are_for_debugging(told: list[Json]) -> None:
    assert not [line for line in told if line.get("request_id") == "abc-3"]


def test_nothing_private_and_nothing_forged(told: list[Json]) -> None:
    text = json.dumps(told)
    for private in ("sluice-secret", "private-content", "in-the-query", "Bearer"):
        assert private not in text
    assert not [line for line in told if line["message"] == "forged"]


def test_text_for_people(tmp_path: Path) -> None:
    with logged(tmp_path / "text", SLUICE_LOG_FORMAT="text", SLUICE_LOG_ACCESS_LEVEL="info") as (client, log):
        client.get("/topics", headers={"X-Request-Id": "abc"})
        eventually(lambda: "request_id=abc" in log.read_text())
    assert " INFO    sluice.access: GET /topics 200" in log.read_text()


def test_a_bug_is_logged_with_the_id_that_the_client_sees(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(app.log, "topics", lambda **_: 1 / 0)
    with caplog.at_level(logging.ERROR):
        answer = app.call("GET", "/topics")
    request_id = answer.headers["X-Request-Id"]
    traced = [record for record in caplog.records if record.exc_info]
    assert [record.fields["request_id"] for record in traced] == [request_id]
    (access,) = [record for record in caplog.records if record.name == "sluice.access"]
    assert (access.levelno, access.fields["request_id"]) == (logging.ERROR, request_id)


@pytest.mark.parametrize(
    ("status", "path", "level"),
    [
        (500, "/x", logging.ERROR),
        (503, "/readyz", logging.ERROR),
        (429, "/x", logging.WARNING),
        (404, "/x", logging.INFO),
        (200, "/x", logging.INFO),
        (200, "/metrics", logging.DEBUG),
    ],
)
def test_levels_of_requests(status: int, path: str, level: int) -> None:
    assert access_log.level_of(status, path) == level


# --- lines ---------------------------------------------------------------------------------------


def record_of(message: str, *, level: int = logging.WARNING, at: float = 0.0, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("x", level, "", 0, message, None, None)
    made.created = at
    if fields:
        made.fields = fields
    return made


@given(st.text(), st.text())
def test_whatever_a_client_sends_stays_on_one_line(message: str, field: str) -> None:
    record = record_of(message.replace("%", ""), path=field)
    for formatter in (JsonLines(), TextLines()):
        line = formatter.format(record)
        assert len(line.splitlines()) == 1
        assert line.isprintable()
    assert json.loads(JsonLines().format(record))["path"] == field


def test_a_traceback_cannot_pass_for_a_line() -> None:
    record = record_of("failed")
    record.exc_text = "ValueError: a\n2026-01-01T00:00:00Z ERROR forged"
    assert json.loads(JsonLines().format(record))["exception"] == record.exc_text
    assert all(line.startswith("  | ") for line in TextLines().format(record).splitlines()[1:])


# --- bounds --------------------------------------------------------------------------------------


def test_what_repeats_itself_is_counted_instead() -> None:
    repeats = Repeats()
    passed = [repeats.filter(record_of("full", at=n / 1000)) for n in range(1000)]
    assert sum(passed) == BURST
    later = record_of("full", at=INTERVAL_S + 1)
    assert repeats.filter(later)
    assert later.fields == {"suppressed": 1000 - BURST}
    assert repeats.filter(record_of("something else"))
    assert all(repeats.filter(record_of("access", level=logging.INFO)) for _ in range(1000))


def test_a_reader_that_never_reads_stops_nobody() -> None:
    held = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            held.wait(WAIT_S)
            return super().write(text)

    stream = Stuck()
    handler = QueuedLines(stream, lines=10)
    handler.setFormatter(JsonLines())
    for number in range(100):
        handler.handle(record_of(f"line {number}"))
    held.set()
    eventually(handler._queue.empty)
    handler.handle(record_of("after"))
    handler.close()
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert 10 <= len(written) <= 13
    assert sum(line.get("dropped_before", 0) for line in written) == 100 + 1 - len(written)
    assert written[-1]["message"] == "after"


def test_the_same_id_in_header_and_line_and_no_id_twice(app: App, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "sluice.access"):
        answers = [app.call("GET", f"{V3}/topics/none") for _ in range(3)]
    ids = [answer.headers["X-Request-Id"] for answer in answers]
    assert [record.fields["request_id"] for record in caplog.records if record.name == "sluice.access"] == ids
    assert len(set(ids)) == 3
