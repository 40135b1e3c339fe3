"""Real members of a consumer group in threads: they read, keep results with offsets, commit, leave and crash."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping

import httpx

from sluice.api.client import CommittedOffset, Consumer, FetchedRecord, SluiceClient, TopicPartition
from sluice.log_store.errors import SluiceError
from sluice.streaming.membership.calls import Identity
from tests.support.server import Server

POLL_S = 0.05


class Cable(httpx.HTTPTransport):
    """Leads to the present address of the server, until it is cut."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self.cut = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.cut:
            raise httpx.ConnectError("cut", request=request)
        request.url = request.url.copy_with(port=httpx.URL(self._server.url).port)
        response = super().handle_request(request)
        if self.cut:
            response.close()
            raise httpx.ReadError("cut", request=request)
        return response


class Ledger:
    """The application's own store: results and the offsets behind them change together, or not at all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next: dict[TopicPartition, int] = defaultdict(int)
        self.results: dict[TopicPartition, list[int]] = defaultdict(list)
        self.delivered: set[tuple[TopicPartition, int]] = set()
        self.answered: dict[TopicPartition, int] = {}
        """The highest commit that the service said yes to."""
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.wrong: list[str] = []
        self.stale_refused = 0
        self.looks = 0
        """How often somebody compared what is committed with what was answered."""

    def process(self, records: list[FetchedRecord]) -> None:
        with self.lock:
            for record in records:
                where = TopicPartition(record.topic, record.partition)
                self.delivered.add((where, record.offset))
                if record.offset == self.next[where]:  # else another member was here first, or this one is behind
                    self.results[where].append(record.offset)
                    self.next[where] = record.offset + 1

    def owns(self, identity: Identity, partitions: tuple[TopicPartition, ...]) -> None:
        with self.lock:
            for where in partitions:
                owner = self.owners.setdefault((identity.generation, where), identity.member_id)
                if owner != identity.member_id:
                    self.wrong.append(f"{where} has two owners in generation {identity.generation}")

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self.lock:
            for where, offset in offsets.items():
                self.answered[where] = max(offset, self.answered.get(where, 0))

    def floor(self) -> dict[TopicPartition, int]:
        with self.lock:
            return dict(self.answered)

    def blame(self, what: str) -> None:
        with self.lock:
            self.wrong.append(what)


class Worker:
    def __init__(self, server: Server, ledger: Ledger, topic: str, options: Mapping[str, object]) -> None:
        self._cable = Cable(server)
        self._client = SluiceClient(server.url, transport=self._cable)
        self._ledger = ledger
        self._stop = threading.Event()
        self._stale: Identity | None = None
        self.consumer: Consumer = self._client.consumer(enable_auto_commit=False, **options)
        self.consumer.subscribe([topic], on_assigned=self._assigned, on_revoked=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        with self._ledger.lock:
            places = {where: self._ledger.next[where] for where in partitions}
        for where, offset in places.items():
            self.consumer.seek(where, offset)
        self._ledger.owns(self.consumer.identity, self.consumer.assignment)

    def _revoked(self, _partitions: tuple[TopicPartition, ...]) -> None:
        self._stale = self.consumer.identity

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                records = self.consumer.poll(POLL_S)
                if records:
                    self._ledger.process(records)
                    self._commit()
                self._commit_what_is_over()
            self.consumer.close()
        except Exception as error:  # noqa: BLE001
            if not self._cable.cut:
                self._ledger.blame(f"a member failed: {error!r}")
        finally:
            self._client.close()

    def _commit(self) -> None:
        """What the ledger has of our partitions; a member that is out of the group by now is refused."""
        with self._ledger.lock:
            offsets = {where: self._ledger.next[where] for where in self.consumer.assignment}
        try:
            self.consumer.commit(offsets)
            self._ledger.committed(offsets)
        except SluiceError as error:
            if error.error not in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"):
                raise

    def _commit_what_is_over(self) -> None:
        """A generation that is over must not commit."""
        stale, now = self._stale, self.consumer.identity
        if stale is None or now.generation <= stale.generation or not self.consumer.assignment:
            return
        self._stale = None
        try:
            self.consumer._calls.commit(stale, {self.consumer.assignment[0]: CommittedOffset(offset=0)})
        except SluiceError:
            with self._ledger.lock:
                self._ledger.stale_refused += 1
            return
        self._ledger.blame(f"generation {stale.generation} committed after generation {now.generation} began")

    @property
    def settled(self) -> bool:
        return not self.consumer.rebalancing

    def leave(self) -> None:
        self._stop.set()

    def crash(self) -> None:
        """No word to anybody: whatever it sends or hears from now on is lost."""
        self._cable.cut = True
        self._stop.set()
        threading.Thread(target=self.consumer.close, daemon=True).start()  # ends what it repeats in vain

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def converged(workers: list[Worker], partitions: int, deadline_s: float) -> float:
    """Seconds until everything has exactly one owner among them."""
    begun = time.monotonic()
    while True:
        owned = [where for worker in workers for where in worker.consumer.assignment]
        if all(worker.settled for worker in workers) and len(owned) == len(set(owned)) == partitions:
            return time.monotonic() - begun
        if time.monotonic() - begun > deadline_s:
            raise AssertionError(f"no agreement after {deadline_s} s: {[w.consumer.assignment for w in workers]}")
        threading.Event().wait(0.02)
