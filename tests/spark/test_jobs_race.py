"""Every job at once, against producers at full rate and readers of all kinds: nothing acknowledged is lost, nothing
wrong is read, and every plan is applied in the end (I-8, I-9, R-6, R-7)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.jobs import vacuum
from sluice.jobs.work import DONE, NOTHING, Report
from sluice.streaming.source import SluiceDataSource
from tests import counts
from tests.http.checks import V3
from tests.support.job_race import BATCH, KEYS, Race, Where, check_order, check_rows, key_of, origin_of
from tests.support.jobs import ran
from tests.support.logs import eventually
from tests.support.server import DELETE_DELAY, Server, running, sweeping_after

DELAY_MS = 1_500
"""After which removed files are deleted: readers, Spark's and verify's too, lose files under their hands."""
SEGMENT = 40_000
TOPICS = {
    "kept": {"retention.ms": -1},
    "aged": {"retention.ms": -1, "retention.bytes": 3 * SEGMENT},
    "keyed": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.2},
}
PRODUCERS: dict[int, Where] = {0: ("kept", 0), 1: ("kept", 0), 2: ("kept", 1), 3: ("aged", 0), 4: ("keyed", 0)}
JOBS = {
    "retention": (),
    "compaction": ("--driver-max-bytes", "0"),
    "merge": (),
    "vacuum": (),
    "orphans": (),
    "offset-expiry": (),
    "verify": ("--in-process",),
}
BETWEEN_RUNS_S = 0.3
LAST_ROUNDS = 12


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(vacuum, "choose_sweep", sweeping_after(DELAY_MS))
    hurried = {
        DELETE_DELAY: str(DELAY_MS),
        "SLUICE_MERGE_QUIET_MS": "200",
        "SLUICE_CHECKPOINT_INTERVAL_VERSIONS": "30",
        "SLUICE_COMPACTION_IN_PROCESS_MAX_BYTES": "0",
    }
    with running(tmp_path / "root", **hurried) as server:
        for name, configs in TOPICS.items():
            given = [{"name": key, "value": value} for key, value in (configs | {"segment.bytes": SEGMENT}).items()]
            body = {"topic_name": name, "partitions_count": 2 if name == "kept" else 1, "configs": given}
            assert server.client.post(f"{V3}/topics", json=body).status_code == 201
        yield server


class SlowQuery:
    """A streaming query on the storage root that takes its time over every batch."""

    def __init__(self, spark: SparkSession, root: Path, topic: str, race: Race) -> None:
        self._race = race
        self.rows: dict[int, list[tuple[int, int, int]]] = {}
        reader = spark.readStream.format("sluice").option("subscribe", topic).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", 4_000).option("columns", "partition,offset,key,value")
        self.query = reader.load(str(root)).writeStream.foreachBatch(self._batch).start()

    def _batch(self, frame: DataFrame, _number: int) -> None:
        for row in frame.collect():
            found = (row.offset, *origin_of(bytes(row.key), bytes(row.value)))
            self.rows.setdefault(row.partition, []).append(found)
        self._race.stop.wait(0.5)

    def close(self) -> None:
        error = self.query.exception()
        self.query.stop()
        assert error is None, error


class JobLoop:
    """One job again and again, and at the end until it has nothing left to do."""

    def __init__(self, name: str, root: Path, spark: SparkSession, race: Race) -> None:
        self.name, self._race = name, race
        self._run: Callable[[], Report] = lambda: ran(name, root, *JOBS[name], spark=lambda: spark).report

    def race(self) -> None:
        pause = threading.Event()
        while not self._race.stop.is_set():
            self.once()
            pause.wait(BETWEEN_RUNS_S)

    def once(self) -> Report:
        report = self._run()
        assert report.outcome in (DONE, NOTHING), f"{self.name}: {report.error}"
        self._race.seen.update({self.name: report.done, f"{self.name} refused": report.refused})
        return report

    def finish(self) -> None:
        """Only the service merges what is left, too, and may be faster: in the end there is nothing left to do."""
        for _ in range(LAST_ROUNDS):
            report = self.once()
            if report.outcome == NOTHING:
                assert report.refused == 0, f"{self.name}: {report.notes}"
                return
        pytest.fail(f"{self.name} finds something to do again and again: {report.rows}")


@pytest.mark.full
@pytest.mark.timeout(300 + 3 * counts.JOB_RACE_S)
def test_all_jobs_race_producers_and_readers(spark: SparkSession, server: Server) -> None:
    spark.dataSource.register(SluiceDataSource)
    race = Race(server.url)
    query = SlowQuery(spark, server.root, "kept", race)
    loops = {name: JobLoop(name, server.root, spark, race) for name in JOBS}
    try:
        with race.running(
            *(partial(race.produce, number, where) for number, where in PRODUCERS.items()),
            partial(race.follow, ("kept", 0), dense=True, group="readers"),
            partial(race.follow, ("keyed", 0), dense=False),
            partial(race.fall_behind, ("aged", 0)),
            *(loop.race for loop in loops.values()),
        ):
            race.stop.wait(counts.JOB_RACE_S)
    finally:
        query.close()
    print(f"in {counts.JOB_RACE_S} s: {dict(race.seen)}")
    assert not race.failures, race.failures[0]
    for name in ("retention", "compaction", "merge", "vacuum", "verify", "out of range", "rows of kept"):
        assert race.seen[name], f"no {name}: the race was worth nothing, {dict(race.seen)}"

    for name in ("retention", "compaction", "merge"):
        loops[name].finish()
    eventually(lambda: loops["vacuum"].once().outcome == NOTHING)
    _everything_is_there(race)
    _the_query_read_what_was_sent(query)
    _the_commit_is_the_last(race)
    report = ran("verify", server.root, spark=lambda: spark).report
    assert report.outcome == DONE, report.error


def _everything_is_there(race: Race) -> None:
    """Every acknowledged record at its offset, or lawfully gone: below the log start, or its key came again."""
    with race.client() as client:
        starts = {where: race.earliest(client, where) for where in race.acks}
    for where, acks in race.acks.items():
        stored = {
            offset: (producer, number)
            for offset, producer, number in race.read_all(where, starts[where], dense=where[0] != "keyed")
        }
        told = {
            ack.base_offset + n: (ack.producer, ack.first + n) for ack in acks for n in range(BATCH)
        }  # fmt: skip
        assert len(told) == BATCH * len(acks), f"{where}: an offset was given twice"
        assert not stored.keys() - told.keys(), f"{where}: rows that nobody sent"
        wanted = {offset: one for offset, one in told.items() if offset >= starts[where]}
        if where[0] == "keyed":
            assert all(told[offset] == one for offset, one in stored.items())
            wanted = {
                offset: told[offset] for offset in {key_of(*one): at for at, one in sorted(told.items())}.values()
            }
            assert len(wanted) == KEYS
        assert {offset: stored.get(offset) for offset in wanted} == wanted, where
        assert where[0] != "kept" or starts[where] == 0


def _the_query_read_what_was_sent(query: SlowQuery) -> None:
    assert query.rows.keys() == {0, 1}
    for rows in query.rows.values():
        check_rows(rows, 0, dense=True)
        check_order(rows, Counter(dict.fromkeys(range(len(PRODUCERS)), -1)), dense=True)


def _the_commit_is_the_last(race: Race) -> None:
    """Expiry took nothing from a group that is in use."""
    with race.client() as client:
        answer = client.get(f"{V3}/consumer-groups/readers/offsets")
        assert answer.is_success, answer.text
        (committed,) = answer.json()["offsets"]
        assert committed["partition_id"] == 0
        assert committed["offset"] > 0
