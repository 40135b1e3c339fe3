"""Producers that never rest and readers that believe nothing, for jobs to race against.

Whatever is stored says by itself who sent it and as which number: a reader needs no list of what was sent to see that
a record is missing, comes twice, or is not what it should be.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx
import pyarrow as pa

from tests.http.checks import V3
from tests.support.bodies import ipc

ARROW = "application/vnd.apache.arrow.stream"
BATCH, KEYS = 50, 40
PAUSE_S = 0.02
_FILLERS = [random.Random(n).randbytes(100) for n in range(64)]

Where = tuple[str, int]


def value_of(producer: int, number: int) -> bytes:
    return b"%d:%d:" % (producer, number) + _FILLERS[number % len(_FILLERS)]


def key_of(producer: int, number: int) -> bytes:
    """Keys of a producer are its own: which of their records is the last is known without asking."""
    return b"%d-%d" % (producer, number * 31 % KEYS)


def origin_of(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """Who sent this row, as which number; fails if it is not what was sent."""
    assert value is not None
    producer, number = map(int, value.split(b":", 2)[:2])
    assert (key, value) == (key_of(producer, number), value_of(producer, number))
    return producer, number


class Ack(NamedTuple):
    base_offset: int
    producer: int
    first: int


@dataclass(slots=True)
class Race:
    """What all threads share. The first that fails ends the race."""

    url: str
    stop: threading.Event = field(default_factory=threading.Event)
    acks: dict[Where, list[Ack]] = field(default_factory=lambda: defaultdict(list))
    failures: list[BaseException] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    """How often what happened: for a look at what the race was worth."""

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    @contextmanager
    def running(self, *works: Callable[[], None]) -> Iterator[None]:
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told by the test, in its own thread
            self.failures.append(error)
            self.stop.set()

    # --- writing -------------------------------------------------------------------------------

    def produce(self, producer: int, where: Where) -> None:
        """As fast as answers come; an answer that was lost is asked for again under the same number."""
        with self.client() as client:
            made = client.post(f"{V3}/producers", json={"mode": "partition"}).json()
            first = 0
            while not self.stop.is_set():
                base = self._sent(client, made, where, producer, first)
                self.acks[where].append(Ack(base, producer, first))
                first += BATCH

    def _sent(self, client: httpx.Client, made: dict[str, int], where: Where, producer: int, first: int) -> int:
        numbers = range(first, first + BATCH)
        rows = pa.table({
            "key": [key_of(producer, n) for n in numbers],
            "value": [value_of(producer, n) for n in numbers],
        })  # fmt: skip
        headers = {
            "Content-Type": ARROW,
            "Sluice-Producer-Id": str(made["producer_id"]),
            "Sluice-Producer-Epoch": str(made["producer_epoch"]),
            "Sluice-Sequence": str(first),
        }
        while True:
            answer = client.post(f"/topics/{where[0]}/partitions/{where[1]}", content=ipc(rows), headers=headers)
            if answer.is_success:
                (part,) = answer.json()["partitions"]
                assert (part["count"], part["base_offset"] >= 0) == (BATCH, True), part
                return int(part["base_offset"])
            assert answer.json()["retriable"], answer.text
            self.seen["produce again"] += 1

    # --- reading -------------------------------------------------------------------------------

    def fetch(self, client: httpx.Client, where: Where, offset: int) -> tuple[list[tuple[int, int, int]], int] | None:
        """(offset, producer, number) of the rows at and after `offset`, and where to go on; None if out of range."""
        path = f"{V3}/topics/{where[0]}/partitions/{where[1]}/records"
        asked = {"offset": offset, "max_records": 5_000, "max_wait_ms": 100}
        answer = client.get(path, params=asked, headers={"Accept": ARROW})
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            assert answer.json()["error"] == "OFFSET_OUT_OF_RANGE"
            return None
        assert answer.is_success, answer.text
        rows = pa.ipc.open_stream(answer.content).read_all()
        columns = (rows.column(name).to_pylist() for name in ("offset", "key", "value"))
        found = [(at, *origin_of(key, value)) for at, key, value in zip(*columns, strict=True)]
        return found, int(answer.headers["Sluice-Next-Offset"])

    def earliest(self, client: httpx.Client, where: Where) -> int:
        answer = client.get(f"{V3}/topics/{where[0]}/partitions/{where[1]}/offset", params={"at": "earliest"})
        return int(answer.json()["offset"])

    def read_all(self, where: Where, start: int, *, dense: bool) -> list[tuple[int, int, int]]:
        with self.client() as client:
            found: list[tuple[int, int, int]] = []
            while True:
                answer = self.fetch(client, where, start)
                assert answer is not None
                if not answer[0]:
                    return found
                check_rows(answer[0], start, dense=dense)
                found += answer[0]
                start = answer[1]

    def follow(self, where: Where, *, dense: bool, group: str = "") -> None:
        """From the first record on: nothing is missing, nothing comes twice, and what was read is committed."""
        position, last = 0, dict[int, int]()
        with self.client() as client:
            while not self.stop.wait(PAUSE_S):
                answer = self.fetch(client, where, position)
                assert answer is not None, f"{where} lost offset {position}, and nothing may be deleted there"
                rows, after = answer
                check_rows(rows, position, dense=dense)
                check_order(rows, last, dense=dense)
                self.seen[f"rows of {where[0]}"] += len(rows)
                position = after
                if group:
                    self.commit(client, group, where, position)

    def commit(self, client: httpx.Client, group: str, where: Where, offset: int) -> None:
        body = {"offsets": [{"topic_name": where[0], "partition_id": where[1], "offset": offset}]}
        answer = client.post(f"{V3}/consumer-groups/{group}/offsets", json=body)
        assert answer.is_success, answer.text

    def fall_behind(self, where: Where) -> None:
        """Reads a little, waits until retention has passed by, and must be told so, whatever else goes on."""
        with self.client() as client:
            while not self.stop.is_set():
                position = self.earliest(client, where)
                answer = self.fetch(client, where, position)
                if answer is None:
                    assert self.earliest(client, where) > position, "out of range, and the log still begins there"
                    continue
                check_rows(answer[0], position, dense=True)
                while self.earliest(client, where) <= position:
                    if self.stop.wait(PAUSE_S):
                        return
                assert self.fetch(client, where, position) is None, f"{position} is below the log start"
                self.seen["out of range"] += 1


def check_rows(rows: list[tuple[int, int, int]], start: int, *, dense: bool) -> None:
    offsets = [offset for offset, _, _ in rows]
    if dense:
        assert offsets == list(range(start, start + len(rows)))
    else:
        assert all(a < b for a, b in zip([start - 1, *offsets], offsets, strict=False))


def check_order(rows: list[tuple[int, int, int]], last: dict[int, int], *, dense: bool) -> None:
    """Each producer's records in its order; `last` is what was seen of each so far."""
    for offset, producer, number in rows:
        before = last.get(producer, -1)
        assert number == before + 1 if dense else number > before, f"{number} after {before} at offset {offset}"
        last[producer] = number
