"""A root in a folder, backed up to a bucket, restored into another and verified there."""

from __future__ import annotations

from pathlib import Path

from sluice.jobs.backup import make_backup, prune, read_manifest
from sluice.jobs.restore import restore
from sluice.jobs.verify_run import Scope, Verification
from sluice.jobs.verify_workers import LocalWorkers
from sluice.log_store.store import Store, open_store
from tests.s3.bucket import Bucket
from tests.support import damage

NOW = 1_700_000_000_000


def violations(store: Store) -> list[str]:
    return [str(one) for one in Verification(store, LocalWorkers(store), Scope()).run().violations]


def test_a_root_goes_to_a_bucket_and_comes_back_in_a_bucket(bucket: Bucket, tmp_path: Path):
    damage.healthy_root(tmp_path / "root")
    source = open_store(tmp_path / "root", fsync=False)
    target = open_store(f"{bucket.url}/backups", storage_options=bucket.options)
    copy = open_store(f"{bucket.url}/copy", storage_options=bucket.options)
    first = make_backup(source, target, NOW)
    assert make_backup(source, target, NOW + 1_000).copied.files == 0
    assert prune(target, 1) == ([first.manifest.id], 0)
    restore(target, copy, read_manifest(target), NOW)
    assert violations(copy) == []
    name = next(item.name for item in copy.list("topics/t/0") if item.name.startswith(f"{60:020d}"))
    copy.delete(f"topics/t/0/{name}")
    assert [line for line in violations(copy) if line.startswith("I-9") and name in line]
