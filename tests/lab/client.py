"""What all clients of the lab have in common: a thread, a name, a recorder, and requests whose end is written down."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.lab.history import Operation, Recorder
from tests.lab.storage import Lake

TIMEOUT_S = 6.0
ACK_MS = 4_000
PAUSE_S = 0.05
CLUSTER = "/v3/clusters/-"
ORDERS, EVENTS, KEYS, AGAIN = "orders", "events", "keys", "again"
MOST_ORDERS = 5
"""Partitions to which the topic grows."""
PARTITIONS = {ORDERS: 2, EVENTS: 2, KEYS: 2}
TOPICS: dict[str, dict[str, str]] = {
    # None of its records is older than two hours, whatever the clock says: nothing may go.
    ORDERS: {"segment.bytes": "20000", "retention.ms": "7200000"},
    EVENTS: {"segment.bytes": "4000", "retention.bytes": "30000"},
    KEYS: {
        "cleanup.policy": "compact",
        "segment.bytes": "2500",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1500",
    },
}


@dataclass(slots=True)
class Surroundings:
    """What a process of clients knows."""

    url: str
    recorder: Recorder
    folder: Path
    lake: Lake
    life: str
    """Names of clients end with it; a process that is started again after a kill has another one."""
    seed: str
    environment: dict[str, str] = field(default_factory=dict)
    """For jobs that are processes of their own."""
    stopping: threading.Event = field(default_factory=threading.Event)


class Refusal(Exception):
    """An answer of 400 to 499: nothing was done."""

    def __init__(self, response: httpx.Response) -> None:
        self.body: dict[str, Any] = _body(response)
        self.status = response.status_code
        self.error = str(self.body.get("error", response.status_code))
        super().__init__(f"{self.status} {self.error}: {self.body.get('message')}")


class Unknown(Exception):
    """No answer, or one that leaves open what was done."""


def _body(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class Client(threading.Thread, ABC):
    pause_s = PAUSE_S

    def __init__(self, around: Surroundings, kind: str) -> None:
        super().__init__(name=f"{kind}.{around.life}", daemon=True)
        self.around = around
        self.recorder = around.recorder
        self.stopping = around.stopping
        self.dice = random.Random(f"{around.seed}/{self.name}")
        self.http = httpx.Client(base_url=around.url, timeout=TIMEOUT_S)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.once()
            except (Refusal, Unknown):
                pass  # it is in the history
            except Exception as error:  # noqa: BLE001 - told to the report, and the client goes on
                self.recorder.note(self.name, "broken", error=repr(error)[:500])
            self.stopping.wait(self.pause_s * self.dice.uniform(0.5, 1.5))
        self.end()
        self.http.close()

    @abstractmethod
    def once(self) -> None:
        """One operation."""

    def end(self) -> None:
        """Before the thread ends in order."""

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """A good answer, or Refusal, or Unknown."""
        try:
            response = self.http.request(method, path, **request)
        except (httpx.HTTPError, OSError) as error:
            raise Unknown(type(error).__name__) from error
        if response.is_success:
            return response
        if httpx.codes.BAD_REQUEST <= response.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
            raise Refusal(response)
        raise Unknown(f"{response.status_code} {_body(response).get('error', '')}")

    def ask(self, operation: Operation, method: str, path: str, **request: Any) -> httpx.Response:
        """The same; a failure is the end of the operation."""
        return told(operation, lambda: self.send(method, path, **request))


def told(operation: Operation, call: Callable[[], httpx.Response]) -> httpx.Response:
    try:
        return call()
    except Refusal as error:
        operation.fail(error.error)
        raise
    except Unknown as error:
        operation.info(str(error))
        raise


def topic_path(topic: str) -> str:
    return f"{CLUSTER}/topics/{topic}"
