"""Joins, leaves and crashes of real members, with the service killed in the middle of their rebalances."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.api.client import SluiceClient, TopicPartition
from tests.counts import FULL, GROUP_CHANGES, GROUP_RESTARTS
from tests.support.group_workers import Cable, Ledger, Worker, converged
from tests.support.server import Server, running

TOPIC, GROUP, PARTITIONS = "work", "workers", 12
MOST, BURST = 8, 5
DEADLINE_S = 120.0
CONVERGED_S = 5.0
"""Nineteen times of twenty."""
SETTINGS = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
    "SLUICE_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
}
OPTIONS = {
    "group": GROUP,
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 150,
    "max_poll_interval_ms": 20_000,
    "fetch_max_wait_ms": 300,
    "fetch_threads": 3,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "default_api_timeout_ms": 120_000,
}


class Producing:
    """Writes all the time, in order, so that there is something to lose."""

    def __init__(self, server: Server) -> None:
        self._client = SluiceClient(server.url, transport=Cable(server))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._client.producer(delivery_timeout_ms=120_000) as producer:
            while not self._stop.wait(0.02):
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, b"x" * 20, partition=partition)

    def end(self) -> dict[TopicPartition, int]:
        """Where each partition ends."""
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        ends = {TopicPartition(TOPIC, one.partition): one.latest for one in self._client.offsets(TOPIC)}
        self._client.close()
        return ends


@contextmanager
def watched(server: Server, ledger: Ledger) -> Iterator[None]:
    """Somebody reads the committed offsets all the time: none may be older than what was answered before."""
    stop = threading.Event()

    def watch() -> None:
        with SluiceClient(server.url, transport=Cable(server)) as client:
            while not stop.wait(0.05):
                floor = ledger.floor()
                found = client.groups.offsets(GROUP)
                ledger.looks += bool(floor)
                for where, least in floor.items():
                    if where not in found or found[where].offset < least:
                        ledger.blame(f"{where}: {least} was committed, {found.get(where)} is read")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


class Crowd:
    def __init__(self, server: Server, ledger: Ledger, options: dict[str, object], luck: random.Random) -> None:
        self._server, self._ledger, self._options, self._luck = server, ledger, options, luck
        self.alive: list[Worker] = []
        self.gone: list[Worker] = []

    def change(self) -> None:
        """One joins, leaves or crashes."""
        what = self._luck.choice(["join", "join", "leave", "crash"])
        if len(self.alive) <= 1 or (what == "join" and len(self.alive) < MOST):
            self.alive.append(Worker(self._server, self._ledger, TOPIC, self._options))
            return
        one = self.alive.pop(self._luck.randrange(len(self.alive)))
        self.gone.append(one)
        one.crash() if what == "crash" else one.leave()

    def end(self) -> None:
        for one in self.alive:
            one.leave()
        for one in [*self.alive, *self.gone]:
            one.join()


@pytest.mark.timeout(3_600 if FULL else 240)
@pytest.mark.parametrize(
    "strategies", [("range", "cooperative-sticky"), ("cooperative-sticky",)], ids=["eager", "coop"]
)
def test_nothing_is_lost_or_owned_twice(tmp_path: Path, strategies: tuple[str, ...]):
    luck, ledger = random.Random(f"{strategies}"), Ledger()
    options = OPTIONS | {"partition_assignment_strategy": strategies}
    rounds = GROUP_CHANGES // 2 // BURST
    kills = set(luck.sample(range(rounds), GROUP_RESTARTS // 2))
    times: list[float] = []
    with running(tmp_path / "root", **SETTINGS) as server:
        with SluiceClient(server.url) as client:
            client.topics.create(TOPIC, partitions=PARTITIONS)
        crowd, producing = Crowd(server, ledger, options, luck), Producing(server)
        with watched(server, ledger):
            for number in range(rounds):
                for _ in range(BURST):
                    crowd.change()
                    threading.Event().wait(luck.random() * 0.1)
                if number in kills:
                    server.kill()
                    server.start()
                times.append(converged(crowd.alive, PARTITIONS, DEADLINE_S))
                assert not ledger.wrong, ledger.wrong[:3]
            ends = producing.end()
            _until_all_is_done(ledger, ends)
        crowd.end()
    assert not ledger.wrong, ledger.wrong[:3]
    assert min(ledger.stale_refused, ledger.looks) > 0, "what was asserted was also tried"
    for where, end in ends.items():
        assert ledger.results[where] == list(range(end)), "exactly once, in order"
        assert {(where, offset) for offset in range(end)} <= ledger.delivered
    if FULL:
        assert sorted(times)[int(len(times) * 0.95)] <= CONVERGED_S, sorted(times)[-5:]
    else:  # too few for a percentile, and the machine may be busy with something else
        assert sorted(times)[len(times) // 2] <= 4 * CONVERGED_S, sorted(times)


def _until_all_is_done(ledger: Ledger, ends: dict[TopicPartition, int]) -> None:
    woken = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        with ledger.lock:
            if all(ledger.next[where] >= end for where, end in ends.items()):
                return
        woken.wait(0.05)
    raise AssertionError(f"not all was read: {dict(ledger.next)}, ends {ends}")
