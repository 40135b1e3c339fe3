"""Verification on Spark: several damages of one root, each found; a busy root under a running service, none found."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import httpx
import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice.jobs.cluster import StoreSpec
from sluice.jobs.status import status_rows
from sluice.jobs.verify_run import Scope, Verdict, Verification
from sluice.jobs.verify_spark import SparkWorkers
from sluice.jobs.verify_workers import LocalWorkers
from sluice.jobs.work import DONE, FAILED
from sluice.log_store import snapshot
from sluice.log_store.engine import LogStore
from sluice.log_store.store import open_store
from tests.support import damage
from tests.support.damage import edit_commit, flip, rewrite_last_file, set_stats, state_of
from tests.support.harness import SMALL, settings_of
from tests.support.jobs import ran
from tests.support.s3_server import S3Server
from tests.support.server import running

PRODUCERS, LEAST_REQUESTS = 2, 40
PAUSE_S = 0.05
"""Between the requests of a producer: the service shares two cores with Spark."""


def verify(spark: SparkSession, root: Path) -> Verdict:
    workers = SparkWorkers(spark, StoreSpec(str(root), False, ()))
    return Verification(open_store(root, fsync=False), workers, Scope()).run()


def test_each_of_several_damages_is_named_with_its_place(spark: SparkSession, tmp_path: Path):
    root = tmp_path / "root"
    damage.healthy_root(root)
    with damage.open_root(root) as log:
        for topic in ("missing", "flipped", "stats", "order", "stock", "sound"):
            log.create_topic(topic)
            for first in (0, 4, 8):
                damage.append(log, topic, damage.numbered(first, 4))
            log.partition(topic, 0).checkpoint()
        log.create_topic("keys", configs={"cleanup.policy": "compact"})
        for first in (0, 4, 8):
            damage.append(log, "keys", damage.numbered(first, 4, keys=4))
        damage.compact(log, log.partition("keys", 0), {1, 4, 5, 6, 7}, first_dirty=8)
    damage.last_file(root, "topics/missing/0").unlink()
    flip(damage.last_file(root, "topics/flipped/0"), 20)
    edit_commit(root, 3, set_stats(maxValues={"timestamp": "2030-01-01T00:00:00.000Z"}), "topics/stats/0")
    rewrite_last_file(root, lambda table: table.take([0, 2, 1, 3]), "topics/order/0")
    _mislead_stock_readers(root, "topics/stock/0")

    verdict = verify(spark, root)
    found = {(one.topic, one.rule, one.offset, one.version) for one in verdict.violations}
    # What stands in a checkpoint too disagrees with it, once the commits were changed.
    found -= {one for one in found if one[1] == "R-5"}
    assert found == {
        ("missing", "I-9", 8, None),
        ("flipped", "I-10", 8, None),
        ("stats", "I-12", 8, None),
        ("order", "I-1", 9, None),
        ("stock", "I-11", None, 3),
        ("keys", "R-7", 1, 4),
    }, "\n".join(map(str, verdict.violations))
    assert sum(one.topic == "stock" for one in verdict.violations) == 2, "delta-rs and delta-spark are both named"


def test_a_root_in_a_bucket_is_read_by_executors(spark: SparkSession, s3: S3Server, tmp_path: Path):
    """Without Hadoop's file system for it: all but delta-spark is compared, which is told; damage is still found."""
    url = f"{s3.bucket('lake')}/{uuid.uuid4().hex}"
    options = {name: value for name, value in s3.options.items() if name != "allow_http"}
    storage = {f"s3_{name}": value for name, value in options.items()} | {"s3_allow_http": True}
    settings = settings_of(url, **SMALL, **storage, wal_dir=str(tmp_path / "wal"))
    store = open_store(url, storage_options=s3.options)
    with LogStore.open(settings) as log:
        log.create_topic("t")
        log.create_topic("keys", configs={"cleanup.policy": "compact"})
        for first in (0, 4, 8):
            damage.append(log, "t", damage.numbered(first, 4))
            damage.append(log, "keys", damage.numbered(first, 4, keys=4))
        kept = {4, 5, 6, 7}
        damage.compact(log, log.partition("keys", 0), kept, first_dirty=8)
        log.partition("t", 0).checkpoint()
    report = ran("verify", url, settings=settings, spark=lambda: spark).report
    assert (report.outcome, report.facts["violations"]) == (DONE, 0), report.error
    assert report.records >= 12 + 8
    told = {(row["topic"], row["rule"]) for row in report.rows if "no file system" in row["text"]}
    assert {("t", "I-11"), ("keys", "I-11")} <= told
    (found,) = status_rows(store, None, full=False)
    assert (found["job"], found["outcome"], found["records"]) == ("verify", DONE, report.records)

    with LogStore.open(settings) as log:
        led = log.partition("keys", 0)
        led.prepare()
        damage.append(log, "keys", damage.numbered(12, 4, keys=4))
        damage.compact(log, led, {4, 5, 6, 7, 8, 9, 10, 11}, first_dirty=12)
        (file, *_) = log.partition("t", 0).state.files
        folder = log.partition("t", 0).ref.folder
    data = bytearray(store.get(f"{folder}/{file.path}"))
    data[20] ^= 1
    store.replace(f"{folder}/{file.path}", bytes(data))
    report = ran("verify", url, "--no-notices", settings=settings, spark=lambda: spark).report
    assert report.outcome == FAILED
    assert {(row["topic"], row["rule"]) for row in report.rows} == {("t", "I-10"), ("keys", "R-7")}, report.rows


def _mislead_stock_readers(root: Path, folder: str) -> None:
    """Their checkpoint loses a file; ours is not used without a good state snapshot, so we read the commits."""
    version = state_of(root, folder).version
    checkpoint = root / snapshot.checkpoint_path(folder, version)
    table = pq.read_table(checkpoint)
    adds = [index for index, row in enumerate(table["add"].to_pylist()) if row is not None]
    pq.write_table(table.take([index for index in range(table.num_rows) if index != adds[0]]), checkpoint)
    (root / snapshot.state_path(folder, version)).unlink()


def test_a_busy_root_under_a_running_service_has_no_violations(spark: SparkSession, tmp_path: Path):
    root = tmp_path / "root"
    with running(root, SLUICE_CHECKPOINT_INTERVAL_VERSIONS="20") as server:
        for topic in ("a", "b"):
            made = server.client.post("/v3/clusters/-/topics", json={"topic_name": topic, "partitions_count": 1})
            assert made.is_success, made.text
        stop, sent = threading.Event(), [0] * PRODUCERS

        def produce(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=20) as client:
                while not stop.is_set() or sent[number] < LEAST_REQUESTS:
                    rows = [{"key": f"k{n}", "value": {"n": sent[number]}} for n in range(20)]
                    answer = client.post(f"/topics/{'ab'[number]}", json={"records": rows})
                    assert answer.is_success, answer.text
                    sent[number] += 1
                    stop.wait(PAUSE_S)

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            live = verify(spark, root)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert [str(one) for one in live.violations] == []
    assert sum(sent) >= PRODUCERS * LEAST_REQUESTS
    store = open_store(root, fsync=False)
    verdict = Verification(store, LocalWorkers(store), Scope()).run()
    assert [str(one) for one in verdict.violations] == []
    assert verdict.records >= 20 * sum(sent)
    assert live.records < verdict.records, "it was written to all the while"
    assert msgspec.json.encode([one.to_json() for one in verdict.notices])
