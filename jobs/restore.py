"""Fills an empty root from a backup, checks every byte on the way, and verifies the result.

    sluice restore SOURCE EMPTY_ROOT [--id ID]

The new root is a cluster of its own: it gets a cluster id and a history of claims that ends above every epoch that
was ever claimed in the old one, so that a leader of the old root can never write to the new one (R-1). `cluster.json`
is written last: until then nobody takes the root for a cluster, and a repeat of an interrupted restore completes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict

import msgspec

from sluice.jobs.backup_copy import THREADS, Copied, copy_files
from sluice.jobs.backup_manifest import Manifest
from sluice.log_store.claims import CLAIMS, MAINTENANCE, Claim, Renewal, RootLock
from sluice.log_store.cluster_file import CLUSTER_FILE, CLUSTER_FORMAT
from sluice.log_store.errors import InvalidRequest, NotLeader
from sluice.log_store.store import Store, StoreConflict, StoreNotFound

MARKER = "_sluice/restoring.json"
EPOCHS_AHEAD = 100
"""Claims beyond the backup's: the old cluster may have been claimed again since. Each fences the epoch below it."""


def restore(
    source: Store,
    root: Store,
    manifest: Manifest,
    now_ms: int,
    *,
    keep_cluster_id: bool = False,
    check: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Copied:
    """Copy all files of a backup into an empty root and make it a cluster."""
    lock = RootLock(root.local_path)
    if root.local_path is not None and not lock.acquire():
        raise NotLeader(f"{root.url} is in use: another process holds its lock")
    try:
        _begin(root, manifest)
        total = Copied()
        for number, copy in enumerate(manifest.partitions):
            check()
            progress(number, len(manifest.partitions))
            total.add(
                copy_files(
                    source,
                    root,
                    copy.files,
                    where_from=lambda file: file.place,
                    where_to=lambda file: file.path,
                    check=check,
                )
            )
        _write_claims(root, manifest.epoch + EPOCHS_AHEAD)
        _write_cluster(root, manifest, now_ms, keep_cluster_id=keep_cluster_id)
        root.delete(MARKER)
        return total
    finally:
        lock.release()


def _begin(root: Store, manifest: Manifest) -> None:
    """The root must be empty, or hold what an interrupted restore of the same backup left."""
    try:
        begun = str(msgspec.json.decode(root.get(MARKER))["backup"])
    except StoreNotFound:
        begun = None
    if begun is not None and begun != manifest.id:
        raise InvalidRequest(f"{root.url} holds half of backup {begun}: restore that one, or empty it", field="root")
    if begun is None and (found := _content(root)):
        raise InvalidRequest(f"{root.url} is not empty, it holds {found[0]}: restore into an empty root", field="root")
    with suppress(StoreConflict):
        root.put_if_absent(MARKER, msgspec.json.encode({"backup": manifest.id}), sync=True)


def _content(root: Store) -> Sequence[str]:
    """The lock that was just taken is not content."""
    files = [item.name for item in root.list("")]
    inside = [f"_sluice/{item.name}" for item in root.list("_sluice") if item.name != "leader.lock"]
    inside += [f"_sluice/{name}" for name in root.list_folders("_sluice")]
    return [*files, *inside, *(name for name in root.list_folders("") if name != "_sluice")]


def _write_claims(root: Store, newest: int) -> None:
    """Every epoch up to `newest`, the last one released: whoever opens the root need not wait for anybody."""

    def put(epoch: int) -> None:
        claim = Claim(epoch=epoch, node="restore", address="", wal="none", purpose=MAINTENANCE, id=uuid.uuid4().hex)
        with suppress(StoreConflict):  # of the run before this one
            root.put_if_absent(f"{CLAIMS}/{epoch:020d}.json", msgspec.json.encode(asdict(claim)))

    with ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-restore") as pool:
        list(pool.map(put, range(1, newest + 1)))
    root.replace(f"{CLAIMS}/{newest:020d}.renewal", msgspec.json.encode(Renewal(1, released=True)))
    root.sync([f"{CLAIMS}/{epoch:020d}.json" for epoch in range(1, newest + 1)])


def _write_cluster(root: Store, manifest: Manifest, now_ms: int, *, keep_cluster_id: bool) -> None:
    body = {
        "cluster_id": manifest.cluster_id if keep_cluster_id else uuid.uuid4().hex,
        "format": CLUSTER_FORMAT,
        "created_ms": now_ms,
        "restored_from": {"cluster_id": manifest.cluster_id, "backup": manifest.id},
    }
    root.put_if_absent(CLUSTER_FILE, msgspec.json.encode(body), sync=True)
