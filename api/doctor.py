"""`sluice doctor`: is this machine, this configuration and this cluster in order? Looks, and changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from sluice.conf.errors import MissingJarsError
from sluice.conf.jars import DELTA_ARTIFACTS, jars_folder
from sluice.conf.settings import Settings
from sluice.log_store.errors import SluiceError
from sluice.log_store.inspection import ClusterLook, inspect
from sluice.log_store.store import open_store

Verdict = Literal["ok", "warn", "fail"]
PACKAGES = ("pyarrow", "deltalake", "obstore", "pyspark", "delta-spark", "msgspec")
MANY_SMALL_FILES, MANY_COMMITS = 1_000, 100_000


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: Verdict
    text: str


def examine(settings: Settings, env: Mapping[str, str]) -> list[Check]:
    return [*_machine(settings, env), *_storage(settings)]


def _machine(settings: Settings, env: Mapping[str, str]) -> Iterator[Check]:
    yield Check("python", "ok", platform.python_version())
    for name in PACKAGES:
        try:
            yield Check(name, "ok", version(name))
        except PackageNotFoundError:
            yield Check(name, "fail", "not installed")
    yield _java()
    folder = jars_folder(settings.spark.jars_dir, env)
    missing = [artifact.file_name for artifact in DELTA_ARTIFACTS if not (folder / artifact.file_name).is_file()]
    yield Check(
        "delta jars", "warn" if missing else "ok", "fetched at the first Spark session" if missing else "cached"
    )


def _java() -> Check:
    java = shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", ""), "bin")) or shutil.which("java")
    if java is None:
        return Check("java", "warn", "not found: Spark jobs need Java 17 or newer")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    lines = (done.stderr or done.stdout).splitlines()
    return Check("java", "ok" if done.returncode == 0 else "warn", lines[0] if lines else "no version")


def _storage(settings: Settings) -> Iterator[Check]:
    storage = settings.storage
    try:
        if "://" not in storage.root and not os.path.isdir(storage.root):
            yield Check("storage", "warn", f"{storage.root} does not exist yet: the first start makes it")
            return
        store = open_store(storage.root, fsync=storage.fsync, storage_options=storage.options)
        look = inspect(store, settings.wal.dir)
    except (SluiceError, ValueError, MissingJarsError) as error:
        yield Check("storage", "fail", str(error))
        return
    if look is None:
        yield Check("storage", "warn", f"no cluster at {storage.root} yet")
        return
    yield Check("storage", "ok", f"cluster {look.cluster_id} at {store.url}")
    yield from _cluster(look)
    if settings.wal.dir and not os.path.isdir(settings.wal.dir):
        text = "does not exist: the first start makes it, or the leader runs on another machine"
        yield Check("WAL", "warn", f"{settings.wal.dir} (wal.dir) {text}")


def _cluster(look: ClusterLook) -> Iterator[Check]:
    for problem in look.problems:
        yield Check("catalog", "fail", problem)
    if look.claim is not None:
        released = look.renewal is not None and look.renewal.released
        state = "released in order" if released else "held, or its process died"
        yield Check("leadership", "ok", f"epoch {look.claim.epoch} by {look.claim.node}: {state}")
    for partition in look.partitions:
        if partition.problem:
            yield Check(f"{partition.topic}-{partition.partition}", "fail", partition.problem)
    small = sum(partition.small_files for partition in look.partitions)
    commits = sum(partition.commit_files for partition in look.partitions)
    total = sum(partition.live_bytes for partition in look.partitions)
    yield Check("partitions", "ok", f"{len(look.partitions)} written, {total} bytes live")
    yield Check("merging", "warn" if small > MANY_SMALL_FILES else "ok", f"{small} live files below 1 MiB")
    yield Check("log clean-up", "warn" if commits > MANY_COMMITS else "ok", f"{commits} commit files, {_sum(look)}")
    waiting = sum(partition.removed_files for partition in look.partitions)
    yield Check(
        "removed files", "ok", f"{waiting} waiting for file.delete.delay.ms, {look.deleted_topics} deleted topics"
    )
    unnamed = sum(partition.unnamed_files for partition in look.partitions)
    yield Check("orphans", "ok", f"{unnamed} files that no commit names; they go after orphan.retention.ms")
    leftovers = sum(partition.leftovers for partition in look.partitions)
    checksums = sum(partition.checksums for partition in look.partitions)
    text = f"{leftovers} sidecars and temporaries of other engines and killed processes, {checksums} version checksums"
    yield Check("leftovers", "ok", f"{text} (n.crc)")
    for wal in look.wals:
        text = f"{wal.bytes} bytes, {wal.parked} parked, {wal.set_aside} set aside"
        yield Check(f"WAL {wal.folder}", "warn" if wal.parked or wal.set_aside else "ok", text)


def _sum(look: ClusterLook) -> str:
    checkpoints = sum(partition.checkpoints for partition in look.partitions)
    states = sum(partition.states for partition in look.partitions)
    return f"{checkpoints} checkpoints, {states} state snapshots"
