"""Members of groups: the Python consumer, the bare HTTP protocol, v2 instances; and a look at their commits."""

from __future__ import annotations

import base64
import itertools
from contextlib import suppress
from typing import Any

from sluice.api.client import Consumer, SluiceClient, TopicPartition
from sluice.log_store.errors import IllegalGeneration, RebalanceInProgress, SluiceError, UnknownMemberId
from tests.lab.client import CLUSTER, EVENTS, KEYS, ORDERS, Client, Refusal, Surroundings, Unknown, topic_path

SESSION_MS, REBALANCE_MS = 2_000, 6_000
READ = [ORDERS, EVENTS]
GROUPS = ("eager", "coop", "bare", "v2")
OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 300,
    "max_poll_interval_ms": REBALANCE_MS,
    "fetch_max_wait_ms": 200,
    "fetch_threads": 2,
    "metadata_max_age_ms": 2_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 300,
    "default_api_timeout_ms": 4_000,
}
_OUT = (IllegalGeneration, UnknownMemberId, RebalanceInProgress)
Pairs = list[list[Any]]


class ThePythonConsumer(Client):
    pause_s = 0.02

    def __init__(self, around: Surroundings, group: str, strategies: tuple[str, ...], number: int) -> None:
        super().__init__(around, f"{group}-{number}")
        self._group = group
        self._client = SluiceClient(around.url)
        options = OPTIONS | {"group": group, "partition_assignment_strategy": strategies}
        self._consumer: Consumer = self._client.consumer(**options)
        self._consumer.subscribe(READ, on_assigned=self._assigned)

    def _assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.recorder.note(self.name, "assigned", partitions=_pairs(partitions))
        who, owned = self._consumer.identity, self._consumer.assignment
        joined = self.recorder.invoke(self.name, "join", group=self._group)
        joined.ok(member=who.member_id, generation=who.generation, partitions=_pairs(owned))

    def once(self) -> None:
        operation = self.recorder.invoke(self.name, "poll", group=self._group)
        try:
            records = self._consumer.poll(0.3)
        except SluiceError as error:
            operation.info(repr(error)[:200])
            return
        rows = [[r.topic, r.partition, r.offset, (r.value or b"").decode().strip('"')] for r in records]
        operation.ok(rows=rows)
        if records and self.dice.random() < 0.7:
            self._commit({TopicPartition(r.topic, r.partition): r.offset + 1 for r in records})

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        who = self._consumer.identity
        operation = self.recorder.invoke(
            self.name,
            "commit",
            group=self._group,
            member=who.member_id,
            generation=who.generation,
            offsets=[[one.topic, one.partition, at] for one, at in offsets.items()],
        )
        try:
            self._consumer.commit(offsets)
            operation.ok()
        except _OUT as error:
            operation.fail(error.error)
        except SluiceError as error:
            operation.info(repr(error)[:200])

    def end(self) -> None:
        self._consumer.close()
        self._client.close()


def _pairs(partitions: tuple[TopicPartition, ...]) -> Pairs:
    return [[one.topic, one.partition] for one in partitions]


