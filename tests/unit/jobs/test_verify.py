"""Verification: a healthy root passes, and each damage is named with its rule and its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.jobs.__main__ import main
from sluice.jobs.verify_findings import Finding
from sluice.jobs.verify_partition import Evidence
from sluice.jobs.verify_run import Scope, Verdict, Verification
from sluice.jobs.verify_workers import LocalWorkers
from sluice.log_store import snapshot
from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.compaction_tombstones import TAG
from sluice.log_store.delta_log import commit_path
from sluice.log_store.errors import ResourceNotFound
from sluice.log_store.records import make_batch
from sluice.log_store.store import open_store
from sluice.log_store.values import PartitionRef
from tests.support import damage
from tests.support.damage import (
    GROUP,
    Actions,
    commit_file,
    edit_commit,
    edit_snapshot,
    first_add,
    flip,
    last_file,
    rewrite_last_file,
    set_details,
    set_stats,
    state_of,
)

T = "topics/t/0"
CHECKPOINT = 11
"""Version of the first checkpoint of `t`: ten appends and a merge after the version that made the table."""
LAST = 17
"""Version of the newest append of `t`."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("healthy") / "root"
    damage.healthy_root(root)
    return root


@pytest.fixture
def root(healthy: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "root"
    shutil.copytree(healthy, copy)
    return copy


def verify(root: Path, scope: Scope | None = None) -> Verdict:
    store = open_store(root, fsync=False)
    return Verification(store, LocalWorkers(store, threads=1), scope or Scope()).run()


def violation(root: Path, rule: str, scope: Scope | None = None, **where: Any) -> Finding:
    """The one violation of this rule at this place; the message shows all when it is not there."""
    found = verify(root, scope).violations
    fitting = [one for one in found if one.rule == rule and all(getattr(one, k) == v for k, v in where.items())]
    assert fitting, "\n".join(map(str, found)) or "no violations"
    return fitting[0]


def test_a_healthy_root_has_no_violations_and_everything_is_looked_at(root: Path):
    verdict = verify(root)
    assert verdict.violations == []
    # t, c, the catalog and one written partition of the groups, which has two.
    assert verdict.partitions == 5
    assert verdict.records == 64 + 12 + 3 + 1
    assert [notice.rule for notice in verdict.notices] == ["R-6", "R-6"], "files that merge and compaction replaced"
    assert state_of(root).version == LAST


def test_verifying_changes_nothing(root: Path):
    def listing() -> dict[str, tuple[int, int]]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = listing()
    verify(root)
    assert listing() == before


def test_a_cleaned_log_is_replayed_from_its_oldest_checkpoint_r5(root: Path):
    for version in range(CHECKPOINT + 1):
        commit_file(root, version).unlink()
    assert verify(root).violations == []


# --- commits -------------------------------------------------------------------------------------


def shift_stats(actions: Actions) -> None:
    set_stats(minValues={"offset": 61}, maxValues={"offset": 64})(actions)


SLUICES = {"sluice.topic": "t", "sluice.topic.id": "x", "sluice.partition": "0", "sluice.format": "1"}
COMMITS: dict[str, tuple[str, Callable[[Actions], Any], dict[str, Any]]] = {
    "base is not the end before it": ("I-1", set_details(base=59), {"version": LAST, "offset": 60}),
    "the end goes back": ("I-1", set_details(end=50), {"version": LAST, "offset": 50}),
    "rows are missing in an append": ("I-1", set_stats(numRecords=3), {"version": LAST, "offset": 60}),
    "an append leaves a gap": ("I-1", shift_stats, {"version": LAST, "offset": 60}),
    "the end lies past the rows": ("I-1", set_details(end=70), {"version": LAST, "offset": 64}),
    "txn disagrees": ("I-3", lambda a: a[-1]["txn"].update(version=9), {"version": LAST}),
    "the epoch goes back": ("I-3", set_details(epoch=0), {"version": LAST}),
    "an epoch that did not claim": ("R-1", set_details(epoch=7), {"version": LAST}),
    "another protocol": (
        "I-5",
        lambda a: a.insert(1, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}),
        {"version": LAST},
    ),
    "other metaData": (
        "I-5",
        lambda a: a.insert(1, {"metaData": {"id": "x", "schemaString": "{}", "configuration": SLUICES}}),
        {"version": LAST},
    ),
    "no data file name": ("I-4", lambda a: first_add(a).update(path="part-00000.parquet"), {"version": LAST}),
    "the name of other offsets": (
        "I-4",
        lambda a: first_add(a).update(path=damage.new_name(59)),
        {"version": LAST, "offset": 60},
    ),
    "the name of a later epoch": ("I-4", lambda a: first_add(a).update(path=damage.new_name(60, 9)), {"version": LAST}),
    "no nullCount": ("I-12", set_stats(nullCount={"offset": None}), {"version": LAST}),
    "dataChange of an append is false": (
        "section 3",
        lambda a: first_add(a).update(dataChange=False),
        {"version": LAST},
    ),
    "append times go back": ("R-13", set_details(ms=5), {"version": LAST}),
    "a producer's batch elsewhere": (
        "R-9",
        set_details(producers=[[2, 0, 0, 4, 10, damage.MS, 0, 0, 0]]),
        {"version": LAST, "offset": 10},
    ),
    "a roll inside a file": ("R-10", set_details(rolls=[62]), {"version": LAST, "offset": 62}),
    "a roll outside the version": ("R-10", set_details(rolls=[3]), {"version": LAST, "offset": 3}),
    "files below the log start": ("R-11", set_details(start=30), {"offset": 0}),
}


