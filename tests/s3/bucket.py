"""A cluster in a bucket: its settings, its processes' settings, and what stock tools read of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.log_store.engine import LogStore
from sluice.log_store.store import Store, open_store
from tests.support.harness import SMALL, TOPIC, our_rows, settings_of
from tests.support.history import History, Rows, Verdict, judge
from tests.support.s3_server import S3Server

# A process that was killed released nothing: whoever comes next waits for the time-out, so it is short here.
CLAIMS: dict[str, Any] = {"claim_renew_ms": 150, "claim_timeout_ms": 900}


@dataclass(frozen=True, slots=True)
class Bucket:
    server: S3Server
    url: str
    folder: Path
    """A local folder for the write-ahead logs: one below it for each machine."""
    endpoint: str

    def through(self, endpoint: str) -> Bucket:
        return Bucket(self.server, self.url, self.folder, endpoint)

    @property
    def options(self) -> dict[str, str]:
        return self.server.options_at(self.endpoint)

    def changes(self, machine: str = "first", **changes: Any) -> dict[str, Any]:
        """Settings of a process, as `settings_of` takes them."""
        options = self.options
        return {
            **SMALL,
            **CLAIMS,
            "wal_dir": str(self.folder / machine / "wal"),
            "s3_endpoint": options["endpoint"],
            "s3_region": options["region"],
            "s3_access_key_id": options["access_key_id"],
            "s3_secret_access_key": options["secret_access_key"],
            "s3_allow_http": True,
            **changes,
        }

    def lead(self, machine: str = "first", *, force: bool = False, store: Store | None = None, **more: Any) -> LogStore:
        return LogStore.open(settings_of(self.url, **self.changes(machine, **more)), force=force, store=store)

    @property
    def store(self) -> Store:
        return open_store(self.url, storage_options=self.options)

    def table(self, partition: int = 0) -> str:
        return f"topics/{TOPIC}/{partition}"

    def versions(self, partition: int = 0) -> list[int]:
        listed = self.store.list(f"{self.table(partition)}/_delta_log")
        return [int(item.name[:20]) for item in listed if item.name[20:] == ".json"]

    def delta_rows(self, partition: int = 0) -> Rows:
        """What delta-rs makes of the table."""
        table = DeltaTable(f"{self.url}/{self.table(partition)}", storage_options=self.options)
        result = QueryBuilder().register("t", table).execute('select "offset", value from t order by "offset"')
        rows = pa.table(result.read_all())
        values = rows.column("value").cast(pa.binary()).to_pylist()
        return list(zip(rows.column("offset").to_pylist(), values, strict=True))

    def check(
        self, *histories: Path, partitions: int = 1, acks: Callable[[dict[str, Any]], bool] | None = None
    ) -> Verdict:
        """Judge what clients were told against the tables; both readers must agree (I-11)."""
        history = History.load(*histories)
        assert not history.of("broken"), history.of("broken")
        tables = {number: self.delta_rows(number) for number in range(partitions)}
        with self.lead() as log:
            for number, rows in tables.items():
                assert our_rows(log, number) == rows, f"partition {number}: our reader and delta-rs disagree"
        verdict = judge([ack for ack in history.acks if acks is None or acks(ack)], tables)
        assert verdict.clean, str(verdict)
        return verdict
