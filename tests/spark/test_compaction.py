"""Key compaction by Spark: what the rules say, beside a service that appends and merges, for all readers alike."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.jobs import compaction_spark
from sluice.jobs.cluster import StoreSpec
from sluice.jobs.compaction_spark import SparkPasses
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.compaction import FileGroup, cleanable
from sluice.log_store.compaction_files import Cleaned, Cleaning
from sluice.log_store.compaction_run import compact
from sluice.log_store.compaction_service import LedPartition
from sluice.log_store.engine import LogStore
from sluice.log_store.merger import merge_once
from sluice.log_store.records import make_batch
from sluice.log_store.snapshot import load
from sluice.log_store.store import open_store
from tests.support.jobs import ran
from tests.support.logs import NOW_MS, append, folder_cluster, small_settings
from tests.support.server import running
from tests.support.stock_readers import Row, delta_rs_rows, our_rows, spark_rows, table_path

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": 9_000,
    "min.cleanable.dirty.ratio": 0,
    "merge.target.bytes": 20_000,
    "delete.retention.ms": 60_000,
}
Stored = tuple[int, bytes | None, bytes | None]


class Model:
    """Rows and tombstone horizons, cleaned one by one."""

    def __init__(self) -> None:
        self.rows: list[Stored] = []
        self.end = self.first_dirty = 0
        self.horizons: dict[int, int] = {}
        self._dice = random.Random(3)

    def append(self, log: LogStore, second: int) -> None:
        """Three files of one segment; keys of very different length, some null, some values too."""
        for _ in range(3):
            pairs = [(self._key(), None if self._dice.random() < 0.2 else self._dice.randbytes(20)) for _ in range(150)]
            records = [{"key": key, "value": value} for key, value in pairs]
            append(log, "t", 0, make_batch(records, default_ms=NOW_MS + second * 10_000))
            self.rows += [(self.end + n, *pair) for n, pair in enumerate(pairs)]
            self.end += len(pairs)

    def _key(self) -> bytes | None:
        number = self._dice.randrange(400)
        return None if number == 0 else b"%d" % number * (1 + number % 3 * number % 200)

    def clean(self, end: int, now_ms: int) -> None:
        last = {key: offset for offset, key, _ in self.rows if self.first_dirty <= offset < end}
        kept = []
        for offset, key, value in self.rows:
            shadowed = offset < end and (key is None or offset < last.get(key, -1))
            expired = value is None and self.horizons.get(offset, now_ms + 1) <= now_ms
            if not shadowed and not (expired and offset < end):
                kept.append((offset, key, value))
                if value is None and offset < end:
                    self.horizons.setdefault(offset, now_ms + 60_000)
        self.rows, self.first_dirty = kept, end


class Disturbed(SparkPasses):
    """The service merges what was just cleaned, before the plan is there."""

    def __init__(self, spark: SparkSession, spec: StoreSpec, disturb: Callable[[], object]) -> None:
        super().__init__(spark, spec)
        self._disturb: Callable[[], object] | None = disturb
        self.pieces: list[int] = []

    def clean(self, job: Cleaning, groups: Sequence[FileGroup]) -> list[Cleaned]:
        self.pieces.append(len(groups))
        done = super().clean(job, groups)
        if self._disturb is not None:
            self._disturb()
            self._disturb = None
        return done


def plain(rows: Sequence[Row]) -> list[Stored]:
    return [(row.offset, row.key, row.value) for row in rows]


def test_cleanings_by_spark_leave_what_the_rules_say_for_every_reader(
    spark: SparkSession, tmp_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Null keys, long keys, shadowed rows of the clean part, tombstones before and after their horizon, a merge under
    the second cleaning; many tasks, which hand their keys on early."""
    monkeypatch.setattr(compaction_spark, "MOST_KEYS", 10)
    monkeypatch.setattr(compaction_spark, "LEAST_TASK_BYTES", 30_000)
    model = Model()
    with folder_cluster(tmp_root, compaction_in_process_max_bytes=0) as cluster:
        log = cluster.open()
        log.create_topic("t", configs=CONFIGS)
        partition, spec = log.partition("t", 0), StoreSpec(str(tmp_root), False, ())
        for second in range(4):
            model.append(log, second)
        led, now = LedPartition(partition), cluster.clock.wall_ms()
        view = led.view()
        with SparkPasses(spark, spec) as passes:
            done = compact(led, passes, partition.config, cleanable(view, partition.config, now), view, now)
        model.clean(view.segments[-1].start, now)
        assert plain(our_rows(log, "t")) == model.rows
        assert done.stamped == len(model.horizons) > 0

        cluster.clock.advance(60)
        for second in range(4, 7):
            model.append(log, second)
        view, now = led.view(), cluster.clock.wall_ms()

        def merge_one() -> None:
            assert merge_once(partition, partition.config, quiet=False) is not None

        with Disturbed(spark, spec, merge_one) as disturbed:
            done = compact(led, disturbed, partition.config, cleanable(view, partition.config, now), view, now)
        before = len(model.horizons)
        model.clean(view.segments[-1].start, now)
        assert done.tries == 2
        assert disturbed.pieces[0] > disturbed.pieces[1] > 0
        assert 0 < done.expired <= before

        assert plain(our_rows(log, "t")) == model.rows
        path = table_path(log, "t")
        assert plain(delta_rs_rows(path)) == plain(spark_rows(spark, path)) == model.rows
        state = partition.state
        assert (state.log_start, state.end, state.first_dirty) == (0, model.end, model.first_dirty)
        assert {item.name for item in log.runtime.store.list(partition.ref.folder)} == {
            *(file.path for file in state.files),
            *partition.known_files()[1],
        }


