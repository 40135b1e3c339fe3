"""A process of clients, which can be killed and stopped as a whole.

SIGTERM ends it in order: everybody hears the end of what they have asked.
"""

from __future__ import annotations

import importlib
import signal
import threading
from pathlib import Path
from typing import Any

from tests.lab.client import Client, Surroundings
from tests.lab.history import Recorder
from tests.lab.storage import Lake


def clients_of(name: str, around: Surroundings) -> list[Client]:
    from tests.lab.administering import Administering, RunningJobs
    from tests.lab.grouping import BareMember, ThePythonConsumer, V2Member, Watching
    from tests.lab.producing import KINDS, Producing, Slow, ThePythonProducer
    from tests.lab.reading import DeltaReading, Fetching

    def members(number: int) -> list[Client]:
        return [
            ThePythonConsumer(around, "eager", ("range", "cooperative-sticky"), number),
            ThePythonConsumer(around, "coop", ("cooperative-sticky",), number),
            BareMember(around, number),
            V2Member(around, number),
        ]

    match name:
        case "producers":
            return [*(Producing(around, kind) for kind in KINDS), ThePythonProducer(around), Slow(around)]
        case "readers":
            return [Fetching(around, 0), Fetching(around, 1), DeltaReading(around), Watching(around)]
        case "members":
            return members(0)
        case "others":
            return members(1)
        case "admins":
            return [Administering(around)]
        case "jobs":
            return [RunningJobs(around)]
        case "spark":
            from tests.lab.spark_clients import Copying

            return [Copying(around, around.folder)]
        case _:
            raise ValueError(name)


def load() -> None:
    """Import what clients need."""
    for name in ("administering", "grouping", "producing", "reading"):
        importlib.import_module(f"tests.lab.{name}")


SETS = ("producers", "readers", "members", "others", "admins", "jobs")
LONGEST_END_S = 30.0


def main(spec: dict[str, Any]) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    around = Surroundings(
        url=spec["url"],
        recorder=Recorder(Path(spec["history"])),
        folder=Path(spec["folder"]),
        lake=Lake(spec["lake"], spec["options"]),
        life=spec["life"],
        seed=spec["seed"],
        environment=spec["environment"],
        stopping=stopping,
    )
    clients = clients_of(spec["set"], around)
    for client in clients:
        client.start()
    while not stopping.wait(1.0):
        pass
    for client in clients:
        client.join(LONGEST_END_S)
