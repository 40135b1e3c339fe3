"""A server is started, watched, killed and started again by its own process id; one that ends by itself says why."""

from __future__ import annotations

import socket
import sys
import uuid
from pathlib import Path

import pytest

from bench.peers.kafka import format_arguments
from bench.peers.servers import PORTS, Server, Settling, free_port

RUNS = "import signal; print('ready', flush=True); signal.pause()"


def said(path: Path) -> int:
    return path.read_text().count("ready")


def test_it_is_killed_and_started_again_as_another_process(tmp_path: Path):
    output = tmp_path / "out"
    server = Server([sys.executable, "-c", RUNS], output)
    try:
        server.start()
        server.until(lambda: said(output) == 1, 30)
        first = server.pid
        assert 0 < server.rss_mib <= server.peak_mib
        assert server.cpu_s >= 0
        server.kill()
        assert not Path(f"/proc/{first}").exists()
        server.start()
        server.until(lambda: said(output) == 2, 30)
        assert server.pid != first
    finally:
        server.stop()
    server.stop()


def test_one_that_ends_by_itself_is_not_waited_for(tmp_path: Path):
    server = Server([sys.executable, "-c", "raise SystemExit('no such port')"], tmp_path / "out")
    server.start()
    try:
        with pytest.raises(RuntimeError, match=r"ended by itself: no such port"):
            server.until(lambda: False, 30)
    finally:
        server.stop()


def test_one_that_is_never_ready_is_given_up(tmp_path: Path):
    server = Server([sys.executable, "-c", RUNS], tmp_path / "out")
    server.start()
    try:
        with pytest.raises(RuntimeError, match=r"not ready after 0\.05 s"):
            server.until(lambda: False, 0.05)
    finally:
        server.stop()


def test_a_free_port_can_be_bound_and_is_none_that_the_system_gives_away():
    port = free_port()
    assert port in PORTS
    with socket.socket() as mine:
        mine.bind(("127.0.0.1", port))


class Working:
    """Takes a whole core for so many looks at it."""

    def __init__(self, looks: float) -> None:
        self._left, self._spent = looks, 0.0

    @property
    def cpu_s(self) -> float:
        self._left -= 1
        self._spent += 1.0 if self._left > 0 else 0.0
        return self._spent


def test_a_run_waits_until_the_servers_are_idle_and_pages_are_written(monkeypatch: pytest.MonkeyPatch):
    synced: list[int] = []
    busy = Working(looks=5)
    monkeypatch.setattr("os.sync", lambda: synced.append(busy._left <= 0))
    settle = Settling([Working(looks=0), busy], limit_s=30, look_s=0.001)
    settle()
    assert synced == [True]
    assert (settle.runs, settle.gave_up) == (1, 0)


def test_how_often_waiting_was_given_up_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.sync", lambda: None)
    settle = Settling([Working(looks=float("inf"))], limit_s=0.02, look_s=0.001)
    settle()
    settle()
    assert settle.gave_up == 2
    assert "before each of 2 runs" in settle.note
    assert "up to 0.02 s" in settle.note
    assert "2 times they were still at work" in settle.note


def test_an_id_that_begins_with_a_minus_is_no_option() -> None:
    arguments = format_arguments(uuid.UUID(bytes=b"\xf8" + bytes(15)), Path("server.properties"))
    assert "--cluster-id=-AAAAAAAAAAAAAAAAAAAAA" in arguments
