"""Start, kill, stop and resume real processes, and read what they left with stock tools."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.conf.settings import ClusterSettings, LogSettings, Settings, StorageSettings, WalSettings
from sluice.log_store.engine import LogStore
from tests.support.history import History, Rows, Verdict, boottime, judge, parse

TOPIC = "orders"
REPOSITORY = Path(__file__).parents[2]
DEADLINE_S = 60.0
POLL_S = 0.005
SHOW_STACKS = signal.SIGUSR1
STACKS_S = 1.0
"""Until the stacks of a worker are surely written; only a test that has failed already waits for them."""
LAST_EVENTS = 12

# Small enough that files roll, checkpoints are written and the WAL is cut many times within a second.
SMALL: dict[str, Any] = {
    "commit_interval_ms": 5,
    "checkpoint_interval_versions": 10,
    "wal_file_bytes": 64 * 1024,
    "sync_interval_ms": 40,
}
NEVER_SYNCED: dict[str, Any] = SMALL | {"sync_interval_ms": 600_000, "checkpoint_interval_versions": 10_000}


def settings_of(root: str, **changes: Any) -> Settings:
    """Settings for a test; the small numbers lie below what `load_settings` would allow in production."""
    log = {key: changes.pop(key) for key in tuple(changes) if key in LogSettings.__dataclass_fields__}
    cluster = {key: changes.pop(key) for key in tuple(changes) if key in ClusterSettings.__dataclass_fields__}
    storage = {key: changes.pop(key) for key in tuple(changes) if key in StorageSettings.__dataclass_fields__}
    settings = Settings(
        storage=StorageSettings(root=root, **storage),
        wal=WalSettings(
            dir=changes.pop("wal_dir", ""),
            max_bytes=16 << 20,
            file_bytes=changes.pop("wal_file_bytes", 1 << 20),
            sync_interval_ms=changes.pop("sync_interval_ms", 2000),
        ),
        log=LogSettings(**log),
        cluster=ClusterSettings(**cluster),
    )
    assert not changes, f"unknown settings {sorted(changes)}"
    return settings


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> Any:
    deadline = boottime() + timeout_s
    while not (found := condition()):
        assert boottime() < deadline, f"after {timeout_s} s still not: {what}"
        time.sleep(POLL_S)
    return found


class Process:
    """One worker. Its history may be shared with its predecessors."""

    def __init__(self, root: Path, history: Path, *, within: Sequence[str] = (), **spec: Any) -> None:
        """`within`: a command that runs the worker's own command line somewhere else, for example in a namespace."""
        self.history_path = history
        self._history = History()
        self._position = history.stat().st_size if history.exists() else 0
        self._errors = history.with_name(f"{history.name}.stderr").open("ab")
        arguments = json.dumps({"root": str(root), "history": str(history), **spec})
        self.started_at = boottime()
        self._child = subprocess.Popen(
            [*within, sys.executable, "-m", "tests.support.worker", arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=self._errors,
            stderr=self._errors,
        )
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def events(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """What this process itself wrote."""
        with self.history_path.open("rb") if self.history_path.exists() else io.BytesIO() as file:
            file.seek(self._position)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._position += len(whole)
            self._history.events += [event for event in parse(whole) if event["pid"] == self.pid]
        return self._history.of(kind, **fields)

    def wait_for(self, kind: str, count: int = 1, timeout_s: float = DEADLINE_S, **fields: Any) -> dict[str, Any]:
        def seen() -> bool:
            return len(self.events(kind, **fields)) >= count or not self.alive

        what = f"{count} × {kind} {fields or ''} from worker {self.pid}"
        try:
            wait_until(seen, what, timeout_s)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.situation()}") from None
        events = self.events(kind, **fields)
        assert len(events) >= count, f"worker {self.pid} ended with {self.exit_code} before {kind}: {self.errors()}"
        return events[count - 1]

    def situation(self) -> str:
        """What a worker that does not come on was last seen doing, and where each of its threads stands."""
        self.events("")
        kinds = Counter((event["kind"], event.get("name", "")) for event in self._history.events)
        if self.alive:
            self.send(SHOW_STACKS)
            time.sleep(STACKS_S)
        last = self._history.events[-LAST_EVENTS:]
        return f"it wrote {dict(kinds)}\nlast {json.dumps(last)}\n{self.errors()}"

    def errors(self) -> str:
        return self.history_path.with_name(f"{self.history_path.name}.stderr").read_text()[-8000:]

    def tell(self, command: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{command}\n".encode())
        self._child.stdin.flush()

    def ask(self, command: str, *answers: str, timeout_s: float = DEADLINE_S) -> dict[str, Any]:
        """Send a command and wait for the event that answers it."""
        kinds = (*answers, "failed")
        before = sum(len(self.events(kind)) for kind in kinds)
        self.tell(command)
        wait_until(
            lambda: not self.alive or sum(len(self.events(kind)) for kind in kinds) > before,
            f"an answer to {command}",
            timeout_s,
        )
        events = [event for kind in kinds for event in self.events(kind)]
        assert len(events) > before, f"worker {self.pid} ended with {self.exit_code}: {self.errors()}"
        return max(events, key=lambda event: event["t"])

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        return self._child.wait(timeout_s)

    def send(self, number: int) -> None:
        os.kill(self._child.pid, number)

    def kill(self) -> None:
        if self.alive:
            self.send(signal.SIGKILL)
        self._child.wait(DEADLINE_S)
        if self._child.stdin is not None:
            self._child.stdin.close()

    def stop(self) -> None:
        """In order: everything accepted is committed, the claim is released."""
        self.tell("stop")
        assert self.wait(120) == 0, self.errors()
        self.kill()

    def suspended(self) -> bool:
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"


# --- reading back ------------------------------------------------------------------------------------------


def table_path(root: Path, partition: int, topic: str = TOPIC) -> Path:
    return root / "topics" / topic / str(partition)


def log_path(root: Path, version: int, partition: int = 0, topic: str = TOPIC) -> Path:
    return table_path(root, partition, topic) / "_delta_log" / f"{version:020d}.json"


def versions(root: Path, partition: int = 0, topic: str = TOPIC) -> list[int]:
    return sorted(int(p.name[:20]) for p in (table_path(root, partition, topic) / "_delta_log").glob("*.json"))


def delta_rows(root: Path, partition: int = 0, topic: str = TOPIC) -> Rows:
    """What delta-rs makes of the table."""
    table = DeltaTable(str(table_path(root, partition, topic)))
    result = QueryBuilder().register("t", table).execute('select "offset", value from t order by "offset"')
    rows = pa.table(result.read_all())
    values = rows.column("value").cast(pa.binary()).to_pylist()
    return list(zip(rows.column("offset").to_pylist(), values, strict=True))


def our_rows(log: LogStore, partition: int = 0, topic: str = TOPIC) -> Rows:
    rows: Rows = []
    for batch in log.reads(topic, partition).scan(readahead=0):
        rows += zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    return rows


def check(
    root: Path, *histories: Path, partitions: int = 1, acks: Callable[[dict[str, Any]], bool] | None = None
) -> Verdict:
    """Judge what clients were told against the tables; both readers must agree (I-11)."""
    history = History.load(*histories)
    assert not history.of("broken"), history.of("broken")
    tables = {number: delta_rows(root, number) for number in range(partitions)}
    with LogStore.open(settings_of(str(root), **SMALL)) as log:
        for number, rows in tables.items():
            assert our_rows(log, number) == rows, f"partition {number}: our reader and delta-rs disagree"
    verdict = judge([ack for ack in history.acks if acks is None or acks(ack)], tables)
    assert verdict.clean, str(verdict)
    return verdict


def first_ack_seconds(history: History) -> list[tuple[float, float]]:
    """(from the call of `LogStore.open`, from the start of the process) to the first answer, where there was one."""
    times, opening = [], None
    for event in history.events:
        if event["kind"] == "opening":
            opening = event
        elif event["kind"] == "ack" and opening is not None:
            seconds = event["t"] - opening["t"]
            times.append((seconds, seconds + opening["age"]))
            opening = None
    return times
