"""One run of a maintenance job on Spark, in a process of its own, to be killed with its virtual machine and workers.

    python -m tests.support.spark_job_kills '{"job": "merge", "root": …, "arguments": […], "work": …, "at": 7}'

`at`: it kills itself before or after this write of the driver; 0: it runs until it is done, or is killed from outside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from tests.support.job_kills import Killing
from tests.support.logs import small_settings

RUN_S, LOOK_S = 240.0, 0.01


def settings_of(root: Path | str) -> Any:
    return small_settings(str(root), fsync=True, compaction_in_process_max_bytes=0)


def main(spec: dict[str, Any]) -> None:
    from sluice.conf.settings import SparkSettings
    from sluice.conf.spark import QUICK_START, spark_session
    from sluice.jobs import cluster, stored_cluster
    from sluice.jobs.work import DONE, NOTHING
    from sluice.log_store.store import open_store
    from tests.support.jobs import ran

    def opened(*arguments: Any, **options: Any) -> Any:
        store = open_store(*arguments, **options)
        return Killing(store, spec["at"], after=spec["after"]) if spec["at"] else store

    cluster.open_store = stored_cluster.open_store = opened  # type: ignore[attr-defined]
    work = {name: f"{spec['work']}/{name}" for name in ("warehouse", "local")}
    extra = QUICK_START | {"spark.sql.warehouse.dir": work["warehouse"], "spark.local.dir": work["local"]}
    options = SparkSettings(master="local[2]", driver_memory="1g", shuffle_partitions=2)
    spark = spark_session(options, spec["job"], extra)
    spark.sparkContext.setLogLevel("OFF")
    report = ran(
        spec["job"], spec["root"], *spec["arguments"], settings=settings_of(spec["root"]), spark=lambda: spark
    ).report
    assert report.outcome in (DONE, NOTHING), report
    spark.stop()


def run_and_kill(spec: dict[str, Any], enough: Callable[[], bool]) -> bool:
    """Whether it was killed: by itself, or because it has done enough. One that was faster must have ended well."""
    command = [sys.executable, "-m", "tests.support.spark_job_kills", json.dumps(spec)]
    job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(job.stderr or ()))
    reader.start()
    deadline, pause = monotonic() + RUN_S, threading.Event()
    try:
        while job.poll() is None and not enough():
            assert monotonic() < deadline, "the job did not come that far in time"
            pause.wait(LOOK_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # the virtual machine too: it is never left behind
        job.wait(30)
        reader.join(30)
        assert job.stderr is not None
        job.stderr.close()
    assert job.returncode in (0, -signal.SIGKILL), "".join(said[-60:])
    return job.returncode != 0


def data_files(root: Path) -> int:
    return sum(1 for _ in root.glob("topics/*/*/*.parquet"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
