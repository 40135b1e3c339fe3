"""How long a partition and a cluster take to open, long after they were made, against DeltaTable on the same table."""

from __future__ import annotations

import gc
from collections.abc import Callable

from deltalake import DeltaTable

from bench.data import batch
from bench.figures import Findings, at_most, percentile
from bench.harness import cluster, scratch, seconds, settings_for
from sluice.conf.settings import LogSettings
from sluice.log_store import snapshot
from sluice.log_store.engine import LogStore
from sluice.log_store.partition import PartitionLog
from sluice.log_store.topic import TopicConfig

ROUNDS, OPENS, RESTARTS = 8, 5, 8
INTERVAL = LogSettings().checkpoint_interval_versions
SINCE_CHECKPOINT = INTERVAL - 1


def run() -> Findings:
    findings = Findings(
        "open",
        f"a partition of 1,000 versions and files, a checkpoint every {INTERVAL}",
        {
            "versions": 1_000,
            "checkpoint.interval.versions": INTERVAL,
            "opens_per_round": OPENS,
            "fsync": True,
            "merge.enable": False,
        },
        notes=["p99 over all opens of all rounds", "files in the page cache, nothing in memory"],
    )
    with scratch() as folder:
        root = folder / "cluster"
        with cluster(root, fsync=True, merge=False) as log:
            log.create_topic("orders", partitions=1)
            partition = log.partition("orders", 0)
            _append_until(partition, lambda: partition.state.version >= 1_000)
            _wait_for_checkpoint(partition)
            _measure(findings, log, partition, f"{_behind(partition)} versions after a checkpoint")
            _append_until(partition, lambda: _behind(partition) == SINCE_CHECKPOINT)
            _measure(findings, log, partition, f"{SINCE_CHECKPOINT} versions after a checkpoint")
        settings = settings_for(root, fsync=True, merge=False)

        def restart() -> float:
            opened: list[LogStore] = []

            def open_and_ask() -> None:
                opened.append(LogStore.open(settings))
                opened[0].reads("orders", 0).latest()

            spent = seconds(open_and_ask)
            opened[0].close()
            return spent

        findings.add("LogStore.open and the end of the partition", "ms", [restart() * 1e3 for _ in range(RESTARTS)])
    return findings


def _append_until(partition: PartitionLog, done: Callable[[], bool]) -> None:
    one = batch(1)
    while not done():
        partition.append(one).result()


def _behind(partition: PartitionLog) -> int:
    return partition.state.version - partition.durability.checkpointed


def _wait_for_checkpoint(partition: PartitionLog) -> None:
    while _behind(partition) >= INTERVAL:
        partition.append(batch(1)).result()


def _measure(findings: Findings, log: LogStore, partition: PartitionLog, when: str) -> None:
    store, ref = log.runtime.store, partition.ref
    config = TopicConfig()
    work: dict[str, Callable[[], object]] = {
        "PartitionLog.open": lambda: PartitionLog(ref, log.runtime, lambda: config).open(),
        "snapshot.load": lambda: snapshot.load(store, ref.folder),
        "DeltaTable": lambda: DeltaTable(f"{store.delta_uri}/{ref.folder}").version(),
    }
    times: dict[str, list[list[float]]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, once in work.items():
            gc.collect()
            times[name].append([seconds(once) for _ in range(OPENS)])
    p50 = {name: [percentile(r, 50) for r in rounds] for name, rounds in times.items()}
    for name, rounds in times.items():
        ours = name != "DeltaTable"
        findings.add(f"{name}, {when}: p50", "ms", [t * 1e3 for t in p50[name]], at_most(100) if ours else None)
        worst = percentile([t for r in rounds for t in r], 99)
        findings.add(f"{name}, {when}: p99", "ms", [worst * 1e3], at_most(100) if ours else None)
    findings.ratio(f"DeltaTable / PartitionLog.open, {when}", p50["DeltaTable"], p50["PartitionLog.open"])
