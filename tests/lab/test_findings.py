"""What the lab has found, each as a short story of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sluice.log_store import recovery, start_up
from sluice.log_store.background import Background
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import SluiceError, TopicAlreadyExists
from tests.lab.storage import set_aside
from tests.support.harness import NEVER_SYNCED, Process, check, settings_of
from tests.support.history import values_of
from tests.support.logs import memory_cluster


def test_a_sync_during_recovery_does_not_hide_a_lost_tail(
    tmp_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader lost its tail to a successor by force, both died, and whoever came next synced while it recovered: the
    tail was neither set aside nor reported, because the sync point covered its offsets, and its file was cut."""
    history = tmp_path / "history.jsonl"
    slow = NEVER_SYNCED | {"commit_interval_ms": 60_000}
    loser = Process(tmp_root, history, producers=[["bare.p1.0", "plain", "1", 0]], settings=slow, limit=8, depth=1)
    winner = None
    try:
        loser.wait_for("ack", count=8)
        whole = [["whole", "plain", "all", 0]]
        winner = Process(tmp_root, history, producers=whole, settings=NEVER_SYNCED, force=True, limit=40, depth=1)
        winner.wait_for("ack", count=40)
    finally:
        loser.kill()
        if winner is not None:
            winner.kill()

    recover, seen = recovery.recover_wal, set[Background]()
    changed = Background.partition_changed

    def noted(background: Background, *arguments: Any) -> None:
        seen.add(background)
        changed(background, *arguments)

    def recovered(*arguments: Any) -> None:
        recover(*arguments)
        for background in seen:
            background.sync_all()  # what happens by itself when recovery takes longer than the sync interval

    monkeypatch.setattr(Background, "partition_changed", noted)
    monkeypatch.setattr(start_up, "recover_wal", recovered)
    with LogStore.open(settings_of(str(tmp_root), **NEVER_SYNCED)) as log:
        report = "\n".join(map(str, log.report.findings))
    assert seen
    assert "kept aside" in report
    aside = set(set_aside(tmp_root / "_sluice" / "wal"))
    # The first was committed at once, on a slow machine with some that followed it.
    sent = [{value.decode() for value in values_of("bare.p1.0", number)} for number in range(8)]
    lost = [number for number in range(8) if sent[number] & aside]
    assert lost == list(range(lost[0], 8))
    assert aside == set().union(*(sent[number] for number in lost))
    check(tmp_root, history, acks=lambda ack: ack["acks"] == "all")


def test_a_change_of_the_catalog_that_was_on_its_way_at_a_take_over() -> None:
    """A leader by force read the catalog, and then its predecessor's commit arrived: the new leader did not know the
    topic, let it be created once more, and no process could open the cluster any more: "live twice"."""
    with memory_cluster() as cluster:
        old = cluster.open()
        old.create_topic("first")
        gate = cluster.store.gate("put_if_absent", "*/__cluster_metadata/0/*.json")
        with ThreadPoolExecutor(1) as pool, gate:
            late = pool.submit(old.create_topic, "t")
            gate.wait()
            new = cluster.open(force=True)
            gate.release()
            with pytest.raises(SluiceError):
                late.result(30)
        with suppress(TopicAlreadyExists):
            new.create_topic("t")
        known = new.topics()
        assert {meta.name for meta in known} == {"first", "t"}
        new.close()
        assert cluster.open().topics() == known