class BareMember(Client):
    """The calls of the protocol, one by one. After each rejoin it commits for the generation that is over."""

    def __init__(self, around: Surroundings, number: int) -> None:
        super().__init__(around, f"bare-{number}")
        self._url = f"{CLUSTER}/consumer-groups/bare"
        self._member, self._generation = "", -1
        self._last = -1
        """The newest generation that it was in."""
        self._owned: Pairs = []
        self._next: dict[tuple[str, int], int] = {}

    def once(self) -> None:
        if self._generation < 0:
            self._join()
            return
        try:
            self.send("POST", f"{self._url}/members:heartbeat", json=self._identity())
            if self._owned:
                self._poll(*self.dice.choice(self._owned))
            if self.dice.random() < 0.02:
                self._leave()
        except Refusal as error:
            if error.error == "UNKNOWN_MEMBER_ID":
                self._member = ""
            if error.error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
                self._generation = -1

    def _identity(self) -> dict[str, Any]:
        return {"member_id": self._member, "generation_id": self._generation, "group_instance_id": None}

    def _join(self) -> None:
        body = {
            "member_id": self._member,
            "group_instance_id": None,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": {"topics": [*READ, KEYS]}}],
            "client_id": "lab",
            "reason": "",
        }
        operation = self.recorder.invoke(self.name, "join", group="bare")
        try:
            joined = self.send("POST", f"{self._url}/members:join", json=body, timeout=REBALANCE_MS / 1000 + 4).json()
            self._member = joined["member_id"]
            leads = joined["leader"] == self._member and not joined["skip_assignment"]
            sync = {"member_id": self._member, "generation_id": joined["generation_id"], "group_instance_id": None}
            more: dict[str, Any] = {"strategy": "range"} if leads else {"assignments": []}
            answer = self.send("POST", f"{self._url}/members:sync", json=sync | more).json()
        except Refusal as error:
            operation.fail(error.error)
            wanted = error.body.get("details", {}).get("member_id", "") if error.error == "MEMBER_ID_REQUIRED" else ""
            self._member = wanted if error.error in ("MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID") else self._member
            return
        except Unknown as error:
            operation.info(str(error))
            return
        generation = joined["generation_id"]
        self._owned = [[topic, partition] for topic, partition in answer["assignment"]]
        operation.ok(member=self._member, generation=generation, partitions=self._owned)
        self.recorder.note(self.name, "assigned", partitions=self._owned)
        stale, self._last = self._last, generation
        if 0 <= stale < generation and self._owned:
            with suppress(Refusal):
                topic, partition = self._owned[0]
                self._commit(self._identity() | {"generation_id": stale}, topic, partition, 0)
        # Without them it would begin too early, and commit what it has read once more.
        self._next = {(topic, partition): at for topic, partition, at in committed(self, "bare")}
        self._generation = generation

    def _poll(self, topic: str, partition: int) -> None:
        offset = self._next.get((topic, partition), 0)
        asked = [[topic, partition, offset]]
        operation = self.recorder.invoke(self.name, "poll", group="bare", asked=asked)
        params = {"offset": offset, "max_records": 200, "max_wait_ms": 100, "format": "string"}
        try:
            answer = self.ask(operation, "GET", f"{topic_path(topic)}/partitions/{partition}/records", params=params)
        except Refusal as error:
            if error.status == 416:
                self._next[topic, partition] = error.body["details"]["log_start"]
            return
        found = answer.json()
        rows = [[topic, partition, r["offset"], r["value"] and r["value"].strip('"')] for r in found["data"]]
        operation.ok(rows=rows)
        self._next[topic, partition] = found["next_offset"]
        if rows:
            self._commit(self._identity(), topic, partition, found["next_offset"])

    def _commit(self, who: dict[str, Any], topic: str, partition: int, offset: int) -> None:
        offsets = [[topic, partition, offset]]
        fields = {"member": who["member_id"], "generation": who["generation_id"], "offsets": offsets}
        operation = self.recorder.invoke(self.name, "commit", group="bare", **fields)
        rows = [{"topic_name": topic, "partition_id": partition, "offset": offset, "metadata": ""}]
        answer = self.ask(operation, "POST", f"{self._url}/offsets", json=who | {"offsets": rows})
        errors = [row for row in answer.json().get("offsets", ()) if row.get("error_code")]
        operation.fail(str(errors[0])) if errors else operation.ok()

    def _leave(self) -> None:
        who = {"member_id": self._member, "group_instance_id": None, "reason": "for a while"}
        self.send("POST", f"{self._url}/members:leave", json={"members": [who]})
        self._member, self._generation, self._last = "", -1, -1

    def end(self) -> None:
        if self._member:
            try:
                self._leave()
            except (Refusal, Unknown):
                return


class V2Member(Client):
    """An instance of the v2 API. One whose answer got lost is left to its fate: nobody knows what it handed out.

    It notes no assignments: it could ask for them between polls only, and miss a partition that went and came back. It
    commits all that it gets before it asks for more, so the checker takes what others of the group got for the reason
    of a leap, and nothing for a reason to go back."""

    def __init__(self, around: Surroundings, number: int) -> None:
        super().__init__(around, f"v2-{number}")
        self._numbers = itertools.count()
        self._base = ""
        self._who = self.name

    def once(self) -> None:
        if not self._base:
            self._who = f"{self.name}.{next(self._numbers)}"
            body = {"format": "binary", "auto.offset.reset": "earliest", "auto.commit.enable": "false"}
            made = self.send("POST", "/consumers/v2", json=body, headers={"Content-Type": "application/json"})
            base = str(made.json()["base_uri"])
            self.send("POST", f"{base}/subscription", json={"topics": READ})
            self._base = base
        operation = self.recorder.invoke(self._who, "poll", group="v2")
        try:
            found = self.ask(operation, "GET", f"{self._base}/records", params={"timeout": 300}).json()
        except (Refusal, Unknown):
            self._base = ""
            raise
        rows = [
            [r["topic"], r["partition"], r["offset"], base64.b64decode(r["value"] or "").decode().strip('"')]
            for r in found
        ]
        operation.ok(rows=rows)
        if rows:
            self._commit({(topic, partition): offset for topic, partition, offset, _ in rows})
        elif self.dice.random() < 0.02:
            self.send("DELETE", self._base)
            self._base = ""

    def _commit(self, last: dict[tuple[str, int], int]) -> None:
        """The service knows the generation of an instance; to the checker it is always the newest."""
        offsets = [[topic, partition, at + 1] for (topic, partition), at in last.items()]
        operation = self.recorder.invoke(
            self._who, "commit", group="v2", member=self._who, generation=1 << 40, offsets=offsets
        )
        rows = [{"topic": topic, "partition": partition, "offset": at} for (topic, partition), at in last.items()]
        try:
            self.ask(operation, "POST", f"{self._base}/offsets", json={"offsets": rows})
        except (Refusal, Unknown):
            self._base = ""
            raise
        operation.ok()


def committed(client: Client, group: str) -> Pairs:
    operation = client.recorder.invoke(client.name, "committed", group=group)
    answer = client.ask(operation, "GET", f"{CLUSTER}/consumer-groups/{group}/offsets").json()
    found = [[row["topic_name"], row["partition_id"], row["offset"]] for row in answer["offsets"]]
    operation.ok(offsets=found)
    return found


class Watching(Client):
    """What is committed is never older than what was answered before."""

    pause_s = 0.3

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, "watch")

    def once(self) -> None:
        committed(self, self.dice.choice(GROUPS))
