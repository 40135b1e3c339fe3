"""Retention against readers that believe nothing: whoever asks below the log start is told so and nothing else, and
whatever is still there is read as it was sent, with nothing left out (I-9, R-10, R-11)."""

from __future__ import annotations

import random
import threading
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from sluice.api.client import SluiceClient, TopicPartition
from sluice.log_store.errors import OffsetOutOfRange
from tests import counts
from tests.http.checks import V3, error_of
from tests.support.job_race import ARROW, BATCH, PAUSE_S, Race, Where, origin_of
from tests.support.server import DELETE_DELAY, Server, running

PLACES: list[Where] = [("aged", 0), ("aged", 1)]
SEGMENT = 30_000
CONFIGS = {"segment.bytes": SEGMENT, "retention.ms": -1, "retention.bytes": 3 * SEGMENT}
HURRIED = {
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "1",
    "SLUICE_MERGE_QUIET_MS": "100",
    "SLUICE_TAIL_CACHE_BYTES": "100000",  # less than the log: only the newest records do not come from files
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    DELETE_DELAY: "0",
}
LITTLE_AHEAD = {"max_partition_fetch_bytes": SEGMENT, "fetch_max_wait_ms": 100}
"""What a consumer holds already cannot be taken from it."""
LINGERS, POLL_S, DELETE_EVERY_S = 0.2, 0.2, 0.3
LEAST = {"rises": 10, "refused": 30, "rows": 5_000, "jumped": 2, "raised": 2, "deleted": 3, "swept": 9}
TAKEN = ("sluice_retention_segments_total", "sluice_housekeeping_merges_total")
MOST_ROUNDS = 5
"""On a machine that is busy with other tests one may be too short for `LEAST`."""
Row = tuple[int, int, int]


def table_rows(table: pa.Table) -> list[Row]:
    columns = (table.column(name).to_pylist() for name in ("offset", "key", "value"))
    return [(at, *origin_of(key, value)) for at, key, value in zip(*columns, strict=True)]


def read(answer: httpx.Response, arrow: bool) -> tuple[list[Row], int, int, int]:
    """The rows, the high watermark, the log start, and where to go on."""
    if arrow:
        names = ("Sluice-High-Watermark", "Sluice-Log-Start-Offset", "Sluice-Next-Offset")
        high, start, after = (int(answer.headers[name]) for name in names)
        return table_rows(pa.ipc.open_stream(answer.content).read_all()), high, start, after
    body = answer.json()
    rows = [(row["offset"], *origin_of(b64decode(row["key"]), b64decode(row["value"]))) for row in body["data"]]
    return rows, body["high_watermark"], body["log_start_offset"], body["next_offset"]


def check_sent(where: Where, rows: list[Row], start: int) -> None:
    """A partition has one producer, of the same number: the record at an offset is the one that it sent as this."""
    assert rows == [(at, where[1], at) for at in range(start, start + len(rows))], f"{where} from {start} on"