@pytest.mark.parametrize("name", COMMITS)
def test_a_damaged_commit_is_named_with_its_rule(root: Path, name: str):
    rule, change, where = COMMITS[name]
    edit_commit(root, LAST, change)
    violation(root, rule, topic="t", partition=0, **where)


def test_a_commit_that_lost_bytes_is_named_i10(root: Path):
    path = commit_file(root, 5)
    whole = path.read_bytes()
    for damaged in (b"", whole[:-10], whole.replace(b"sluice.end", b"sluice.eNd"), b"\0" * len(whole)):
        path.write_bytes(damaged)
        violation(root, "I-10", topic="t", partition=0, version=5)


def test_a_missing_version_is_named_i2(root: Path):
    commit_file(root, 14).unlink()
    found = violation(root, "I-2", topic="t", version=14, offset=48)
    assert "up to 17" in found.text


def test_the_loss_of_the_newest_versions_shows_by_the_checkpoint_hint_i2(root: Path):
    for version in range(15, LAST + 1):
        commit_file(root, version).unlink()
    for name in (snapshot.state_path(T, 16), snapshot.checkpoint_path(T, 16)):
        (root / name).unlink()
    violation(root, "I-2", topic="t", version=15)


def test_a_foreign_commit_with_files_is_a_violation_and_one_without_is_not_i3(root: Path):
    info = {"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE", "engineInfo": "other/1"}}
    path = commit_file(root, LAST + 1)
    path.write_bytes(msgspec.json.encode(info) + b"\n")
    verdict = verify(root)
    assert verdict.violations == []
    assert any("other/1" in notice.text and notice.version == LAST + 1 for notice in verdict.notices)
    add = {"add": {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    path.write_bytes(msgspec.json.encode(info) + b"\n" + msgspec.json.encode(add) + b"\n")
    violation(root, "I-3", topic="t", version=LAST + 1)


def test_a_plan_that_breaks_the_rules_of_plans_is_named_r7(root: Path):
    def is_no_merge(actions: Actions) -> None:
        damage.details(actions)["plan"]["kind"] = "retention"

    edit_commit(root, CHECKPOINT, is_no_merge)
    violation(root, "R-7", topic="t", version=CHECKPOINT)


def test_a_table_of_another_topic_is_named_r8(root: Path):
    shutil.rmtree(root / "topics/c/0")
    shutil.copytree(root / T, root / "topics/c/0")
    violation(root, "R-8", topic="c", partition=0)


# --- state snapshots and checkpoints -------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [{"end": 41}, {"rolls": [8]}, {"first_dirty": 3}, {"append_ms": 1}, {"plans": {}}, {"claims": [[1, "other", 0]]}],
    ids=str,
)
def test_a_state_snapshot_that_disagrees_with_the_log_is_named_r5(root: Path, values: dict[str, Any]):
    edit_snapshot(root, CHECKPOINT, **values)
    violation(root, "R-5", topic="t", version=CHECKPOINT)


def test_an_invented_producer_in_a_state_snapshot_is_named_r5(root: Path):
    edit_snapshot(root, CHECKPOINT, producers=[[4, 0, damage.MS, [[0, 1, 5, damage.MS]]]])
    assert "producer 4" in violation(root, "R-5", topic="t", version=CHECKPOINT).text


def test_damaged_pairs_are_named_r5(root: Path):
    state, checkpoint = root / snapshot.state_path(T, CHECKPOINT), root / snapshot.checkpoint_path(T, CHECKPOINT)
    whole = state.read_bytes()
    state.write_bytes(whole[:-5])
    violation(root, "R-5", topic="t", version=CHECKPOINT)
    state.write_bytes(whole)
    shutil.copy(root / snapshot.checkpoint_path(T, 16), checkpoint)
    violation(root, "R-5", topic="t", version=CHECKPOINT)


def test_a_checkpoint_that_lost_a_file_together_with_its_snapshot_is_named_r5(root: Path):
    """Both were written from a wrong state: only a replay of the commits can tell."""
    state = state_of_version(root, CHECKPOINT)
    del state.files[3]
    checkpoint = root / snapshot.checkpoint_path(T, CHECKPOINT)
    table = pq.read_table(checkpoint)
    lost = [row is not None and row["path"] not in {f.path for f in state.files} for row in table["add"].to_pylist()]
    pq.write_table(table.filter(pa.array([not gone for gone in lost])), checkpoint)
    (root / snapshot.state_path(T, CHECKPOINT)).write_bytes(state.to_snapshot())
    assert "files" in violation(root, "R-5", topic="t", version=CHECKPOINT).text


def state_of_version(root: Path, version: int) -> snapshot.PartitionState:
    state = snapshot.try_checkpoint(open_store(root, fsync=False), T, version)
    assert state is not None
    return state


# --- data files ----------------------------------------------------------------------------------


def test_a_live_file_that_is_missing_is_named_i9(root: Path):
    last_file(root).unlink()
    for quick in (False, True):
        found = violation(root, "I-9", Scope(quick=quick), topic="t", partition=0, offset=60)
        assert found.file.startswith(f"{60:020d}-")


def test_damaged_files_are_named_i10(root: Path):
    path = last_file(root)
    whole = path.read_bytes()
    for at in (10, len(whole) - 20, len(whole) - 6):
        flip(path, at)
        violation(root, "I-10", topic="t", offset=60, file=path.name)
        path.write_bytes(whole)
    for data in (b"", b"PAR1", whole[:-4], whole + b"x"):
        path.write_bytes(data)
        violation(root, "I-10", topic="t", offset=60, file=path.name)
        violation(root, "I-10", Scope(quick=True), topic="t", offset=60, file=path.name)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"minValues": {"timestamp": "2020-01-01T00:00:00.000Z"}}, "smallest timestamp"),
        ({"maxValues": {"timestamp": "2030-01-01T00:00:00.000Z"}}, "largest timestamp"),
    ],
)
def test_statistics_that_are_not_true_are_named_i12(root: Path, values: dict[str, Any], text: str):
    edit_commit(root, LAST, set_stats(**values))
    assert text in violation(root, "I-12", topic="t", offset=60).text


