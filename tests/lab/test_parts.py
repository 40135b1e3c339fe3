"""The parts of the lab do what they say: a history survives its writer, the front breaks, files are torn lawfully."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.store import StoreError, StoreNotFound, open_store
from tests.lab.chart import charts
from tests.lab.front import Front
from tests.lab.history import Recorder, load
from tests.lab.storage import set_aside
from tests.lab.store_faults import StoreFaults, struck
from tests.lab.torn import tear_commit, tear_wal
from tests.support.harness import SMALL, Process, check, settings_of
from tests.support.server import Server, running


def test_a_killed_client_loses_nothing_that_it_wrote(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from tests.lab.history import Recorder\n"
        "r = Recorder(Path(sys.argv[1])); r.invoke('a', 'read').ok(rows=[1]); r.invoke('a', 'read')\n"
        'os.write(r._fd, b\'{"t": 1, "wh\'); os.kill(os.getpid(), signal.SIGKILL)'
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.jsonl")], check=False)
    assert done.returncode == -signal.SIGKILL
    Recorder(tmp_path / "b.jsonl").note("b", "two", since=0, until=1)
    events = load(tmp_path)
    assert [event["is"] for event in events] == ["invoke", "ok", "invoke", "note"]
    assert [event["op"] for event in events[:3]] == ["a#0", "a#0", "a#1"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("front") / "root") as found:
        yield found


def test_the_front_relays_and_breaks(server: Server) -> None:
    front = Front(1)
    front.start()
    try:
        with httpx.Client(base_url=front.url, timeout=20) as http:
            with pytest.raises(httpx.TransportError):
                http.get("/healthz")  # nobody is behind it
            front.targets = (httpx.URL(server.url).port or 0,)
            assert http.get("/healthz").is_success
            front.broken = 1.0
            with pytest.raises(httpx.TransportError):
                http.get("/v3/clusters/-/topics")
            front.broken = 0.0
            front.delay_s = 0.1
            began = time.monotonic()
            assert http.get("/healthz").is_success
            assert time.monotonic() - began >= 0.2
    finally:
        front.stop()


def test_a_cut_connection_is_reset() -> None:
    """Not ended in order: a client may not take what it has for the whole answer."""
    front = Front(1)
    front.start()
    with socket.create_server(("127.0.0.1", 0)) as behind, socket.socket() as client:
        client.settimeout(20)
        try:
            front.targets = (behind.getsockname()[1],)
            client.connect(("127.0.0.1", front.port))
            server, _ = behind.accept()
            with server:
                server.settimeout(20)
                client.sendall(b"a")
                assert server.recv(1) == b"a"
                server.sendall(b"b")
                assert client.recv(1) == b"b"
                front.cut()
                for one in (client, server):
                    with pytest.raises(ConnectionResetError):
                        one.recv(1)
        finally:
            front.stop()


def test_a_store_fails_while_it_is_told_to(tmp_path: Path) -> None:
    faults = StoreFaults(tmp_path / "faults")
    store = struck(open_store(tmp_path / "root"), faults.path)
    store.put("a.parquet", b"a")
    faults.set("fail", "data", 1.0)
    with pytest.raises(StoreError):
        store.put("b.parquet", b"b")
    store.put("t/_delta_log/0.json", b"{}")
    faults.set("apply-and-fail", "commits", 1.0)
    with pytest.raises(StoreError):
        store.put_if_absent("t/_delta_log/1.json", b"{}")
    assert faults.hits == 2
    faults.set("slow", "all", 1.0, delay=0.1)
    began = time.monotonic()
    assert [listed.name for listed in store.list("t/_delta_log")] == ["0.json", "1.json"]
    assert time.monotonic() - began >= 0.1
    faults.clear()
    with pytest.raises(StoreNotFound):
        store.get("b.parquet")
    assert (store.get("a.parquet"), faults.hits) == (b"a", 3)
    faults.close()


def test_torn_files_are_repaired(tmp_root: Path, tmp_path: Path) -> None:
    """What the nemesis tears is what recovery must mend: nothing that was acknowledged is lost."""
    history, wal = tmp_path / "history.jsonl", tmp_root / "_sluice" / "wal"
    settings = SMALL | {"sync_interval_ms": 300}
    torn = []
    tears = (("empty", "commit"), ("line", "commit"), ("garbage", "commit"), ("half", "data"), ("zeros", "data"))
    for number, (how, what) in enumerate(tears):
        process = Process(tmp_root, history, producers=[[f"p{number}", "plain", "all", 0]], settings=settings)
        process.wait_for("ack", count=60)
        process.kill()
        torn += [tear_wal(wal, 100, number), tear_commit(tmp_root, wal, how, number, what)]
    with LogStore.open(settings_of(str(tmp_root), **settings)):
        pass  # what stock readers see is right once a leader has recovered
    check(tmp_root, history)
    assert all(" bytes at " in one for one in torn[::2]), torn
    assert any("commit of version " in one for one in torn[1:6:2]), torn
    assert any("data of version " in one for one in torn[7::2]), torn


def test_values_set_aside_are_found_in_their_files(tmp_path: Path) -> None:
    cut = tmp_path / "wal-1" / "cut"
    cut.mkdir(parents=True)
    (cut / "a.wal").write_bytes(b"\0\1json-1.p1.0:12:3arrow-1.p1.0:7:0\xff" + b'"each-1.p2.1:0:1"' + os.urandom(9))
    found = list(set_aside(tmp_path / "wal"))
    assert found[:3] == ["json-1.p1.0:12:3", "arrow-1.p1.0:7:0", "each-1.p2.1:0:1"]


def test_charts_are_svg() -> None:
    drawn = charts("a < b", [0, 30, 60], {"memory": [1, 5, 3], "files": [0, 0, 0]})
    assert len(ElementTree.fromstring(drawn).findall("{*}polyline")) == 2
