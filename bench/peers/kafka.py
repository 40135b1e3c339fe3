"""One Kafka broker (KRaft, one node) with the settings of its distribution, and its own tools beside it."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.machine import java_path
from bench.peers.jars import kafka_jars
from bench.peers.perf_output import Consumed, Produced, consumed, produced
from bench.peers.probes import Probes
from bench.peers.servers import Server, free_port
from bench.peers.sizes import PARTITIONS
from bench.peers.wire import BrokerError, WireClient
from sluice.conf.jars import ResolveError

START_S = 120.0
TOOL_S = 300.0
FLAT_OUT = -1
BATCH_BYTES, LINGER_MS, ZSTD_LEVEL = 16_384, 5, 3
"""What Kafka's producer takes by default."""
SESSION_TIMEOUT_S = 9
"""broker.session.timeout.ms by default: how long the controller, which starts anew with its node, takes the broker that
was killed for alive and refuses its next incarnation (DuplicateBrokerRegistrationException; KAFKA-19130 and KAFKA-19047
spare this only those that were shut down in order)."""
# As kafka-run-class.sh and kafka-server-start.sh have them.
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_BROKER_HEAP = ("-Xmx1G", "-Xms1G")
_TOOL_HEAP = ("-Xmx512M",)
_QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)


def properties(logs: Path, port: int, controller: int) -> str:
    """config/server.properties of the distribution, but for addresses, folder and the number of partitions."""
    return f"""process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={logs}
num.partitions={PARTITIONS}
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def format_arguments(made: uuid.UUID, config: Path) -> list[str]:
    """One in 64 ids begins with a minus, as Kafka writes them: alone it would be taken for an option."""
    cluster = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
    return ["format", "--standalone", f"--cluster-id={cluster}", "--config", str(config)]


class Broker:
    """Formatted once; started, killed and started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.probes = Probes()
        """Of the last start."""
        self.logs = folder / "logs"
        self.port, controller = free_port(), free_port()
        folder.mkdir(parents=True)
        self._config = folder / "server.properties"
        self._config.write_text(properties(self.logs, self.port, controller))
        _run(["kafka.tools.StorageTool", *format_arguments(uuid.uuid4(), self._config)])
        self.server = Server([*_java(*_BROKER_HEAP), "kafka.Kafka", str(self._config)], self._folder / "broker.out")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, topic: str, partitions: int = 1) -> float:
        """Seconds from the start of the process until a record to each of so many partitions was acknowledged."""
        self.probes = Probes()
        begun = time.perf_counter()
        self.server.start()
        self._until(lambda: self._takes(topic, partitions))
        return time.perf_counter() - begun

    def _takes(self, topic: str, partitions: int) -> bool:
        with suppress(OSError, BrokerError), WireClient(self.port) as client:
            if client.partitions(topic) == PARTITIONS:
                for number in range(partitions):
                    self._probe(client, topic, number)
                return True
        return False

    def _probe(self, client: WireClient, topic: str, number: int) -> None:
        try:
            client.produce(topic, number, b'"first"', int(time.time() * 1000))
        except OSError:
            self.probes.unanswered += 1
            raise
        self.probes.acknowledged[number] += 1

    def _until(self, condition: Callable[[], bool]) -> None:
        self.server.until(condition, START_S)

    def make_topic(self, topic: str) -> None:
        def made() -> bool:
            with suppress(OSError), WireClient(self.port) as client:
                return client.partitions(topic) == PARTITIONS
            return False

        self._until(made)

    def ends(self, topic: str) -> list[int]:
        with WireClient(self.port) as client:
            return client.end_offsets(topic, PARTITIONS)

    def records(self, topic: str) -> int:
        return sum(self.ends(topic))

    def log_bytes(self, topic: str) -> tuple[int, int]:
        """Bytes of the records, and of all files of the topic as the disk has them."""
        files = [file for part in self.logs.glob(f"{topic}-*") for file in part.iterdir()]
        return (
            sum(file.stat().st_size for file in files if file.suffix == ".log"),
            sum(file.stat().st_blocks * 512 for file in files),
        )

    # --- Kafka's own tools ---------------------------------------------------------------------------

    def produce_perf(
        self, topic: str, payload: Path, records: int, *, warm: int, rate: int = FLAT_OUT, **settings: str
    ) -> Produced:
        properties = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        arguments = ["--topic", topic, "--payload-file", str(payload), "--throughput", str(rate)]
        arguments += ["--num-records", str(records + warm), "--warmup-records", str(warm)] if warm else []
        arguments += [] if warm else ["--num-records", str(records)]
        arguments += ["--bootstrap-server", self.address, "--command-property", *properties]
        return produced(_run(["org.apache.kafka.tools.ProducerPerformance", *arguments]))

    def consume_perf(self, topic: str, records: int) -> Consumed:
        arguments = ["--topic", topic, "--num-records", str(records), "--bootstrap-server", self.address]
        return consumed(_run(["org.apache.kafka.tools.ConsumerPerformance", *arguments]))

    def console_produce(
        self,
        topic: str,
        lines: Path,
        records: int,
        *,
        codec: str = "none",
        batch_bytes: int = BATCH_BYTES,
        level: int = ZSTD_LEVEL,
    ) -> None:
        """Every line of a file, once and in order, to a new topic. Size of a batch and level of zstd are the producer's
        own unless given."""
        self.make_topic(topic)
        arguments = ["--topic", topic, "--bootstrap-server", self.address, "--compression-codec", codec]
        arguments += ["--batch-size", str(batch_bytes), "--command-property", f"compression.zstd.level={level}"]
        # With the tool's own, 1.5 s and three times, a busy machine lost a batch, and the tool ended well all the same.
        arguments += ["--request-timeout-ms", "30000", "--message-send-max-retries", "1000"]
        _run(["org.apache.kafka.tools.ConsoleProducer", *arguments], lines)
        if (found := self.records(topic)) != records:
            raise RuntimeError(f"Kafka has {found} of {records} records")


@contextmanager
def broker(folder: Path, topic: str = "first") -> Iterator[Broker]:
    """A running one; its folder goes with it."""
    made = Broker(folder)
    try:
        made.start(topic)
        yield made
    finally:
        made.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _java(*heap: str) -> list[str]:
    found = java_path(os.environ)
    if found is None:
        raise ResolveError("java was not found: set JAVA_HOME or put Java 17 or newer on the PATH")
    return [found, *heap, *_JVM, *_QUIET, "-cp", f"{kafka_jars()}/*"]


def _run(arguments: Sequence[str], lines: Path | None = None) -> str:
    command = [*_java(*_TOOL_HEAP), *arguments]
    with open(lines or "/dev/null", "rb") as source:
        done = subprocess.run(command, stdin=source, capture_output=True, text=True, timeout=TOOL_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