def test_the_job_beside_a_service_that_appends_and_merges(spark: SparkSession, tmp_path: Path) -> None:
    """I-8: the plan goes to the leader; what is acknowledged meanwhile is there afterwards, each key at its last."""
    root = tmp_path / "root"
    configs = CONFIGS | {"segment.bytes": 6_000, "segment.ms": 10**9}
    with LogStore.open(small_settings(str(root), compaction_in_process_max_bytes=0)) as log:
        log.create_topic("t", configs=configs)
        folder = log.partition("t", 0).ref.folder
    last: dict[bytes, int] = {}
    stop = threading.Event()
    quiet = {"SLUICE_MERGE_QUIET_MS": "100", "SLUICE_COMPACTION_IN_PROCESS_MAX_BYTES": "0"}
    with running(root, **quiet) as server:

        def produce(number: int) -> None:
            sent = {"records": [{"key": f"k{(number * 7 + n) % 50}", "value": number} for n in range(10)]}
            answer = server.client.post("/topics/t", json=sent)
            assert answer.status_code == 200, answer.text
            for record, kept in zip(sent["records"], answer.json()["offsets"], strict=True):
                last[b'"%s"' % str(record["key"]).encode()] = kept["offset"]

        def go_on() -> None:
            number = 1_000
            while not stop.is_set():
                produce(number)
                number += 1

        for number in range(120):
            produce(number)
        background = threading.Thread(target=go_on)
        background.start()
        try:
            arguments = ("--topic", "t", "--server", server.url, "--driver-max-bytes", "0")
            report = ran("compaction", root, *arguments, spark=lambda: spark).report
        finally:
            stop.set()
            background.join()
        assert (report.outcome, report.mode) == (DONE, "online"), report.error
        assert report.rows[0]["by"] == "spark"
        assert report.records > 0
        store = open_store(root)
        cleaned_to = load(store, folder).state.first_dirty
        assert cleaned_to == report.rows[0]["clean_up_to"] > 0
        rows = plain(delta_rs_rows(str(root / folder)))
        assert {key: offset for offset, key, _ in rows} == last
        clean = [key for offset, key, _ in rows if offset < cleaned_to]
        assert len(clean) == len(set(clean)) == 50
        assert plain(spark_rows(spark, str(root / folder))) == rows
        once_more = ran("compaction", root, "--topic", "t", "--server", server.url, spark=lambda: spark).report
        assert once_more.outcome in (DONE, NOTHING)
