"""A process that leads a log and produces to it until it is told to stop, or killed.

    python -m tests.support.worker '{"root": …, "history": …, "producers": [[name, mode, acks, partition], …]}'

Every answer is in the history before the next request is sent. After a restart idempotent producers repeat what was
not answered, with the same sequence. Commands come as lines on stdin: stop, produce, read, troubles, limit, arm; its
end is the end of the process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.log_store import steps
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import NotLeader, SluiceError
from sluice.log_store.pending import Acks
from sluice.log_store.records import make_batch
from sluice.log_store.store import open_store
from sluice.log_store.values import ProducerStamp
from tests.support.faulty_store import FaultyStore
from tests.support.harness import SHOW_STACKS, TOPIC, settings_of
from tests.support.history import History, HistoryFile, boottime, count_of, part_of, values_of

ANSWER_S = 60
RETRY_S = 0.02


def batch_of(values: list[bytes]) -> pa.RecordBatch:
    return make_batch([{"value": value} for value in values], default_ms=time.time_ns() // 1_000_000)


def _age() -> float:
    """Seconds since this process was started, the interpreter's own start and all imports included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return boottime() - started / os.sysconf("SC_CLK_TCK")


class Fault:
    """Sends a signal to this very process when a named step is reached for the n-th time."""

    def __init__(self, step: str, times: int, number: int) -> None:
        self._step, self._left, self._signal = step, times, number
        self._lock = threading.Lock()

    def reached(self, name: str) -> None:
        if name != self._step:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                # To this very thread: it must not come a step further while another one is still being stopped.
                signal.pthread_kill(threading.get_ident(), self._signal)


class Producer(threading.Thread):
    def __init__(self, worker: Worker, name: str, mode: str, acks: str, partition: int) -> None:
        super().__init__(name=name, daemon=True)
        self._worker = worker
        self._mode, self._acks, self._partition = mode, Acks.parse(acks), partition
        self._number = worker.past.next_number(name, idempotent=mode != "plain")
        self._sequence = sum(count_of(number) for number in range(self._number))
        self._identity: tuple[int, int] | None = None

    def run(self) -> None:
        try:
            self._identity = self._identify()
            while not self._worker.stopping.is_set():
                self._wait_for_room()
                if not self._send_window():
                    self._worker.stopping.wait(RETRY_S)
        except NotLeader as error:
            self._worker.history.write("fenced", name=self.name, leader=error.fields.get("leader", ""))
        except BaseException as error:
            self._worker.history.write("broken", name=self.name, error=repr(error))
            raise

    def _identify(self) -> tuple[int, int] | None:
        if self._mode == "plain":
            return None
        if (known := self._worker.past.producer(self.name)) is not None:
            return known["id"], known["epoch"]
        while True:
            try:
                identity = self._worker.log.new_producer(self._mode)
                break
            except NotLeader:
                raise
            except SluiceError:
                self._worker.stopping.wait(RETRY_S)
        self._worker.history.write("producer", name=self.name, id=identity[0], epoch=identity[1])
        return identity

    def _wait_for_room(self) -> None:
        while self._number >= self._worker.limit and not self._worker.stopping.is_set():
            self._worker.stopping.wait(RETRY_S)

    def _send_window(self) -> bool:
        """Send a few batches, then take the answers in order; what failed is sent again with the next window."""
        window: deque[tuple[int, int, dict[int, Future[Any]] | SluiceError | None, int]] = deque()
        number, sequence = self._number, self._sequence
        while len(window) < self._worker.depth and number < self._worker.limit:
            sent, partitions = self._send(number, sequence)
            window.append((number, sequence, sent, partitions))
            number, sequence = number + 1, sequence + count_of(number)
        moved = False
        for number, sequence, sent, partitions in window:
            if not self._answered(number, sent, partitions) and self._mode != "plain":
                return moved
            moved = True
            self._number, self._sequence = number + 1, sequence + count_of(number)
        return moved

    def _send(self, number: int, sequence: int) -> tuple[dict[int, Future[Any]] | SluiceError | None, int]:
        values = values_of(self.name, number)
        log = self._worker.log
        try:
            if self._mode == "plain":
                self._worker.history.write("try", name=self.name, number=number)
                return {self._partition: log.append(TOPIC, self._partition, batch_of(values), acks=self._acks)}, 0
            assert self._identity is not None
            if self._mode == "partition":
                stamp = ProducerStamp(*self._identity, sequence)
                future = log.append(TOPIC, self._partition, batch_of(values), acks=self._acks, stamp=stamp)
                return {self._partition: future}, 0
            stamp = ProducerStamp(*self._identity, number, 0, zlib.crc32(b"".join(values)), len(values))

            def split(partitions: int) -> Mapping[int, pa.RecordBatch]:
                return {p: batch_of(part) for p, part in part_of(values, number, partitions).items()}

            sent = log.append_topic(TOPIC, split, acks=self._acks, stamp=stamp)
            return (None if sent.below_window else dict(sent.parts)), sent.partitions
        except SluiceError as error:
            return error, 0

    def _answered(self, number: int, sent: dict[int, Future[Any]] | SluiceError | None, partitions: int) -> bool:
        try:
            if isinstance(sent, SluiceError):
                raise sent
            results = {p: future.result(ANSWER_S) for p, future in (sent or {}).items()}
        except NotLeader:
            raise
        except SluiceError as error:
            self._worker.history.write("error", name=self.name, number=number, error=error.error, text=error.message)
            return False
        bases = {p: result.base_offset for p, result in results.items()}
        acks = "all" if self._acks is Acks.ALL else "1"
        self._worker.history.write(
            "ack", name=self.name, mode=self._mode, acks=acks, number=number, parts=bases, partitions=partitions
        )
        return True


