"""What a person or a supervisor sees of a job: a progress bar, a stop between two steps, a schedule that is served."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.conf.settings import Settings
from sluice.jobs.__main__ import main
from sluice.jobs.framework import run_job
from sluice.jobs.output import Output, Progress
from sluice.jobs.registry import job_named
from sluice.jobs.work import DONE, STOPPED
from sluice.log_store.errors import StorageError
from sluice.log_store.job_reports import last_report
from sluice.log_store.store import open_store
from tests.support.faulty_store import FaultyStore
from tests.support.jobs import options_of, ran
from tests.support.logs import append, folder_cluster, timed

HOUR = 3_600_000
TOPICS = 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three topics, each with a segment that retention takes, seen from an hour after."""
    with folder_cluster(tmp_path / "root") as cluster:
        log = cluster.open()
        for number in range(TOPICS):
            log.create_topic(f"t{number}", configs={"segment.ms": 1, "retention.ms": HOUR})
            append(log, f"t{number}", 0, timed(1_000_000_000_000))
        log.close()
    return tmp_path / "root"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.TextIOWrapper, int]]:
    """What is written to it can be read from the descriptor."""
    monkeypatch.setenv("TERM", "xterm")
    shown, written = pty.openpty()
    with open(written, "w", encoding="utf-8") as screen:
        yield screen, shown
    os.close(shown)


def test_a_terminal_shows_how_far_it_is_and_a_pipe_nothing(terminal: tuple[io.TextIOWrapper, int]) -> None:
    screen, shown = terminal
    progress = Progress(Output(err=screen), "merge")
    with progress.over(3):
        progress.advance()
        progress.advance()
    seen = b""
    while not re.search(rb"merge.*2/3", seen, re.DOTALL):  # a terminal hands it over in pieces
        assert select.select([shown], [], [], 20)[0], seen
        seen += os.read(shown, 65_536)
    pipe = io.StringIO()
    progress = Progress(Output(err=pipe), "merge")
    with progress.over(3):
        progress.advance(3)
    assert pipe.getvalue() == ""


def test_a_stop_comes_between_two_steps_and_the_next_run_goes_on(root: Path) -> None:
    options, output = options_of("retention", root), Output(out=io.StringIO(), err=io.StringIO())
    asked = iter([False, False, True])
    report = run_job(job_named("retention"), options, Settings(), output=output, stopping=lambda: next(asked))
    assert (report.outcome, report.done, report.planned) == (STOPPED, 2, TOPICS)
    stored = last_report(open_store(root), "retention")
    assert stored is not None
    assert (stored["outcome"], stored["done"]) == (STOPPED, 2)
    report = ran("retention", root).report
    assert (report.outcome, report.done) == (DONE, 1)


def test_a_stopped_run_is_exit_code_1(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As SIGTERM does it."""
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr("sluice.jobs.command_line.stop_on_signals", lambda: stop)
    assert main(["run", "retention", "--root", str(root), "--json"]) == 1


def test_a_report_that_cannot_be_kept_fails_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification where only reading is allowed."""

    def read_only(*given: object, **options: object) -> FaultyStore:
        store = FaultyStore(open_store(*given, **options))  # type: ignore[arg-type]
        store.fail_before("replace", times=None, error=StorageError("read-only"))
        return store

    monkeypatch.setattr("sluice.jobs.cluster.open_store", read_only)
    assert ran("verify", root, "--in-process").report.outcome == DONE
    assert not (root / "_sluice/jobs/verify").exists()


def test_a_schedule_serves_metrics_and_stops_in_order(root: Path) -> None:
    command = [sys.executable, "-m", "sluice.jobs", "schedule", "--root", str(root), "--metrics-port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = ""
        while "jobs on their schedules" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        address = re.search(r"http://\S+/metrics", said)
        assert address is not None, said
        with urllib.request.urlopen(address[0], timeout=20) as answer:
            metrics = answer.read().decode()
        due = re.search(r'sluice_job_next_run_timestamp_seconds\{job="retention"\} (\S+)', metrics)
        assert due is not None, metrics
        assert time.time() - 5 < float(due[1]) < time.time() + 3_600
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert "stopped" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def test_a_wrong_schedule_is_exit_code_2_and_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_JOBS_SCHEDULE_MERGE", "0 2 * * * --level nine")
    assert main(["schedule", "--root", str(root)]) == 2
    assert "jobs.schedule.merge" in capsys.readouterr().err
