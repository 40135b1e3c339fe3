"""How long an acknowledgement takes at a steady rate of single records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.data import VALUE_BYTES
from bench.figures import Target, at_most
from bench.harness import scratch
from bench.peers.bodies import payload_file, single_records
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import LINGER_MS, Broker, broker
from bench.peers.servers import Settling, in_turns
from bench.peers.service import Service, service
from bench.peers.sizes import PARTITIONS, Sizes

SHARES = ("p50", "p99", "p99.9")
ACKS = ("all", "1")
FSYNC = ("fsync off", "fsync on")
AT_ONCE = "Kafka, acks=all, linger.ms=0"
THEIRS: dict[str, dict[str, str]] = {
    "Kafka, acks=all": {"acks": "all"},
    AT_ONCE: {"acks": "all", "linger_ms": "0"},
    "Kafka, acks=1": {"acks": "1"},
}


def pairs() -> list[tuple[str, str, Target | None]]:
    """(ours, whose, target) for each share: each acks of ours beside the same of Kafka's and beside its producer that
    does not wait; acks=1 beside acks=all as well, because with fsync it promises more than that."""
    found: list[tuple[str, str, Target | None]] = []
    for acks, theirs in (("1", tuple(THEIRS)), ("all", ("Kafka, acks=all", AT_ONCE))):
        for fsync in reversed(FSYNC):
            for whose in theirs:
                for share in SHARES:
                    asked = (acks, fsync, whose, share) == ("1", "fsync on", "Kafka, acks=all", "p99")
                    ours = f"Sluice, acks={acks}, {fsync}: {share}"
                    found.append((ours, f"{whose}: {share}", at_most(1) if asked else None))
    return found


def run(sizes: Sizes) -> PeerFindings:
    rate = sizes.latency_rate
    findings = PeerFindings(
        "latency",
        f"acknowledgement of single {VALUE_BYTES} B records at {rate:,} records/s, {PARTITIONS} partitions",
        {"kafka": KAFKA_VERSION, "records_per_s": rate, "seconds_per_run": sizes.latency_s, "rounds": sizes.rounds},
        notes=[
            "Kafka: producer-perf, from send() to the answer, in whole milliseconds, after a warm-up; its producer"
            f" gathers records for linger.ms ({LINGER_MS} by default)",
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
        settle = Settling([kafka.server, *(server.server for server in servers.values())])
        runs: dict[tuple[str, str], Callable[[], tuple[float, ...]]] = {}
        kafkas = {what: partial(_theirs, kafka, payload, settings, sizes) for what, settings in THEIRS.items()}
        for acks in ACKS:
            runs[KAFKA, f"Kafka, acks={acks}"] = kafkas[f"Kafka, acks={acks}"]
            for name, server in servers.items():
                runs[SLUICE, f"Sluice, acks={acks}, {name}"] = partial(_ours, server, acks, sizes)
        runs[KAFKA, AT_ONCE] = kafkas[AT_ONCE]
        for key, one in in_turns(runs, sizes.rounds):
            settle()
            _keep(found, *key, one())
    for share in SHARES:
        for (side, what), rounds in found.items():
            if what.endswith(f": {share}"):
                findings.add(side, what, "ms", rounds)
    findings.notes.append(settle.note)
    compare(findings)
    return findings


def compare(findings: PeerFindings) -> None:
    for ours, theirs, target in pairs():
        findings.compare(f"{ours} / {theirs}", ours, theirs, target)


def _keep(found: dict[tuple[str, str], list[float]], side: str, what: str, times: tuple[float, ...]) -> None:
    for share, ms in zip(SHARES, times, strict=True):
        found.setdefault((side, f"{what}: {share}"), []).append(ms)


def _theirs(kafka: Broker, payload: Path, settings: dict[str, str], sizes: Sizes) -> tuple[float, ...]:
    records = int(sizes.latency_rate * sizes.latency_s)
    done = kafka.produce_perf("latency", payload, records, warm=records // 2, rate=sizes.latency_rate, **settings)
    # Whole milliseconds are what the tool has: a 0 is less than one.
    return tuple(max(ms, 0.5) for ms in (done.p50_ms, done.p99_ms, done.p999_ms))


def _ours(server: Service, acks: str, sizes: Sizes) -> tuple[float, ...]:
    done = server.load(single_records(), sizes.latency_s, acks=acks, rate=sizes.latency_rate)
    return tuple(done[share] * 1e3 for share in SHARES)