class Worker:
    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        path = Path(spec["history"])
        self.past = History()
        self.history = HistoryFile(path)
        self.stopping = threading.Event()
        self.limit = spec.get("limit", sys.maxsize)
        self.depth = spec.get("depth", 3)
        self.log: LogStore

    def open(self) -> None:
        spec = self._spec
        if fault := spec.get("fault"):
            self._arm(*fault)
        begun = boottime()
        self.history.write("opening", age=_age())
        try:
            settings = settings_of(spec["root"], **spec.get("settings", {}))
            storage = settings.storage
            store = FaultyStore(open_store(storage.root, fsync=storage.fsync, storage_options=storage.options))
            self.log = LogStore.open(
                settings,
                store=store,
                force=spec.get("force", False),
                purpose=spec.get("purpose", "service"),
            )
            if spec.get("purpose", "service") == "service" and self.log.catalog.state.find(TOPIC) is None:
                self.log.create_topic(TOPIC, partitions=spec.get("partitions", 1))
        except NotLeader as error:
            took = boottime() - begun
            self.history.write("refused", leader=error.fields.get("leader", ""), text=error.message, seconds=took)
            os._exit(3)
        if pattern := spec.get("outage"):
            self.log.partition(TOPIC, 0).prepare()
            store.fail_before("put_if_absent", pattern, times=None)
        report = self.log.report
        self.history.write(
            "opened",
            seconds=boottime() - begun,
            findings=[str(finding) for finding in report.findings],
            replayed=report.replayed,
            epoch=self.log.runtime.leadership.epoch,
        )

    def _arm(self, step: str, times: int, number: str) -> None:
        steps.set_hook(Fault(step, times, getattr(signal, number)).reached)

    def run(self) -> None:
        self.open()
        # Only now: until this process led, another one may have answered the same producers.
        self.past = History.load(Path(self._spec["history"]))
        producers = [Producer(self, *arguments) for arguments in self._spec.get("producers", ())]
        for producer in producers:
            producer.start()
        for line in sys.stdin:
            command, _, argument = line.strip().partition(" ")
            if command == "stop":
                self.stopping.set()
                for producer in producers:
                    producer.join()
                self.log.close()
                self.history.write("closed")
                return
            self._obey(command, argument)
        os._exit(4)

    def _obey(self, command: str, argument: str) -> None:
        if command == "limit":
            self.limit = int(argument)
            return
        if command == "arm":
            step, times, number = argument.split()
            self._arm(step, int(times), number)
            return
        try:
            if command == "produce":
                values = [f"asked:{argument}:0".encode()]
                begun = boottime()
                result = self.log.append(TOPIC, 0, batch_of(values)).result(ANSWER_S)
                self.history.write("produced", offset=result.base_offset, seconds=boottime() - begun)
            elif command == "read":
                reads = self.log.reads(TOPIC, int(argument))
                offsets = [offset for batch in reads.scan(readahead=0) for offset in batch.column("offset").to_pylist()]
                self.history.write("read", rows=len(offsets), end=offsets[-1] + 1 if offsets else 0)
            elif command == "troubles":
                self.history.write("troubles", troubles=self.log.troubles(), fenced=self.log.fenced)
        except SluiceError as error:
            self.history.write(
                "failed", command=command, error=error.error, text=error.message, leader=error.fields.get("leader", "")
            )


if __name__ == "__main__":
    faulthandler.register(SHOW_STACKS, all_threads=True)
    Worker(json.loads(sys.argv[1])).run()
    # Past the interpreter's own end, where native threads of libraries may still be busy.
    os._exit(0)
