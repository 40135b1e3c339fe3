"""kill -9 of a Spark driver that writes, whose tasks fail and are retried besides: every row is in the log once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest

from tests import counts
from tests.http.checks import V3
from tests.support.server import Server, running

FILES, LINES, PARTITIONS, TOPIC = 3, 2_000, 2, "t"
JOB_S, LOOK_S = 400.0, 0.05


def end_offsets(server: Server) -> int:
    found = [server.client.get(f"/topics/{TOPIC}/partitions/{p}/offsets").json() for p in range(PARTITIONS)]
    return sum(one["end_offset"] for one in found)


def wait_for_rows(server: Server, job: subprocess.Popen[str], count: int) -> None:
    """Or for the end of the job. Looks now and then: the job needs the processor."""
    deadline, pause = monotonic() + JOB_S, threading.Event()
    while job.poll() is None and end_offsets(server) < count:
        assert monotonic() < deadline, "the job did not come that far in time"
        pause.wait(LOOK_S)


def rows(server: Server) -> Counter[str]:
    found: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        offset, path = 0, f"{V3}/topics/{TOPIC}/partitions/{partition}/records"
        while True:
            query = {
                "offset": offset,
                "max_wait_ms": 0,
                "max_records": 100_000,
                "max_bytes": 1 << 26,
                "format": "string",
            }
            page = server.client.get(path, params=query).json()
            found.update(record["value"] for record in page["data"])
            if page["next_offset"] >= page["high_watermark"]:
                break
            offset = page["next_offset"]
    return found


def start(server: Server, folder: Path) -> subprocess.Popen[str]:
    job = {
        "server": server.url,
        "topic": TOPIC,
        "incoming": str(folder / "in"),
        "checkpoint": str(folder / "checkpoint"),
        "work": str(folder / "work"),
    }
    command = [sys.executable, "-m", "tests.support.sink_job", json.dumps(job)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


def kill(job: subprocess.Popen[str]) -> None:
    """The driver, its virtual machine and all its Python workers."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(30)
    assert job.stdout is not None
    job.stdout.close()


@pytest.mark.full
def test_a_killed_driver_and_failing_tasks_lose_and_double_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    expected: Counter[str] = Counter()
    for number in range(FILES):
        lines = [f"{number}-{line}-{'x' * 90}" for line in range(LINES)]
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        expected.update(lines)
    dice = random.Random(3)
    with running(tmp_path / "root") as server:
        created = server.client.post(f"{V3}/topics", json={"topic_name": TOPIC, "partitions_count": PARTITIONS})
        assert created.status_code == 201
        for number in range(counts.SINK_DRIVER_KILLS):
            job = start(server, tmp_path)
            try:
                # From nothing appended to nearly everything: in the middle of a batch, or between two.
                reached = dice.randrange(1, FILES * LINES * (number + 1) // (counts.SINK_DRIVER_KILLS + 1))
                wait_for_rows(server, job, reached)
            finally:
                kill(job)
        job = start(server, tmp_path)
        try:
            said, _ = job.communicate(timeout=JOB_S)
        except subprocess.TimeoutExpired:
            kill(job)
            raise
        assert job.returncode == 0, said
        query = json.loads(said.splitlines()[-1])["query"]
        assert rows(server) == expected
        assert server.client.get(f"{V3}/sinks/{query}").json()["last_batch_id"] == FILES - 1