def test_wrong_rows_in_a_file_whose_checksums_are_right_are_named(root: Path):
    rewrite_last_file(root, lambda table: table.take([1, 0, 2, 3]))
    violation(root, "I-1", topic="t", offset=60)


def test_lost_rows_in_a_file_whose_checksums_are_right_are_named_i12(root: Path):
    rewrite_last_file(root, lambda table: table.take([0, 1, 3]))
    assert "numRecords" in violation(root, "I-12", topic="t", offset=60).text


def test_timestamps_that_are_no_whole_milliseconds_are_named(root: Path):
    def shifted(table: pa.Table) -> pa.Table:
        micros = table.column("timestamp").cast(pa.int64()).to_numpy() + np.array([0, 1, 0, 0])
        return table.set_column(1, table.schema.field("timestamp"), pa.array(micros).cast(table.schema.types[1]))

    rewrite_last_file(root, shifted)
    violation(root, "section 2", topic="t", offset=60)


@pytest.mark.parametrize(("keep", "text"), [({0, 4, 5, 6, 7}, "b'k0' stands 2 times"), ({4, 6, 7}, "")])
def test_a_key_that_stands_twice_in_the_compacted_part_is_named_r7(root: Path, keep: set[int], text: str):
    with damage.open_root(root) as log:
        log.create_topic("d", configs={"cleanup.policy": "compact"})
        for first in range(0, 12, 4):
            damage.append(log, "d", damage.numbered(first, 4, keys=4))
        damage.compact(log, log.partition("d", 0), keep, first_dirty=8)
    if not text:
        assert verify(root).violations == [], "a key that is gone may have been deleted: no rule is broken"
        return
    assert text in violation(root, "R-7", topic="d", partition=0, offset=0).text


