"""Backups: consistent while the root is written to, incremental, completed by a repeat; restored into a new cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.jobs import backup_command, backup_copy
from sluice.jobs.backup import backup_ids, make_backup, prune, read_manifest
from sluice.jobs.backup_manifest import (
    Manifest,
    PartitionCopy,
    StoredFile,
    decode_manifest,
    encode_manifest,
    manifest_path,
    referenced,
    to_prune,
)
from sluice.jobs.restore import EPOCHS_AHEAD, MARKER, restore
from sluice.jobs.verify_run import Scope, Verdict, Verification
from sluice.jobs.verify_workers import LocalWorkers
from sluice.log_store.claims import newest_claim
from sluice.log_store.errors import CorruptData, InvalidRequest, NotLeader, ResourceNotFound, UnsupportedFormat
from sluice.log_store.store import Store, open_store
from tests.support import damage
from tests.support.logs import values
from tests.support.stock_readers import delta_rs_rows, our_rows

NOW = 1_700_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    damage.healthy_root(tmp_path / "root")
    return tmp_path / "root"


def local(path: Path) -> Store:
    return open_store(path, fsync=False)


def verify(root: Path) -> Verdict:
    return Verification(local(root), LocalWorkers(local(root), threads=1), Scope()).run()


def restored(target: Path, root: Path, identifier: str | None = None, **options: Any) -> Path:
    manifest = read_manifest(local(target), identifier)
    restore(local(target), local(root), manifest, NOW, **options)
    verdict = verify(root)
    assert [str(one) for one in verdict.violations] == []
    assert not [str(one) for one in verdict.notices if "past the end" in one.text], "a group is ahead of its log"
    return root


def rows_of(root: Path, topic: str) -> list[Any]:
    with damage.open_root(root) as log:
        return our_rows(log, topic)


# --- round trip ----------------------------------------------------------------------------------


def test_a_restored_root_holds_the_same_rows_and_goes_on_where_the_backup_ended(root: Path, tmp_path: Path):
    target, copy = tmp_path / "backups", tmp_path / "copy"
    made = make_backup(local(root), local(target), NOW)
    restored(target, copy)
    assert rows_of(copy, "t") == rows_of(root, "t")
    assert rows_of(copy, "c") == rows_of(root, "c"), "gaps of the compaction are kept"
    assert delta_rs_rows(str(copy / "topics/t/0")) == rows_of(copy, "t")
    with damage.open_root(copy) as log:
        damage.append(log, "t", damage.numbered(64, 4))
        assert log.partition("t", 0).high_watermark == 68
        assert log.partition("c", 0).state.first_dirty == 8
        assert log.topic("c").config().compact
    assert verify(copy).violations == []
    assert made.manifest.records == 64 + 12 + 3 + 1


def test_a_second_backup_copies_only_what_is_new(root: Path, tmp_path: Path):
    target = tmp_path / "backups"
    first = make_backup(local(root), local(target), NOW)
    with damage.open_root(root) as log:
        damage.append(log, "t", damage.numbered(64, 4))
    second = make_backup(local(root), local(target), NOW + 5_000)
    # One data file; and the logs of the two partitions that were claimed anew, four files each.
    assert second.copied.files < first.copied.files / 2
    assert sum(len(one.data) for one in second.manifest.partitions) > 10
    unchanged = make_backup(local(root), local(target), NOW + 10_000)
    assert unchanged.copied.files == 0
    assert backup_ids(local(target)) == [first.manifest.id, second.manifest.id, unchanged.manifest.id]
    assert len(rows_of(restored(target, tmp_path / "old", first.manifest.id), "t")) == 64
    assert len(rows_of(restored(target, tmp_path / "new"), "t")) == 68


def test_the_restored_root_is_another_cluster_above_every_old_epoch_r1(root: Path, tmp_path: Path):
    target, copy = tmp_path / "backups", tmp_path / "copy"
    old_epoch = newest_claim(local(root)).epoch  # type: ignore[union-attr]
    make_backup(local(root), local(target), NOW)
    restored(target, copy)
    claims = {path.name for path in (copy / "_sluice" / "claims").glob("*.json")}
    # Whoever led the old root under epoch e looks for claim e + 1: it is there for many epochs to come.
    assert claims == {f"{epoch:020d}.json" for epoch in range(1, old_epoch + EPOCHS_AHEAD + 1)}
    ids = [json.loads((place / "_sluice" / "cluster.json").read_text())["cluster_id"] for place in (root, copy)]
    assert ids[0] != ids[1]
    twin = restored(target, tmp_path / "twin", keep_cluster_id=True)
    assert json.loads((twin / "_sluice" / "cluster.json").read_text())["cluster_id"] == ids[0]


# --- live ----------------------------------------------------------------------------------------


class _During:
    """A store that does something when a path is first read, as a busy service would."""

    def __init__(self, inner: Store, match: Callable[[str], bool], act: Callable[[], None]) -> None:
        self._inner, self._match, self._act = inner, match, act
        self.done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, path: str) -> bytes:
        if not self.done and self._match(path):
            self.done = True
            self._act()
        return self._inner.get(path)


def test_files_that_go_while_they_are_copied_are_pinned_anew_i9(root: Path, tmp_path: Path):
    target = tmp_path / "backups"
    with damage.open_root(root) as log:

        def merge_and_delete() -> None:
            led = log.partition("t", 0)
            old = led.state.files[-3:]
            damage.merge(log, led, old)
            for file in old:
                (root / "topics/t/0" / file.path).unlink()

        store = _During(local(root), lambda path: path.startswith("topics/t/0/0"), merge_and_delete)
        make_backup(store, local(target), NOW)  # type: ignore[arg-type]
        assert store.done
    assert len(rows_of(restored(target, tmp_path / "copy"), "t")) == 64


@pytest.mark.parametrize("when", ["topics/__consumer_offsets/", "topics/c/0/0", "topics/t/0/0"])
def test_what_is_committed_during_the_backup_leaves_it_consistent(root: Path, tmp_path: Path, when: str):
    """At any moment: records, group commits, a new topic with commits for it, a deleted topic, new producers."""
    target = tmp_path / "backups"
    with damage.open_root(root) as log:

        def change_everything() -> None:
            damage.append(log, "t", damage.numbered(64, 4))
            damage.commit_offset(log, damage.GROUP, "t", 68)
            log.create_topic("new")
            damage.append(log, "new", damage.numbered(0, 4))
            damage.commit_offset(log, damage.GROUP, "new", 4)
            log.delete_topic("c")

        store = _During(local(root), lambda path: path.startswith(when), change_everything)
        make_backup(store, local(target), NOW)  # type: ignore[arg-type]
        assert store.done
    copy = restored(target, tmp_path / "copy")  # verify knows: no commit past the end of its log
    with damage.open_root(copy) as log:
        assert log.topic("new").name == "new", "the catalog is the newest of all"
        assert log.catalog.state.find("c") is None
    assert not (copy / "topics" / "c").exists()


def test_a_backup_under_steady_writes_restores_to_a_prefix(root: Path, tmp_path: Path):
    target, stop = tmp_path / "backups", threading.Event()
    with damage.open_root(root) as log:

        def write() -> None:
            first = 64
            while not stop.is_set() and first < 2_000:
                damage.append(log, "t", damage.numbered(first, 4))
                first += 4

        writer = threading.Thread(target=write)
        writer.start()
        try:
            made = [make_backup(local(root), local(target), NOW + n * 1_000) for n in range(4)]
        finally:
            stop.set()
            writer.join()
        everything = values(log, "t")
    for number, one in enumerate(made):
        found = rows_of(restored(target, tmp_path / f"copy-{number}", one.manifest.id), "t")
        assert [row.value for row in found] == everything[: len(found)]


# --- interrupted, damaged, wrong -----------------------------------------------------------------


class _Killed(BaseException):
    pass


def killed_after(steps: int) -> Callable[[], None]:
    left = [steps]

    def check() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise _Killed

    return check


def test_an_interrupted_backup_is_no_backup_and_the_repeat_completes_it(root: Path, tmp_path: Path):
    target = tmp_path / "backups"
    for after in (1, 5, 12):
        with pytest.raises(_Killed):
            make_backup(local(root), local(target), NOW, check=killed_after(after))
        assert backup_ids(local(target)) == []
    # Half a file, as a kill in the middle of a write leaves it.
    half = next(path for path in (target / "topics").rglob("*.parquet"))
    half.write_bytes(half.read_bytes()[:100])
    made = make_backup(local(root), local(target), NOW)
    assert made.copied.there > 0
    assert len(rows_of(restored(target, tmp_path / "copy"), "t")) == 64


def test_an_interrupted_restore_is_no_cluster_and_the_repeat_completes_it(root: Path, tmp_path: Path):
    target, copy = tmp_path / "backups", tmp_path / "copy"
    first = make_backup(local(root), local(target), NOW).manifest
    second = make_backup(local(root), local(target), NOW + 60_000).manifest
    with pytest.raises(_Killed):
        restore(local(target), local(copy), second, NOW, check=killed_after(6))
    assert not (copy / "_sluice" / "cluster.json").exists()
    with pytest.raises(InvalidRequest, match=f"holds half of backup {second.id}"):
        restore(local(target), local(copy), first, NOW)
    restored(target, copy, second.id)
    assert not (copy / MARKER).exists()


def test_a_root_that_is_not_empty_or_in_use_is_refused(root: Path, tmp_path: Path):
    target, copy = tmp_path / "backups", tmp_path / "copy"
    manifest = make_backup(local(root), local(target), NOW).manifest
    with damage.open_root(root), pytest.raises(NotLeader, match="in use"):
        restore(local(target), local(root), manifest, NOW)
    for name in ("stranger", "topics/t/0/x", "_sluice/cluster.json"):
        (copy / name).parent.mkdir(parents=True)
        (copy / name).write_bytes(b"x")
        with pytest.raises(InvalidRequest, match="not empty"):
            restore(local(target), local(copy), manifest, NOW)
        assert (copy / name).read_bytes() == b"x"
        shutil.rmtree(copy)


def test_a_damaged_source_file_fails_the_backup_with_its_name(root: Path, tmp_path: Path):
    path = damage.last_file(root)
    damage.flip(path, 30)
    with pytest.raises(CorruptData, match=path.name):
        make_backup(local(root), local(tmp_path / "backups"), NOW)
    assert backup_ids(local(tmp_path / "backups")) == []


def test_a_damaged_log_fails_the_backup_with_its_partition(root: Path, tmp_path: Path):
    damage.commit_file(root, damage.state_of(root).version).write_bytes(b"")
    with pytest.raises(CorruptData, match="t-0 cannot be backed up"):
        make_backup(local(root), local(tmp_path / "backups"), NOW)


def test_a_backup_that_was_damaged_is_not_restored(root: Path, tmp_path: Path):
    target = tmp_path / "backups"
    manifest = make_backup(local(root), local(target), NOW).manifest
    stored = target / manifest.partitions[0].data[0].place
    damage.flip(stored, 40)
    with pytest.raises(CorruptData, match="is damaged"):
        restore(local(target), local(tmp_path / "copy"), manifest, NOW)
    path = target / manifest_path(manifest.id)
    damage.flip(path, 100)
    with pytest.raises(CorruptData, match="fails its checksum"):
        read_manifest(local(target))


def test_one_target_keeps_the_backups_of_one_cluster(root: Path, tmp_path: Path):
    target, other = tmp_path / "backups", tmp_path / "other"
    make_backup(local(root), local(target), NOW)
    damage.healthy_root(other)
    with pytest.raises(InvalidRequest, match="keeps backups of cluster"):
        make_backup(local(other), local(target), NOW)
    with pytest.raises(ResourceNotFound, match="no cluster"):
        make_backup(local(tmp_path / "nothing"), local(target), NOW)


# --- pruning, manifests --------------------------------------------------------------------------


def test_pruning_deletes_what_only_the_old_backups_need(root: Path, tmp_path: Path):
    target = tmp_path / "backups"
    old = make_backup(local(root), local(target), NOW).manifest
    with damage.open_root(root) as log:
        led = log.partition("t", 0)
        damage.merge(log, led, led.state.files)
    new = make_backup(local(root), local(target), NOW + 5_000).manifest
    orphan = target / "topics/t/0" / damage.new_name(99)
    orphan.write_bytes(b"of an interrupted backup")
    assert prune(local(target), 2) == ([], 1)
    gone, files = prune(local(target), 1)
    assert gone == [old.id]
    assert files == len(referenced([old]) - referenced([new]))
    assert len(rows_of(restored(target, tmp_path / "copy"), "t")) == 64
    with pytest.raises(ResourceNotFound, match=f"there is no backup '{old.id}'"):
        read_manifest(local(target), old.id)
    with pytest.raises(InvalidRequest, match="at least 1"):
        prune(local(target), 0)


def manifest_with(*files: StoredFile) -> Manifest:
    copy = PartitionCopy(
        topic="t", topic_id="i", partition=0, folder="topics/t/0", version=1, epoch=1, log_start=0, end=1, records=1,
        data=files, log=(),
    )  # fmt: skip
    return Manifest(format=1, id="20260101T000000000Z-00000000", cluster_id="c", root="r", created_ms=1, epoch=1,
                    partitions=(copy,))  # fmt: skip


def test_a_manifest_comes_back_as_it_was_and_a_newer_format_is_refused():
    manifest = manifest_with(StoredFile("a", 1, 2), StoredFile("b", 3, 4, "log/b.00000004"))
    assert decode_manifest(encode_manifest(manifest), "m") == manifest
    assert referenced([manifest]) == {"a", "log/b.00000004"}
    with pytest.raises(UnsupportedFormat):
        decode_manifest(encode_manifest(manifest.__class__(**{**as_dict(manifest), "format": 9})), "m")


def as_dict(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in manifest.__struct_fields__}


def test_the_newest_backups_stay():
    ids = ["20260103T000000Z-a", "20260101T000000Z-b", "20260102T000000Z-c"]
    assert to_prune(ids, 1) == ["20260101T000000Z-b", "20260102T000000Z-c"]
    assert to_prune(ids, 5) == []


# --- the commands --------------------------------------------------------------------------------


def test_the_commands_make_list_restore_and_prune(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target, copy = str(tmp_path / "backups"), str(tmp_path / "copy")

    def run(*arguments: str) -> Any:
        assert backup_command.main([*arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    made = run("backup", str(root), target)
    run("backup", str(root), target)
    assert next(row["backup"] for row in run("backup", "list", target)) == made["backup"]
    found = run("restore", target, copy, "--id", made["backup"])
    assert (found["violations"], found["records"]) == ([], 80)
    assert run("backup", "prune", target, "--keep", "1")["pruned"] == [made["backup"]]
    assert backup_command.main(["restore", target, copy]) == 2
    assert "not empty" in capsys.readouterr().err
    assert backup_command.main(["backup", str(tmp_path / "typo"), target]) == 2
    assert backup_command.main(["backup", str(root), str(root / "inside")]) == 2
    assert not (root / "inside").exists()


def test_sluice_hands_the_commands_over_with_their_exit_codes(tmp_path: Path):
    command = [sys.executable, "-m", "sluice.api", "backup", "list", str(tmp_path / "typo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "typo does not exist" in done.stderr


def test_copying_checks_sizes_and_leaves_what_is_there(tmp_path: Path):
    source, target = local(tmp_path / "a"), local(tmp_path / "b")
    source.put("x/1", b"one")
    file = StoredFile("x/1", 3, 2053932785)
    where = {"where_from": lambda file: file.path, "where_to": lambda file: file.path}
    assert backup_copy.copy_files(source, target, [file], **where).files == 1
    assert backup_copy.copy_files(source, target, [file], **where).there == 1
    with pytest.raises(backup_copy.SourceVanished):
        backup_copy.copy_files(source, target, [StoredFile("x/2", 1, 1)], **where)
