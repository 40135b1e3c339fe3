"""The steps of the demo, each of which checks what it claims."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from processes import ConsumerJob, Failed, Service
from report import Report, console, size, spark_line
from rich.progress import Progress
from stream import Shop

from sluice.api.client import SluiceClient
from sluice.log_store.errors import GroupIdNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, PAYMENTS, DEVICES = "orders", "payments", "devices"
PARTITIONS = 4
GROUP = "billing"
JSON_BATCH, JSON_BATCHES = 200, 150
ARROW_BATCH, ARROW_BATCHES = 10_000, 12
SINGLES, SINGLES_PER_S = 300, 100
MARKERS = 40
SMALL_SEGMENT = 128 << 10
WAIT_S = 180.0


def eventually(what: str, holds: Callable[[], bool], *processes: ConsumerJob | Service, every_s: float = 0.25) -> None:
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while not holds():
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            raise Failed(f"after {WAIT_S:.0f} s it is still not so that {what}")
        pause.wait(every_s)


# --- topics and produce ----------------------------------------------------------------------------


def create_topics(client: SluiceClient) -> None:
    client.topics.create(ORDERS, PARTITIONS)
    segments = {"segment.bytes": str(SMALL_SEGMENT)}
    client.topics.create(PAYMENTS, 2, {**segments, "retention.bytes": str(SMALL_SEGMENT)})
    compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    client.topics.create(DEVICES, 2, {**segments, **compaction})


class Lag:
    """How far behind the group is, sampled twice a second, in the background."""

    def __init__(self, url: str) -> None:
        self._client = SluiceClient(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)
        self.samples: list[int] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            # The service is killed on the way: then there is no sample.
            if (known := self.now()) is not None:
                self.samples.append(known)

    def now(self) -> int | None:
        try:
            return sum(row.lag or 0 for row in self._client.groups.lags(GROUP))
        except Exception:  # noqa: BLE001 - whatever it is, the next sample comes
            return None

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()


def produce_json(service: Service, shop: Shop, progress: Progress, *, kill_at: int | None = None) -> int:
    """Orders through an idempotent producer, which goes on when the service is killed and comes back."""
    task = progress.add_task("orders as JSON", total=JSON_BATCHES)
    sent = 0
    with httpx.Client(base_url=service.url, timeout=30) as http:
        producer = http.post("/v3/clusters/-/producers", json={"mode": "topic", "name": "shop"}).json()
        identity = {
            "Sluice-Producer-Id": str(producer["producer_id"]),
            "Sluice-Producer-Epoch": str(producer["producer_epoch"]),
        }
        for number in range(JSON_BATCHES):
            body = {"records": shop.orders(JSON_BATCH)}
            if number == kill_at:
                threading.Thread(target=_kill_and_restart, args=(service,)).start()
            _send_until_answered(http, body, {**identity, "Sluice-Sequence": str(number)})
            sent += JSON_BATCH
            progress.advance(task)
    return sent


def _kill_and_restart(service: Service) -> None:
    service.kill()
    service.start()


def _send_until_answered(http: httpx.Client, body: dict[str, Any], headers: dict[str, str]) -> None:
    deadline, pause = time.monotonic() + WAIT_S, threading.Event()
    while True:
        try:
            answer = http.post(f"/topics/{ORDERS}", json=body, headers=headers)
            if answer.status_code == httpx.codes.OK:
                return
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                raise Failed(f"produce was refused: {answer.text}")
        except httpx.TransportError:
            pass  # nobody knows whether it arrived; the sequence makes the repeat harmless
        if time.monotonic() > deadline:
            raise Failed("the service does not come back")
        pause.wait(0.1)


def produce_arrow(client: SluiceClient, topic: str, make: Callable[[int], pa.Table], progress: Progress) -> float:
    """Records per second, acks=all."""
    task = progress.add_task(f"{topic} as Arrow", total=ARROW_BATCHES)
    spent = 0.0
    for _ in range(ARROW_BATCHES):
        table = make(ARROW_BATCH)
        began = time.perf_counter()
        client.produce_arrow(topic, table)
        spent += time.perf_counter() - began
        progress.advance(task)
    return ARROW_BATCH * ARROW_BATCHES / spent


def ack_latencies(url: str, shop: Shop, progress: Progress) -> list[float]:
    """Of single orders, one after the other, at a steady rate, acks=all."""
    task = progress.add_task("single orders, acks=all", total=SINGLES)
    pause, found = threading.Event(), []
    with httpx.Client(base_url=url, timeout=30) as http:
        began = time.perf_counter()
        for number in range(SINGLES):
            pause.wait(max(0.0, began + number / SINGLES_PER_S - time.perf_counter()))
            sent = time.perf_counter()
            http.post(f"/topics/{ORDERS}", json={"records": shop.orders(1)}).raise_for_status()
            found.append(time.perf_counter() - sent)
            progress.advance(task)
    return found


def visible_latencies(url: str, root: Path, progress: Progress) -> list[float]:
    """From sending a record with acks=1 until delta-rs, which knows nothing of us, finds it in the table."""
    task = progress.add_task("produce to queryable", total=MARKERS)
    found = []
    with httpx.Client(base_url=url, timeout=30) as http:
        path = f"/topics/{PAYMENTS}/partitions/0"
        table = DeltaTable(str(root / "topics" / PAYMENTS / "0"))
        for number in range(MARKERS):
            began = time.perf_counter()
            answer = http.post(f"{path}?acks=1", json={"records": [{"value": {"marker": number}}]}).raise_for_status()
            offset = answer.json()["offsets"][0]["offset"]
            while table.transaction_version("sluice.end") <= offset:
                table.update_incremental()
            found.append(time.perf_counter() - began)
            progress.advance(task)
    return found


# --- consumer jobs ---------------------------------------------------------------------------------


def start_consumer(name: str, service: Service, work: Path) -> ConsumerJob:
    job = ConsumerJob(f"consumer {name}", work / f"consumer-{name}.log")
    job.start(
        *("--group", GROUP, "--topics", ORDERS, "--server", service.url, "--to", f"delta:{work / 'delta'}"),
        *("--checkpoint", f"file://{work / f'checkpoint-{name}'}", "--starting-offsets", "earliest"),
        *("--trigger", "processingTime=1s", "--name", name),
        *("--option", "group.session.timeout.ms=6000", "--option", "group.heartbeat.interval.ms=1000"),
    )
    return job


def members_with_partitions(client: SluiceClient) -> dict[str, int]:
    found: dict[str, int] = {}
    with suppress(GroupIdNotFound):  # nobody has joined yet
        for row in client.groups.lags(GROUP):
            if row.member_id:
                found[row.member_id] = found.get(row.member_id, 0) + 1
    return found


def check_target(spark: SparkSession, target: Path, expected: int, report: Report, when: str) -> None:
    row = spark.sql(
        "SELECT count(*) AS total, count(DISTINCT __topic, __partition, __offset) AS different,"
        f" count(DISTINCT get_json_object(string(value), '$.order')) AS orders FROM delta.`{target}`"
    ).collect()[0]
    held = row["total"] == row["different"] == row["orders"] == expected
    report.hold(f"the Delta table of the group has every order exactly once {when}", held, f"{row['total']:,} rows")


# --- after the stream ------------------------------------------------------------------------------


def replay(client: SluiceClient, spark: SparkSession, service: Service, work: Path, total: int, report: Report) -> None:
    """Back to the beginning, looked at before it is done; then read again, as a member of the same group."""
    preview = client.groups.reset(GROUP, {"to_earliest": True}, topics=[ORDERS])
    unchanged = all(row.offset > 0 for row in client.groups.offsets(GROUP).values())
    report.hold("a reset shows its plan and changes nothing", len(preview) == PARTITIONS and unchanged)
    client.groups.reset(GROUP, {"to_earliest": True}, topics=[ORDERS], execute=True)
    counts: list[int] = []
    frame = (
        spark.readStream.format("sluice")
        .option("server", service.url)
        .option("subscribe", ORDERS)
        .option("group.id", GROUP)
        .load()
    )
    query = (
        frame.writeStream.option("checkpointLocation", f"file://{work / 'checkpoint-replay'}")
        .foreachBatch(lambda batch, _: counts.append(batch.count()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    report.hold("after the reset the group reads everything again", sum(counts) == total, f"{sum(counts):,} records")
    lag = client.groups.lag_summary(GROUP)["total_lag"]
    report.hold("and has committed its last batch, too", lag == 0, f"lag {lag}")


def bytes_of(url: str, topic: str) -> int:
    """Of the live files."""
    with httpx.Client(base_url=url, timeout=30) as http:
        base = f"/v3/clusters/-/topics/{topic}/partitions"
        return sum(
            segment["size_bytes"]
            for partition in http.get(base).json()["data"]
            for segment in http.get(f"{base}/{partition['partition_id']}/segments").json()["data"]
        )


def job(name: str, root: Path, *options: str) -> int:
    """`sluice jobs run`, in this process, so that all jobs share one Spark session."""
    from sluice.jobs.command_line import run_command
    from sluice.jobs.registry import job_named

    return run_command(job_named(name), ["--root", str(root), *options], f"sluice jobs run {name}")


def maintain(client: SluiceClient, url: str, root: Path, shop: Shop, report: Report) -> None:
    before = {topic: bytes_of(url, topic) for topic in (PAYMENTS, DEVICES)}
    starts = [row.earliest for row in client.offsets(PAYMENTS)]
    done = job("retention", root, "--topic", PAYMENTS)
    moved = [new.earliest > old for new, old in zip(client.offsets(PAYMENTS), starts, strict=True)]
    report.hold("retention by size moved the log start of every partition", done == 0 and all(moved))
    done = job("compaction", root, "--topic", DEVICES)
    last = last_values(client)
    report.hold(
        "after key compaction the last reading of each device is what was sent last",
        done == 0 and last == shop.readings,
        f"{len(last)} devices",
    )
    for topic, what in ((PAYMENTS, "retention"), (DEVICES, "key compaction")):
        after = bytes_of(url, topic)
        report.hold(f"{what} made {topic} smaller", after < before[topic])
        report.figure(f"{topic}: bytes before and after {what}", f"{size(before[topic])} → {size(after)}")


def last_values(client: SluiceClient) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition in client.offsets(DEVICES):
        offset = partition.earliest
        while offset < partition.latest:
            fetched = client.fetch_arrow(DEVICES, partition.partition, offset, max_records=50_000)
            for key, value in zip(*(fetched.table.column(c).to_pylist() for c in ("key", "value")), strict=True):
                found[key.decode()] = json.loads(value)["centidegrees"]
            offset = fetched.next_offset
    return found


def query(spark: SparkSession, root: Path, shop: Shop, report: Report) -> None:
    from sluice.streaming import topic_view

    topic_view(spark, str(root), ORDERS)
    rows = spark.sql(
        "SELECT get_json_object(string(value), '$.country') AS country, count(*) AS orders,"
        " sum(bigint(get_json_object(string(value), '$.cents'))) AS cents"
        f" FROM {ORDERS} GROUP BY country ORDER BY country"
    ).collect()
    for row in rows:
        console.print(f"    {row.country}  {row.orders:>7,} orders  {row.cents / 100:>14,.2f}")
    same = {row.country: row.cents for row in rows} == dict(shop.revenue)
    report.hold("plain Delta SQL finds the revenue of every country that was sent", same)


def percentiles(seconds: list[float]) -> str:
    p50, p99 = (float(np.percentile(seconds, p)) * 1e3 for p in (50, 99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def lag_picture(lag: Lag) -> str:
    return f"{spark_line(lag.samples)} (at most {max(lag.samples, default=0):,} records)"
