"""What repair must leave alone: another leader's versions, another engine's commits. And what it could not repair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.conf.settings import LogSettings, Settings, StorageSettings, WalSettings
from sluice.log_store import recovery
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import ForeignCommit, InvalidTimestamp
from sluice.log_store.records import MAX_TIMESTAMP_MS, make_batch
from sluice.log_store.store import Store

MIB = 1 << 20


def _settings(root: Path) -> Settings:
    return Settings(
        storage=StorageSettings(root=str(root)),
        wal=WalSettings(max_bytes=16 * MIB, file_bytes=MIB),
        log=LogSettings(commit_interval_ms=0),
    )


def _put(log: LogStore, value: bytes = b"v", timestamp: int = 1) -> int:
    return log.append("t", 0, make_batch([{"value": value}], default_ms=timestamp)).result(timeout=60).base_offset


def _versions(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "topics/t/0/_delta_log").glob("*.json"))


def _unclean(root: Path) -> None:
    """A cluster with topic t whose last leader did not end in order, so that the next one checks what it opens."""
    log = LogStore.open(_settings(root))
    log.create_topic("t")
    log.close(drain=False)


def test_a_replaced_leader_that_opens_a_partition_removes_nothing_of_the_new_one_r3(
    tmp_root: Path, monkeypatch: pytest.MonkeyPatch
):
    _unclean(tmp_root)
    old = LogStore.open(_settings(tmp_root))
    new = LogStore.open(_settings(tmp_root), force=True)
    try:
        assert _put(new) == 0
        listing = recovery._versions_above

        def committed_meanwhile(store: Store, folder: str, version: int) -> list[int]:
            assert _put(new) == 1
            return listing(store, folder, version)

        monkeypatch.setattr(recovery, "_versions_above", committed_meanwhile)
        assert old.reads("t", 0).fetch(0).rows.count >= 1
        assert old.fenced
        monkeypatch.undo()
        last = _put(new)
        assert _versions(tmp_root) == list(range(last + 2)), "version 0 is the claim, then one for each record"
        assert not old.report.findings
    finally:
        new.close()
        old.close()


def test_a_foreign_commit_is_reported_and_not_removed_by_repair_i3(tmp_root: Path):
    _unclean(tmp_root)
    log = LogStore.open(_settings(tmp_root))
    _put(log)
    log.close(drain=False)
    foreign = tmp_root / "topics/t/0/_delta_log" / f"{2:020d}.json"
    add = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    foreign.write_text(json.dumps({"commitInfo": {"engineInfo": "stranger"}}) + "\n" + json.dumps({"add": add}) + "\n")
    with LogStore.open(_settings(tmp_root)) as log:
        with pytest.raises(ForeignCommit, match="stranger"):
            _put(log)
        assert log.reads("t", 0).fetch(0).rows.count == 1
    assert _versions(tmp_root) == [0, 1, 2]


@pytest.mark.parametrize("timestamp", [-1, MAX_TIMESTAMP_MS + 1])
def test_a_time_that_no_commit_could_describe_takes_no_offset(tmp_root: Path, timestamp: int):
    with LogStore.open(_settings(tmp_root)) as log:
        log.create_topic("t")
        with pytest.raises(InvalidTimestamp):
            _put(log, timestamp=timestamp)
        assert _put(log, timestamp=MAX_TIMESTAMP_MS) == 0
