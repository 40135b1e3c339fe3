"""Verification on Spark: several damages of one root, each found; a busy root under a running service, none found."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice.jobs.cluster import StoreSpec
from sluice.jobs.verify_run import Scope, Verdict, Verification
from sluice.jobs.verify_spark import SparkWorkers
from sluice.jobs.verify_workers import LocalWorkers
from sluice.log_store import snapshot
from sluice.log_store.store import open_store
from tests.support import damage
from tests.support.damage import edit_commit, flip, rewrite_last_file, set_stats, state_of
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