def test_records_without_a_key_in_the_compacted_part_are_named_r7(root: Path):
    with damage.open_root(root) as log:
        log.create_topic("d")
        damage.append(log, "d", make_batch([{"value": b"a"}, {"value": b"b"}], default_ms=damage.MS))
        damage.compact(log, log.partition("d", 0), {0, 1}, first_dirty=2)
    assert "2 records without a key" in violation(root, "R-7", topic="d", offset=0).text


def test_tombstones_that_compaction_met_without_a_horizon_are_named_r5(root: Path):
    rows = [{"key": b"a", "value": None}, {"key": b"b", "value": b"v"}]
    with damage.open_root(root) as log:
        log.create_topic("d", configs={"cleanup.policy": "compact"})
        damage.append(log, "d", make_batch(rows, default_ms=damage.MS))
        damage.compact(log, log.partition("d", 0), {0, 1}, first_dirty=2)
    assert "no delete horizon" in violation(root, "R-5", topic="d", offset=0).text
    for tag, text in (("[[0,1,5]]", ""), ("[[0,9,5]]", "outside it"), ("[[", "cannot be read")):
        edit_commit(root, 2, lambda a, tag=tag: first_add(a)["tags"].update({TAG: tag}), "topics/d/0")
        if text:
            assert text in violation(root, "R-5", topic="d", offset=0).text
        else:
            assert verify(root).violations == []


def test_a_checkpoint_that_misleads_only_stock_readers_is_named_i11(root: Path):
    """delta-rs follows the hint to a checkpoint that Sluice never uses, because no state snapshot belongs to it."""
    table = pq.read_table(root / snapshot.checkpoint_path(T, 16))
    adds = [index for index, row in enumerate(table["add"].to_pylist()) if row is not None]
    keep = [index for index in range(table.num_rows) if index != adds[0]]
    pq.write_table(table.take(keep), root / snapshot.checkpoint_path(T, LAST))
    hint = root / T / "_delta_log" / "_last_checkpoint"
    hint.write_bytes(msgspec.json.encode(msgspec.json.decode(hint.read_bytes()) | {"version": LAST}))
    found = violation(root, "I-11", topic="t", partition=0, version=LAST)
    assert "delta-rs returns" in found.text


# --- the cluster ---------------------------------------------------------------------------------


def test_claims_with_a_hole_and_epochs_that_nobody_claimed_are_named_r1(root: Path):
    for _ in range(2):
        damage.open_root(root).close()
    claims = root / "_sluice" / "claims"
    (claims / f"{2:020d}.json").unlink()
    assert "claim 2 is missing" in next(one.text for one in verify(root).violations if one.rule == "R-1")
    shutil.rmtree(claims)
    assert "nobody claimed" in violation(root, "R-1").text


def test_a_newer_cluster_format_and_a_damaged_cluster_file_are_named_r14(root: Path):
    path = root / "_sluice" / "cluster.json"
    path.write_bytes(msgspec.json.encode({"cluster_id": "x", "format": 99}))
    violation(root, "R-14")
    path.write_bytes(b"{")
    violation(root, "R-14")


def test_a_record_that_the_catalog_cannot_take_is_named_with_its_offset(root: Path):
    with damage.open_root(root) as log:
        batch = make_batch([{"key": b'{"type":"topic","name":"x","id":"y"}', "value": None}], default_ms=damage.MS)
        end = log.catalog._partition.high_watermark
        log.catalog._partition.append(batch).result(timeout=60)
    violation(root, "section 6", topic=METADATA_REF.topic, partition=0, offset=end)


def test_a_group_that_committed_past_the_end_is_a_notice(root: Path):
    """A client may commit any offset, as in Kafka."""
    with damage.open_root(root) as log:
        damage.commit_offset(log, GROUP, "t", 65)
    verdict = verify(root)
    assert verdict.violations == []
    (found,) = [one for one in verdict.notices if "past the end" in one.text]
    assert (found.topic, found.partition, found.offset) == ("t", 0, 65)
    assert repr(GROUP) in found.text
    with damage.open_root(root) as log:
        damage.append(log, "t", damage.numbered(64, 1))
    assert not [one for one in verify(root).notices if "past the end" in one.text]


def test_a_group_in_the_wrong_partition_is_named(root: Path):
    with damage.open_root(root) as log:
        damage.commit_offset(log, GROUP, "t", 1, partition=1 - damage.partition_of_group(GROUP, 2))
    violation(root, "section 6", topic="__consumer_offsets")