@dataclass
class RetentionRace(Race):
    """Holds every answer against the log start that anybody had been told before the question: it only rises."""

    starts: dict[Where, int] = field(default_factory=lambda: defaultdict(int))
    highs: dict[Where, int] = field(default_factory=lambda: defaultdict(int))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def told(self, where: Where, start: int, before: int, high: int = 0) -> int:
        assert start >= before, f"{where}: the log start fell from {before} to {start}"
        with self.lock:
            self.seen["rises"] += start > self.starts[where]
            self.starts[where] = max(start, self.starts[where])
            self.highs[where] = max(start, high, self.highs[where])
        return start

    def earliest(self, client: httpx.Client, where: Where) -> int:
        before = self.starts[where]
        return self.told(where, super().earliest(client, where), before)

    def fetch(self, client: httpx.Client, where: Where, offset: int) -> tuple[list[Row], int] | None:
        """As Arrow or as JSON. Nobody asks behind the end, so only what is gone may be refused."""
        before, arrow = self.starts[where], random.random() < 0.5
        asked = {"offset": offset, "max_records": random.choice((10, 500, 5_000)), "max_wait_ms": 100}
        answer = client.get(
            f"{V3}/topics/{where[0]}/partitions/{where[1]}/records",
            params=asked | {"format": "binary"},
            headers={"Accept": ARROW} if arrow else {},
        )
        if not answer.is_success:
            refusal = error_of(answer, httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE)
            assert refusal["error"] == "OFFSET_OUT_OF_RANGE"
            assert offset < self.told(where, refusal["details"]["log_start"], before), refusal
            self.seen["refused"] += 1
            return None
        rows, high, start, after = read(answer, arrow)
        assert self.told(where, start, before, high) <= offset, f"{where}: {offset} of a log that starts at {start}"
        check_sent(where, rows, offset)
        assert after == offset + len(rows) <= high, f"{where}: {len(rows)} rows at {offset}, to go on at {after}"
        assert rows or offset == high, f"{where}: stands still at {offset}, below {high}"
        self.seen["rows"] += len(rows)
        return rows, after

    # --- readers -------------------------------------------------------------------------------

    def follow_on(self, where: Where, done: Callable[[int], bool]) -> None:
        """From the log start on, and from there again whenever it was too slow."""
        with self.client() as client:
            position = self.earliest(client, where)
            while not done(position):
                answer = self.fetch(client, where, position)
                position = self.earliest(client, where) if answer is None else answer[1]

    def wander(self, where: Where) -> None:
        """Anywhere between 0 and the end, and as often close to the log start."""
        with self.client() as client:
            while not self.stop.is_set():
                self.earliest(client, where)
                start, end = self.starts[where], self.highs[where]
                near = max(0, start - BATCH), min(end, start + BATCH)
                self.fetch(client, where, random.randint(*random.choice(((0, end), near))))

    def linger(self, client: httpx.Client, where: Where, position: int) -> None:
        """Now and then, until the log has left this position behind."""
        if random.random() < LINGERS:
            while self.earliest(client, where) <= position and not self.stop.wait(PAUSE_S):
                pass

    def join(self) -> None:
        """A slow member of a group: it goes on without a gap, or at a log start once its place is gone."""
        positions: dict[Where, int] = defaultdict(int)
        with (
            self.client() as client,
            SluiceClient(self.url) as sluice,
            sluice.consumer(group="slow", auto_offset_reset="earliest", **LITTLE_AHEAD) as consumer,
        ):
            consumer.subscribe(["aged"])
            while not self.stop.is_set():
                for piece in consumer.poll_arrow(POLL_S):
                    where, rows = (piece.topic, piece.partition), table_rows(piece.table)
                    if rows[0][0] != positions[where]:
                        assert positions[where] < rows[0][0] <= self.earliest(client, where), f"{where}: left out some"
                        self.seen["jumped"] += 1
                    check_sent(where, rows, rows[0][0])
                    positions[where] = piece.next_offset
                    self.linger(client, where, piece.next_offset)

    def insist(self, where: Where) -> None:
        """A slow consumer without a rule for what is gone: it misses nothing until it is told."""
        with (
            self.client() as client,
            SluiceClient(self.url) as sluice,
            sluice.consumer(auto_offset_reset="none", **LITTLE_AHEAD) as consumer,
        ):
            consumer.assign([TopicPartition(*where)])
            while not self.stop.is_set():
                position = self.earliest(client, where)
                consumer.seek(TopicPartition(*where), position)
                try:
                    while not self.stop.is_set():
                        for piece in consumer.poll_arrow(POLL_S):
                            check_sent(where, table_rows(piece.table), position)
                            position = piece.next_offset
                        self.linger(client, where, position)
                except OffsetOutOfRange:
                    assert self.earliest(client, where) > position
                    self.seen["raised"] += 1

    def watch(self) -> None:
        with self.client() as client:
            while not self.stop.is_set():
                for where in PLACES:
                    self.earliest(client, where)

    # --- beside the retention of the service itself ----------------------------------------------

    def delete(self) -> None:
        """Half of what is there, and the files of all that left the log."""
        with self.client() as client:
            while not self.stop.wait(DELETE_EVERY_S):
                for where in PLACES:
                    self.delete_before(client, where, (self.starts[where] + self.highs[where]) // 2)
                    swept = client.post(f"{V3}/topics/{where[0]}/partitions/{where[1]}/files:sweep", json={})
                    self.seen["swept"] += len(swept.json()["removed"])

    def delete_before(self, client: httpx.Client, where: Where, offset: int) -> None:
        before, body = self.starts[where], {"offsets": [{"partition": where[1], "before_offset": offset}]}
        answer = client.post(f"{V3}/topics/{where[0]}/records:delete", json=body)
        assert answer.is_success, answer.text
        assert self.told(where, answer.json()["offsets"][0]["low_watermark"], before) >= offset
        self.seen["deleted"] += 1


def too_few(race: RetentionRace, server: Server) -> dict[str, int]:
    for line in server.client.get("/metrics").text.splitlines():
        if line.startswith(TAKEN):
            race.seen[line.split()[0]] = int(float(line.split()[1]))
    return {name: race.seen[name] for name in (*LEAST, *TAKEN) if race.seen[name] < LEAST.get(name, 1)}


def read_the_rest(race: RetentionRace, server: Server, where: Where) -> None:
    """What was acknowledged and is not below the log start is still there, and nothing else."""
    acks = race.acks[where]
    assert [ack.base_offset for ack in acks] == [ack.first for ack in acks]
    latest = server.client.get(f"{V3}/topics/{where[0]}/partitions/{where[1]}/offset", params={"at": "latest"})
    assert latest.json()["offset"] == len(acks) * BATCH
    race.follow_on(where, lambda position: position == len(acks) * BATCH)


@pytest.mark.timeout(120 + MOST_ROUNDS * counts.RETENTION_RACE_S)
def test_retention_races_readers(tmp_path: Path) -> None:
    with running(tmp_path / "root", **HURRIED) as server:
        given = [{"name": name, "value": value} for name, value in CONFIGS.items()]
        made = server.client.post(f"{V3}/topics", json={"topic_name": "aged", "partitions_count": 2, "configs": given})
        assert made.status_code == 201, made.text
        race = RetentionRace(server.url)
        with race.running(
            *(partial(race.produce, where[1], where) for where in PLACES),
            *(partial(race.follow_on, where, lambda _: race.stop.is_set()) for where in PLACES),
            *(partial(race.wander, where) for where in PLACES),
            partial(race.fall_behind, PLACES[0]),
            partial(race.insist, PLACES[1]),
            race.join,
            race.watch,
            race.delete,
        ):
            for _ in range(MOST_ROUNDS):
                if race.stop.wait(counts.RETENTION_RACE_S) or not too_few(race, server):
                    break
        if race.failures:
            raise race.failures[0]
        few = too_few(race, server)
        print(f"{dict(race.seen)}, {sum(map(len, race.acks.values())) * BATCH} sent")
        assert not few, f"the race was worth nothing: {few}"
        for where in PLACES:
            read_the_rest(race, server, where)
