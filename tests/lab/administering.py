"""Topics that are made, grown, altered, emptied and deleted; and jobs as processes of their own, which get killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from tempfile import TemporaryFile
from typing import IO, Any

from tests.lab.client import (
    AGAIN,
    CLUSTER,
    EVENTS,
    KEYS,
    MOST_ORDERS,
    ORDERS,
    Client,
    Refusal,
    Surroundings,
    topic_path,
)
from tests.lab.history import Operation
from tests.lab.producing import told_of

JOBS = (
    ("retention",),
    ("merge", "--include-active"),
    ("compaction",),
    ("vacuum",),
    ("orphans",),
    ("offset-expiry",),
    ("verify", "--in-process", "--quick"),
)
JOB_S = 60.0


class Administering(Client):
    pause_s = 0.25

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, "admin")
        self._number = 0

    def once(self) -> None:
        self.dice.choice([self._look, self._look, self._delete, self._delete, self._alter, self._grow, self._again])()

    def _admin(self, what: str) -> Operation:
        return self.recorder.invoke(self.name, what)

    def _look(self) -> None:
        topic, partition = self.dice.choice([ORDERS, EVENTS, KEYS]), self.dice.randrange(2)
        operation = self.recorder.invoke(self.name, "position", topic=topic, partition=partition)
        path = f"{topic_path(topic)}/partitions/{partition}/offset"
        operation.ok(start=self.ask(operation, "GET", path, params={"at": "earliest"}).json()["offset"])

    def _delete(self) -> None:
        """Up to somewhere in the middle."""
        partition = self.dice.randrange(2)
        found = self.send(
            "GET", f"{topic_path(EVENTS)}/partitions/{partition}/offset", params={"offset_type": "earliest_and_latest"}
        ).json()
        first, last = found["earliest_offset"], found["latest_offset"]
        before = self.dice.randint(first, max(first, last - 20))
        operation = self.recorder.invoke(self.name, "position", topic=EVENTS, partition=partition, before=before)
        body = {"offsets": [{"partition": partition, "before_offset": before}]}
        one = self.ask(operation, "POST", f"{topic_path(EVENTS)}/records:delete", json=body).json()["offsets"][0]
        if one.get("low_watermark") is None:
            operation.info(str(one)[:200])
        else:
            operation.ok(start=one["low_watermark"])

    def _alter(self) -> None:
        topic, name, values = self.dice.choice(
            [
                (EVENTS, "retention.bytes", ["10000", "30000", "60000"]),
                (EVENTS, "segment.bytes", ["2000", "4000"]),
                (ORDERS, "commit.interval.ms", ["0", "20", "80"]),
                (KEYS, "min.cleanable.dirty.ratio", ["0.01", "0.3"]),
            ]
        )
        change = {"name": name, "value": self.dice.choice(values), "operation": "SET"}
        operation = self._admin("alter")
        self.ask(operation, "POST", f"{topic_path(topic)}/configs:alter", json={"data": [change]})
        operation.ok()

    def _grow(self) -> None:
        count = self.send("GET", topic_path(ORDERS)).json()["partitions_count"]
        if count < MOST_ORDERS:
            operation = self._admin("grow")
            self.ask(operation, "PATCH", topic_path(ORDERS), json={"partitions_count": count + 1})
            operation.ok()

    def _again(self) -> None:
        """Delete and make it again: the new one is empty, whatever became of the old one."""
        try:
            operation = self.recorder.invoke(self.name, "delete", topic=AGAIN)
            self.ask(operation, "DELETE", topic_path(AGAIN))
            operation.ok()
        except Refusal:
            pass  # there is none
        operation = self._admin("create")
        body = {"topic_name": AGAIN, "partitions_count": 1}
        made = self.ask(operation, "POST", f"{CLUSTER}/topics", json=body).json()
        operation.ok()
        # Whoever made it knows its id; a service that was replaced meanwhile may still know the old one.
        label = f"{AGAIN}@{made['topic_id']}"
        for _ in range(self.dice.randint(1, 3)):
            self._produce(label)
            self._read(label)

    def _produce(self, label: str) -> None:
        number, self._number = self._number, self._number + 1
        producer, count = f"{self.name}.0", self.dice.randint(1, 3)
        operation = self.recorder.invoke(
            self.name, "produce", topic=label, producer=producer, number=number, count=count, acks="all"
        )
        records = [{"value": f"{producer}:{number}:{index}"} for index in range(count)]
        answer = self.ask(operation, "POST", f"/topics/{AGAIN}", json={"records": records}).json()
        operation.ok(**told_of(answer["offsets"], "all"))

    def _read(self, label: str) -> None:
        operation = self.recorder.invoke(self.name, "read", topic=label, partition=0, **{"from": 0})
        params: dict[str, Any] = {"offset": 0, "format": "string", "max_wait_ms": 0}
        found = self.ask(operation, "GET", f"{topic_path(AGAIN)}/partitions/0/records", params=params).json()
        rows = [[row["offset"], row["value"].strip('"')] for row in found["data"]]
        operation.ok(rows=rows, hw=found["high_watermark"], start=found["log_start_offset"])


class RunningJobs(Client):
    """Against the service if there is one, else with the leadership of their own; every other one is ended by force."""

    pause_s = 0.5

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, "jobs")

    def once(self) -> None:
        job, *arguments = self.dice.choice(JOBS)
        operation = self.recorder.invoke(self.name, "job", job=job)
        with TemporaryFile() as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "sluice.jobs", "run", job, "--root", self.around.lake.url, *arguments],
                env=os.environ | self.around.environment,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            self._follow(operation, job, process, said)

    def _follow(self, operation: Operation, job: str, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        fate = self.dice.choice(["end", "end", "kill", "stop"])
        try:
            after_s = self.dice.uniform(0.3, 3.0)
            if fate != "end" and not self._ended(process, after_s):
                if fate == "kill":
                    process.kill()
                else:
                    process.send_signal(signal.SIGSTOP)
                    self.stopping.wait(self.dice.uniform(0.3, 2.0))
                    process.send_signal(signal.SIGCONT)
                self.recorder.note(self.name, "nemesis", kind=f"{fate}-job", told=job)
            if self._ended(process, JOB_S):
                operation.ok(job=job, fate=fate, code=process.returncode, said=_last_line(said))
            else:
                operation.info("it took too long")
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _ended(self, process: subprocess.Popen[bytes], within_s: float) -> bool:
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def verified(root: str, environment: Mapping[str, str]) -> str:
    """The product's own check of everything that is stored; empty if it found nothing."""
    command = [sys.executable, "-m", "sluice.jobs", "run", "verify", "--in-process", "--no-notices", "--root", root]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"verify: {done.stdout[-2000:]}{done.stderr[-500:]}"