def test_commits_for_a_deleted_topic_and_folders_of_nobody_are_notices_r8(root: Path):
    with damage.open_root(root) as log:
        log.delete_topic("t")
    (root / "topics" / "stranger" / "0").mkdir(parents=True)
    (root / "topics" / "stranger" / "0" / "x").write_bytes(b"")
    verdict = verify(root)
    assert verdict.violations == []
    assert {notice.file for notice in verdict.notices if notice.rule == "R-8"} >= {"topics/t", "topics/stranger", ""}


def test_orphans_and_leftovers_are_notices_r6(root: Path):
    (root / T / damage.new_name(60)).write_bytes(b"orphan")
    (root / T / ".left.tmp").write_bytes(b"")
    (root / T / "_delta_log" / ".x.crc").write_bytes(b"")
    (root / T / "_sluice" / ".left.tmp").write_bytes(b"")
    verdict = verify(root)
    assert verdict.violations == []
    texts = [notice.text for notice in verdict.notices if notice.topic == "t"]
    assert any("no commit names" in text for text in texts)
    assert any(text.startswith("3 hidden files") for text in texts)


# --- scope, live roots ---------------------------------------------------------------------------


def test_topics_and_partitions_can_be_chosen(root: Path):
    last_file(root).unlink()
    assert verify(root, Scope(topics=["c"])).violations == []
    assert verify(root, Scope(topics=["?"], partitions=[1])).partitions == 0
    violation(root, "I-9", Scope(topics=["t*"]), topic="t")
    with pytest.raises(ResourceNotFound, match="no topic matches nothing"):
        verify(root, Scope(topics=["nothing"]))


def test_a_root_without_a_cluster_is_refused(tmp_path: Path):
    with pytest.raises(ResourceNotFound, match="no cluster"):
        verify(tmp_path)


def test_the_command_prints_json_and_fails_on_violations(root: Path, capsys: pytest.CaptureFixture[str]):
    command = ["run", "verify", "--root", str(root), "--in-process", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["violations"] == 0
    path = last_file(root)
    path.unlink()
    assert main(command) == 1
    report = json.loads(capsys.readouterr().out)
    (found,) = [row for row in report["rows"] if row["severity"] == "violation"]
    assert (found["rule"], found["topic"], found["partition"], found["offset"]) == ("I-9", "t", 0, 60)
    assert found["file"] == path.name
    assert main([*command, "--topic", "c", "--no-notices"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert main([*command, "--topic", "nothing"]) == 1
    capsys.readouterr()
    assert main(["status", "verify", "--root", str(root), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["outcome"] for row in shown] == ["failed", "done", "failed", "done"], "newest first, as they were run"
    assert "no topic matches nothing" in shown[0]["error"]
    assert "I-9" in shown[2]["error"]


class _Moving(LocalWorkers):
    """Between the look at the log and the look at the files the service merges, and the old files go."""

    def __init__(self, root: Path, log: Any) -> None:
        super().__init__(open_store(root, fsync=False), threads=1)
        self._root, self._log, self.moves = root, log, 0

    def facts(self, evidences: Any) -> Any:
        if self.moves < 2 and any(evidence.ref.topic == "t" for evidence in evidences):
            self.moves += 1
            led = self._log.partition("t", 0)
            old = led.state.files[-2:]
            damage.merge(self._log, led, old)
            for file in old:
                (self._root / T / file.path).unlink()
        return super().facts(evidences)


def test_files_that_go_while_they_are_read_are_planned_anew_i9(root: Path):
    with damage.open_root(root) as log:
        workers = _Moving(root, log)
        verdict = Verification(open_store(root, fsync=False), workers, Scope()).run()
    assert workers.moves == 2
    assert verdict.violations == []
    assert verdict.records == 64 + 12 + 3 + 1


class _Vanishing:
    """The log is cleaned while it is replayed."""

    def __init__(self, root: Path) -> None:
        self._inner, self._root = open_store(root, fsync=False), root

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, path: str) -> bytes:
        if path == commit_path(T, 5):
            for version in range(CHECKPOINT + 1):
                commit_file(self._root, version).unlink(missing_ok=True)
        return self._inner.get(path)


def test_a_log_that_is_cleaned_while_it_is_read_is_read_anew_r3(root: Path):
    store = _Vanishing(root)
    found: list[Evidence] = LocalWorkers(store, threads=1).gather([ref_of(root)])  # type: ignore[arg-type]
    assert [finding for finding in found[0].findings if finding.severity == "violation"] == []
    assert found[0].state.version == LAST


def ref_of(root: Path) -> PartitionRef:
    identity = state_of(root).identity
    assert identity is not None
    return PartitionRef("t", identity.topic_id, 0, T)
