"""What an object store is asked for, counted on the wire: a real S3 server behind a proxy that counts.

Renewals and looks at the claims are the cluster's, whatever its number of partitions, and are counted apart.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.data import batch
from bench.figures import Findings, Target, at_most
from bench.harness import scratch
from sluice.conf.settings import LogSettings, Settings, StorageSettings, WalSettings
from sluice.log_store.committer import NEWEST_KNOWN_S
from sluice.log_store.engine import LogStore
from sluice.log_store.merger import merge_once
from sluice.log_store.partition import PartitionLog
from sluice.log_store.topic import TopicConfig
from tests.support.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.s3_server import S3Server, s3_server

COMMITS, IDLE_S, IDLE_PARTITIONS = 300, 12.0, 20
INTERVAL = LogSettings().checkpoint_interval_versions
VERBS = ("put", "get", "head", "list", "delete")
CLAIMS = "/_sluice/claims/"


class Meter:
    def __init__(self, proxy: FaultyProxy, findings: Findings) -> None:
        self._proxy = proxy
        self._findings = findings

    def count(self, work: Callable[[], object]) -> tuple[Counter[str], Counter[str]]:
        """(requests of partitions, requests about claims)"""
        before = len(self._proxy.requests)
        work()
        made = self._proxy.requests[before:]
        claims = Counter[str](request.verb for request in made if CLAIMS in request.path)
        return Counter[str](request.verb for request in made) - claims, claims

    def note(self, what: str, unit: str, value: float, target: Target | None = None) -> None:
        self._findings.add(what, unit, [value], target)

    def show(self, what: str, counts: Counter[str], per: float = 1, **targets: Target) -> None:
        for verb in VERBS:
            if counts[verb] or verb in targets:
                self.note(f"{what}: {verb}s", "requests", counts[verb] / per, targets.get(verb))

    def measure(self, what: str, work: Callable[[], object], per: float = 1, **targets: Target) -> None:
        self.show(what, self.count(work)[0], per, **targets)


def run() -> Findings:
    findings = Findings(
        "requests",
        "requests to an object store, counted between client and server (s3proxy)",
        {"commits": COMMITS, "checkpoint.interval.versions": INTERVAL, "commit.interval.ms": 0, "acks": "all"},
        notes=[
            "a get of what is not there counts: it is how the end of a log is found",
            "delta-rs makes a checkpoint on a local copy of the commits since the last one: each is fetched once",
        ],
    )
    with scratch() as folder, s3_server(folder) as server, faulty_proxy(server.port) as proxy:
        meter = Meter(proxy, findings)
        cluster = _Cluster(server, proxy, folder)
        _commits(meter, cluster)
        _opens(meter, cluster)
        _polls(meter, cluster)
        _rest(meter, cluster)
    return findings


class _Cluster:
    def __init__(self, server: S3Server, proxy: FaultyProxy, folder: Path) -> None:
        self._root, self._folder = f"{server.bucket('bench')}/cluster", folder
        self._options = server.options_at(proxy.endpoint)

    @contextmanager
    def lead(self, machine: str = "first", *, force: bool = False, **log: Any) -> Iterator[LogStore]:
        storage = StorageSettings(
            root=self._root,
            s3_endpoint=self._options["endpoint"],
            s3_region=self._options["region"],
            s3_access_key_id=self._options["access_key_id"],
            s3_secret_access_key=self._options["secret_access_key"],
            s3_allow_http=True,
        )
        settings = Settings(
            storage=storage,
            wal=WalSettings(dir=str(self._folder / machine / "wal")),
            log=LogSettings(**{"commit_interval_ms": 0, "merge_enable": False} | log),
        )
        with LogStore.open(settings, force=force) as opened:
            yield opened


def _append(log: LogStore, count: int = 1, topic: str = "orders") -> None:
    for _ in range(count):
        log.append(topic, 0, batch(10)).result(30)


def _commits(meter: Meter, cluster: _Cluster) -> None:
    with cluster.lead(checkpoint_interval_versions=10_000) as log:
        log.create_topic("orders", partitions=1)
        meter.measure("the first append to a new partition", lambda: _append(log))
        begun = time.monotonic()
        counts, claims = meter.count(lambda: _append(log, COMMITS))
        spent = time.monotonic() - begun
        none = at_most(0)
        meter.show("one commit", counts, COMMITS, put=at_most(2), get=none, head=none, list=none, delete=none)
        # A renewal every 3 s looks too: a third of a look per second is not the commits'.
        meter.note("looks at the claims, while committing", "per second", claims["head"] / spent, at_most(1.34))
        partition = log.partition("orders", 0)
        meter.measure(f"the first checkpoint, at {COMMITS} versions", partition.checkpoint)
        _append(log, INTERVAL)
        counts, _ = meter.count(partition.checkpoint)
        meter.show(f"a checkpoint {INTERVAL} versions after the last", counts)
        meter.note("all requests of a checkpoint, per commit", "requests", counts.total() / INTERVAL, at_most(1.2))
        files = len(partition.state.files)
        meter.measure(f"a merge of {files} files", lambda: merge_once(partition, partition.config, quiet=True))
        time.sleep(NEWEST_KNOWN_S + 0.5)
        meter.measure("a commit after 10 s of rest", lambda: _append(log), put=at_most(2))


def _opens(meter: Meter, cluster: _Cluster) -> None:
    with cluster.lead(checkpoint_interval_versions=10_000) as log:
        log.create_topic("empty", partitions=1)
        _append(log)
        config = TopicConfig()

        def opened(topic: str) -> None:
            PartitionLog(log.partition(topic, 0).ref, log.runtime, lambda: config).open()

        partition = log.partition("orders", 0)
        meter.measure("open of a partition that was never written", lambda: opened("empty"))
        partition.checkpoint()
        meter.measure("open of a partition at a checkpoint", lambda: opened("orders"))
        _append(log, INTERVAL - 1 - (partition.state.version - partition.durability.checkpointed))
        behind = partition.state.version - partition.durability.checkpointed
        meter.measure(f"open of a partition {behind} versions after one", lambda: opened("orders"))

    def restart() -> None:
        with cluster.lead():
            pass

    counts, claims = meter.count(restart)
    meter.show("open and close of the cluster", counts + claims)


def _polls(meter: Meter, cluster: _Cluster) -> None:
    with cluster.lead() as log:
        reads, none = log.reads("orders", 0), at_most(0)
        reads.fetch(0, max_records=1)
        end = reads.latest().offset
        meter.measure("the leader's poll at the end", lambda: reads.fetch(end), get=none, head=none, list=none)
        meter.measure("the leader's fetch from a file", lambda: reads.fetch(0, max_records=10), get=at_most(1))
        _append(log)
        meter.measure("the leader's fetch of the newest rows", lambda: reads.fetch(end), get=none, head=none, list=none)
        with cluster.lead("second", force=True) as successor:
            _append(successor)
            _until_fenced(log)
            reads.fetch(0, max_records=1)
            end = reads.latest().offset
            meter.measure("a follower's poll at the end", lambda: reads.fetch(end), list=none)
            _append(successor)
            meter.measure("a follower's poll that finds one version", lambda: reads.fetch(end), list=none)


def _until_fenced(log: LogStore) -> None:
    while not log.fenced:
        time.sleep(0.05)


def _rest(meter: Meter, cluster: _Cluster) -> None:
    """Partitions that were written to and then left alone; their tails are merged, then nothing happens any more."""
    with cluster.lead(merge_enable=True, merge_quiet_ms=500) as log:
        log.create_topic("quiet", partitions=IDLE_PARTITIONS)
        for number in range(IDLE_PARTITIONS):
            for _ in range(3):
                log.append("quiet", number, batch(10)).result(30)
        time.sleep(6)
        begun = time.monotonic()
        counts, claims = meter.count(lambda: time.sleep(IDLE_S))
        minutes = (time.monotonic() - begun) / 60
        none = at_most(0)
        meter.show("an idle partition, per minute", counts, minutes, put=none, get=none, head=none, list=none)
        meter.show("the claim of the cluster, per minute", claims, minutes)
