"""Everything once, in front of your eyes: `make demo`.

Starts a service on a local folder, streams a shop's orders, payments and device readings into it over HTTP, reads the
orders with two Spark jobs of one consumer group, kills the service and one of the jobs on the way, resets and replays
the group, runs retention and key compaction, queries the topic with plain Delta SQL, and verifies every invariant of
the storage. It exits with 0 only if everything that it claims was checked and held.

It works in a temporary folder, or in the new or empty one that SLUICE_DEMO_DIR names and that is left for you to look
at. `make demo KEEP=1` leaves the service running.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import steps
from processes import ConsumerJob, Failed, Service
from report import Report, console, size
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from stream import Shop

from sluice.api.client import SluiceClient

SEED = 20_26


def bars() -> Progress:
    columns = (TextColumn("  {task.description:28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


class Demo:
    def __init__(self, work: Path) -> None:
        self.work = work
        self.root = work / "lake"
        self.root.mkdir(parents=True)
        self.report = Report()
        self.shop = Shop(SEED)
        # The jobs are to find something to do: otherwise the service compacts topics as small as these by itself.
        self.service = Service(self.root, work / "service.log", SLUICE_COMPACTION_IN_PROCESS_MAX_BYTES="0")
        self.jobs: list[ConsumerJob] = []

    def run(self) -> None:
        began = time.monotonic()
        self.report.part("1. A service on a local folder", "three topics, each partition a Delta table")
        self.service.start()
        with SluiceClient(self.service.url) as client:
            steps.create_topics(client)
            console.print(f"  listening on {self.service.url}")
            total = self._stream(client)
            self._after(client, total)
        self.report.figure("the whole demo", f"{time.monotonic() - began:.0f} s")

    def _stream(self, client: SluiceClient) -> int:
        """Produce and consume at the same time; how many orders there are."""
        report, service = self.report, self.service
        report.part("2. Two Spark jobs of one consumer group", "they write to a Delta table, exactly once")
        self.jobs = [steps.start_consumer(name, service, self.work) for name in ("a", "b")]
        report.part("3. Produce over HTTP", "JSON and Arrow, acks=all; the service is killed with kill -9 on the way")
        with bars() as progress:
            total = steps.produce_json(service, self.shop, progress, kill_at=steps.JSON_BATCHES // 2)
            rates = {
                topic: steps.produce_arrow(client, topic, make, progress)
                for topic, make in (
                    (steps.PAYMENTS, self.shop.payments),
                    (steps.DEVICES, self.shop.device_readings),
                )
            }
            ends = sum(row.latest for row in client.offsets(steps.ORDERS))
            acks = steps.ack_latencies(service.url, self.shop, progress)
            visible = steps.visible_latencies(service.url, self.root, progress)
        report.hold(
            "nothing acknowledged was lost, nothing repeated was stored twice", ends == total, f"{ends:,} orders"
        )
        total += steps.SINGLES
        arrow = 2 * steps.ARROW_BATCH * steps.ARROW_BATCHES
        report.figure("records produced", f"{total + arrow + steps.MARKERS:,}")
        report.figure("Arrow produce, acks=all", f"{max(rates.values()):,.0f} records/s")
        report.figure(f"ack of single orders, {steps.SINGLES_PER_S}/s, acks=all", steps.percentiles(acks))
        report.figure("produce to queryable by delta-rs", steps.percentiles(visible))
        self._kill_a_consumer(client)
        return total

    def _kill_a_consumer(self, client: SluiceClient) -> None:
        report, (first, second) = self.report, self.jobs
        lag = steps.Lag(self.service.url)
        try:
            both = lambda: len(steps.members_with_partitions(client)) == 2  # noqa: E731
            steps.eventually("both jobs have partitions", both, first, second)
            report.hold(
                "the two jobs share the partitions", True, str(sorted(steps.members_with_partitions(client).values()))
            )
            first.kill()
            console.print("  one of them is killed with kill -9, and more orders come")
            with bars() as progress:
                steps.ack_latencies(self.service.url, self.shop, progress)
            alone = lambda: list(steps.members_with_partitions(client).values()) == [steps.PARTITIONS]  # noqa: E731
            steps.eventually("the other job has all partitions", alone, second)
            steps.eventually("nothing is left to read", lambda: lag.now() == 0, second)
            report.hold("the other one took over its partitions and read to the end", True)
            report.hold("it stops when it is asked to", second.stop() == 0)
        finally:
            lag.close()
        report.figure("lag of the group over time", steps.lag_picture(lag))

    def _after(self, client: SluiceClient, total: int) -> None:
        from sluice.conf.settings import SparkSettings
        from sluice.conf.spark import QUICK_START, spark_session
        from sluice.streaming import register

        report, total = self.report, total + steps.SINGLES
        warehouse = {"spark.sql.warehouse.dir": str(self.work / "warehouse")}
        spark = spark_session(
            SparkSettings(driver_memory="1g", master="local[2]"), "sluice-demo", QUICK_START | warehouse
        )
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        try:
            steps.check_target(spark, self.work / "delta", total, report, "after both kills")
            report.part("4. Reset and replay")
            steps.replay(client, spark, self.service, self.work, total, report)
            report.part("5. Retention and key compaction")
            steps.maintain(client, self.service.url, self.root, self.shop, report)
            report.part("6. The log is the lake", "revenue by country, straight from the topic's tables")
            steps.query(spark, self.root, self.shop, report)
            report.part("7. Verify", "every numbered rule of docs/protocol.md, on every file and every row")
            report.hold("every invariant of the storage holds", steps.job("verify", self.root, "--no-notices") == 0)
        finally:
            spark.stop()
        report.figure("bytes of everything on disk", size(_bytes_under(self.root / "topics")))

    def close(self) -> None:
        for job in self.jobs:
            job.kill()
        self.service.stop()


def _bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        console.print("The demo runs Spark, which needs Java 17 or newer: set JAVA_HOME or put java on the PATH.")
        return 1
    chosen, keep = os.environ.get("SLUICE_DEMO_DIR"), os.environ.get("KEEP", "") not in ("", "0")
    work = Path(chosen) if chosen else Path(tempfile.mkdtemp(prefix="sluice-demo-"))
    if work.exists() and any(work.iterdir()):
        console.print(f"SLUICE_DEMO_DIR={work} is not empty: name a new or empty folder.")
        return 2
    demo = Demo(work)
    try:
        demo.run()
        demo.report.show()
        if keep:
            _stay(demo)
        return 1 if demo.report.failed else 0
    except Failed as failure:
        console.print(f"[red]{failure}[/]")
        return 1
    finally:
        demo.close()
        if chosen:
            console.print(f"Everything is in {work}; the tables in {demo.root}/topics.")
        else:
            shutil.rmtree(work, ignore_errors=True)


def _stay(demo: Demo) -> None:
    url = demo.service.url
    console.print(f"The service stays at {url} (OpenAPI {url}/docs, metrics {url}/metrics). Ctrl-C ends it.")
    console.print(f"The web console: {url}/console")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while not stop.wait(1.0):
        demo.service.check()


if __name__ == "__main__":
    sys.exit(main())
