"""How long an acknowledgement takes at a steady rate of single records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.data import VALUE_BYTES
from bench.figures import at_most
from bench.harness import scratch
from bench.peers.bodies import payload_file, single_records
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker, broker
from bench.peers.servers import in_turns, settle
from bench.peers.service import Service, service
from bench.peers.sizes import PARTITIONS, Sizes

SHARES = ("p50", "p99", "p99.9")
ACKS = ("all", "1")


def run(sizes: Sizes) -> PeerFindings:
    rate = sizes.latency_rate
    findings = PeerFindings(
        "latency",
        f"acknowledgement of single {VALUE_BYTES} B records at {rate:,} records/s, {PARTITIONS} partitions",
        {"kafka": KAFKA_VERSION, "records_per_s": rate, "seconds_per_run": sizes.latency_s, "rounds": sizes.rounds},
        notes=[
            "Kafka: producer-perf, from send() to the answer, in whole milliseconds, after a warm-up; its producer"
            " gathers records for linger.ms (5 by default)",
            "Sluice: one HTTP request per record, from the moment it was due",
            "Kafka does not fsync; Sluice with fsync on acknowledges acks=1 after the fsync of its write-ahead log and"
            " acks=all when the row is in the Delta table",
        ],
    )
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        payload = payload_file(folder / "payload")
        kafka = stack.enter_context(broker(folder / "kafka"))
        servers = {
            "fsync off": stack.enter_context(service(folder / "off", fsync=False)),
            "fsync on": stack.enter_context(service(folder / "on")),
        }
        kafka.make_topic("latency")
        kafka.produce_perf("latency", payload, rate, warm=0, rate=rate, acks="all")
        for server in servers.values():
            server.load(single_records(), 1.0, acks="all", rate=rate)
        everyone = [kafka.server, *(server.server for server in servers.values())]
        runs: dict[tuple[str, str], Callable[[], tuple[float, ...]]] = {}
        for acks in ACKS:
            runs[KAFKA, f"Kafka, acks={acks}"] = partial(_theirs, kafka, payload, acks, sizes)
            for name, server in servers.items():
                runs[SLUICE, f"Sluice, acks={acks}, {name}"] = partial(_ours, server, acks, sizes)
        for key, one in in_turns(runs, sizes.rounds):
            settle(*everyone)
            _keep(found, *key, one())
    for share in SHARES:
        for (side, what), rounds in found.items():
            if what.endswith(f": {share}"):
                findings.add(side, what, "ms", rounds)
    _ratios(findings)
    return findings


def _keep(found: dict[tuple[str, str], list[float]], side: str, what: str, times: tuple[float, ...]) -> None:
    for share, ms in zip(SHARES, times, strict=True):
        found.setdefault((side, f"{what}: {share}"), []).append(ms)


def _theirs(kafka: Broker, payload: Path, acks: str, sizes: Sizes) -> tuple[float, ...]:
    records = int(sizes.latency_rate * sizes.latency_s)
    done = kafka.produce_perf("latency", payload, records, warm=records // 2, rate=sizes.latency_rate, acks=acks)
    # Whole milliseconds are what the tool has: a 0 is less than one.
    return tuple(max(ms, 0.5) for ms in (done.p50_ms, done.p99_ms, done.p999_ms))


def _ours(server: Service, acks: str, sizes: Sizes) -> tuple[float, ...]:
    done = server.load(single_records(), sizes.latency_s, acks=acks, rate=sizes.latency_rate)
    return tuple(done[share] * 1e3 for share in SHARES)


def _ratios(findings: PeerFindings) -> None:
    for acks, fsync in (("1", "fsync on"), ("all", "fsync off"), ("all", "fsync on")):
        for share in SHARES:
            target = at_most(1) if (acks, fsync, share) == ("1", "fsync on", "p99") else None
            ours, theirs = f"Sluice, acks={acks}, {fsync}: {share}", f"Kafka, acks=all: {share}"
            findings.compare(f"{ours} / {theirs}", ours, theirs, target)
    for share in SHARES:
        ours, theirs = f"Sluice, acks=1, fsync off: {share}", f"Kafka, acks=1: {share}"
        findings.compare(f"{ours} / {theirs}", ours, theirs)
