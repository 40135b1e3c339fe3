"""A Spark standalone cluster on loopback: a master and two workers, each a process of its own, stopped by its id."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from sluice.conf.settings import SparkSettings
from sluice.conf.spark import delta_jars
from tests.support.ports import free_ports
from tests.support.quick_jvm import SPARK_HOME, java_command, java_options

READY_S = 180.0
WORKERS, PROGRAMS = 2, 2
"""How many workers, and for how many programs at a time each has room."""


@dataclass(frozen=True, slots=True)
class SparkCluster:
    url: str
    python: Path
    """An interpreter that has the libraries and not Sluice, for drivers and executors."""
    py_files: Path

    def submit(self, *confs: str) -> list[str]:
        """`spark-submit` in client mode, up to the program to run."""
        settings = {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(WORKERS),  # a task at a time on each worker, and room for another program
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.pyspark.python": str(self.python),
            "spark.pyspark.driver.python": str(self.python),
            "spark.driver.extraJavaOptions": java_options(),
            "spark.executor.extraJavaOptions": java_options(),
            **dict(conf.split("=", 1) for conf in confs),
        }
        jars = ",".join(map(str, delta_jars(SparkSettings())))
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, "--deploy-mode", "client"]
        command += ["--py-files", str(self.py_files), "--jars", jars]
        return command + [part for item in settings.items() for part in ("--conf", "=".join(item))]


def bare_python(folder: Path) -> Path:
    """Paths in .pth files do not bring their own .pth files along: the libraries, without our editable install."""
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "libraries.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")))
    return folder / "bin" / "python"


def cluster_environment(folder: Path) -> dict[str, str]:
    """Nothing of the tests' own environment that could make Sluice importable."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    return clean | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SCALA_VERSION": "2.13",  # Spark's scripts say it, without which a worker starts no executor
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
    }


@contextmanager
def spark_cluster(folder: Path, py_files: Path) -> Iterator[SparkCluster]:
    port, page = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    environment = cluster_environment(folder / "local")
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
    processes = [_start(master, folder, environment)]
    try:
        for number in range(WORKERS):
            work = [
                "--cores",
                str(PROGRAMS),
                "--memory",
                f"{640 * PROGRAMS}m",
                "--webui-port",
                "0",
                "--work-dir",
                str(folder / f"work-{number}"),
            ]
            processes.append(_start(["worker.Worker", "--host", "127.0.0.1", *work, url], folder, environment))
        _wait_ready(f"http://127.0.0.1:{page}/json/", processes, folder)
        yield SparkCluster(url, bare_python(folder / "venv"), py_files)
    finally:
        # Workers first: they end their executors.
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)


def _start(arguments: Sequence[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    name, *rest = arguments
    path = f"{SPARK_HOME}/conf/:{SPARK_HOME}/jars/*"  # as Spark's scripts say it
    command = [java_command(), "-Xmx256m", *java_options().split(), "-cp", path, f"org.apache.spark.deploy.{name}"]
    command += rest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def _wait_ready(page: str, processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            if httpx.get(page, timeout=5).json()["aliveworkers"] == WORKERS:
                return
        except (httpx.TransportError, ValueError):
            pass  # it does not listen yet, or has no such page yet
        log = (folder / "cluster.log").read_text()[-4000:]
        assert all(process.poll() is None for process in processes), log
        assert time.monotonic() < deadline, log
        time.sleep(0.2)
