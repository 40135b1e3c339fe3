"""The Sluice service as a process of its own, and the loads against it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.figures import REPOSITORY
from bench.http import load
from bench.http_bodies import Body
from bench.peers.probes import Probes
from bench.peers.servers import Server, free_port
from bench.peers.sizes import PARTITIONS
from sluice.api.client import SluiceClient

START_S = 120.0
CHILD_S = 300.0
TOPIC = "orders"


class Service:
    def __init__(self, root: Path, *, fsync: bool = True, **settings: str) -> None:
        root.parent.mkdir(parents=True, exist_ok=True)
        self.root, self.port = root, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "sluice.api", "serve", "--root", str(root), "--port", str(self.port)]
        environment = settings | {
            "SLUICE_FSYNC": str(fsync).lower(),
            "SLUICE_NUM_PARTITIONS": str(PARTITIONS),
            "SLUICE_LOG_LEVEL": "warning",
        }
        self.server = Server(command, root.parent / f"{root.name}.out", environment)
        self.probes = Probes()
        """Of the last start."""

    def start(self, topic: str = TOPIC, partitions: int = 1) -> float:
        """Seconds from the start of the process until a record to each of so many partitions was acknowledged."""
        self.probes = Probes()
        begun = time.perf_counter()
        self.server.start()
        with httpx.Client(base_url=self.url, timeout=30) as client:
            self.server.until(lambda: takes(client, topic, partitions, self.probes), START_S)
        return time.perf_counter() - begun

    def ends(self, topic: str = TOPIC) -> list[int]:
        paths = [f"{self.url}/topics/{topic}/partitions/{number}/offsets" for number in range(PARTITIONS)]
        return [httpx.get(path).raise_for_status().json()["end_offset"] for path in paths]

    def make_topic(self, topic: str) -> None:
        with SluiceClient(self.url) as client:
            client.topics.create(topic, partitions=PARTITIONS)

    @contextmanager
    def own_topic(self, topic: str) -> Iterator[str]:
        """One that has taken a record in each partition, so that nothing is made when it is loaded. It is deleted in
        the end: its tail would be merged during somebody else's run."""
        self.make_topic(topic)
        try:
            with httpx.Client(base_url=self.url, timeout=30) as client:
                if not takes(client, topic, PARTITIONS, Probes()):
                    raise RuntimeError(f"the new topic {topic} takes no records")
            yield topic
        finally:
            with SluiceClient(self.url) as admin:
                admin.topics.delete(topic)

    def load(
        self, body: Body, seconds: float, *, acks: str, rate: int | None = None, topic: str = TOPIC
    ) -> dict[str, Any]:
        return load(self.port, f"/topics/{topic}?acks={acks}", body, seconds, rate)


def takes(client: httpx.Client, topic: str, partitions: int, probes: Probes) -> bool:
    """Whether a record to each partition is acknowledged; those that were sent are counted."""
    for number in range(partitions):
        try:
            answer = client.post(f"/topics/{topic}/partitions/{number}", json={"records": [{"value": "first"}]})
        except httpx.ConnectError:
            return False  # nothing was sent
        except httpx.TransportError:
            probes.unanswered += 1
            return False
        if answer.status_code != 200 or answer.json()["offsets"][0].get("error_code"):
            return False
        probes.acknowledged[number] += 1
    return True


@contextmanager
def service(root: Path, *, fsync: bool = True, **settings: str) -> Iterator[Service]:
    """A running one; its root goes with it."""
    made = Service(root, fsync=fsync, **settings)
    try:
        made.start()
        yield made
    finally:
        made.server.stop()
        shutil.rmtree(root, ignore_errors=True)


def child(module: str, order: dict[str, Any], timeout_s: float = CHILD_S) -> dict[str, Any]:
    """A module of this package as a process: one line of JSON in, the last line that it prints back."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=REPOSITORY,
        input=json.dumps(order) + "\n",
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
