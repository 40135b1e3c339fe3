"""Members of a consumer group over HTTP, as a test drives them step by step."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

GROUPS = "/v3/clusters/-/consumer-groups"
QUICK_GROUPS = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100", "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "100"}
Pairs = set[tuple[str, int]]


class Member:
    """Joins again and again under the id that it was given."""

    def __init__(
        self,
        http: httpx.Client,
        group: str,
        topics: Iterable[str],
        *,
        instance: str | None = None,
        session_ms: int = 20_000,
        strategy: str = "range",
    ) -> None:
        self.http = http
        self.url = f"{GROUPS}/{group}"
        self.topics = list(topics)
        self.instance = instance
        self.session_ms = session_ms
        self.strategy = strategy
        self.member_id = ""
        self.generation = -1
        self.owned: Pairs = set()

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "generation_id": self.generation,
            "group_instance_id": self.instance,
        }

    def post(self, call: str, **body: Any) -> httpx.Response:
        return self.http.post(f"{self.url}/{call}", json=body)

    def join(self) -> dict[str, Any]:
        """Until it is in a generation; waits for the others."""
        while True:
            answer = self.post(
                "members:join",
                member_id=self.member_id,
                group_instance_id=self.instance,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[{"name": self.strategy, "metadata": {"topics": self.topics}}],
                client_id="test",
                reason="",
            )
            body: dict[str, Any] = answer.json()
            if answer.status_code == 409 and body["error"] == "MEMBER_ID_REQUIRED":
                self.member_id = body["details"]["member_id"]
                continue
            assert answer.status_code == 200, answer.text
            self.member_id, self.generation = body["member_id"], body["generation_id"]
            return body

    def sync(self, joined: dict[str, Any]) -> Pairs:
        by_service = joined["leader"] == self.member_id and not joined["skip_assignment"]
        more = {"strategy": self.strategy} if by_service else {"assignments": []}
        answer = self.post("members:sync", **self.identity, **more)
        assert answer.status_code == 200, answer.text
        self.owned = {(topic, partition) for topic, partition in answer.json()["assignment"]}
        return self.owned

    def enter(self) -> Pairs:
        return self.sync(self.join())

    def heartbeat(self) -> httpx.Response:
        return self.post("members:heartbeat", **self.identity)

    def commit(self, topic: str, partition: int, offset: int, **more: Any) -> httpx.Response:
        row = {"topic_name": topic, "partition_id": partition, "offset": offset, "metadata": ""}
        return self.post("offsets", **self.identity, offsets=[row], **more)

    def leave(self) -> httpx.Response:
        who = {"member_id": self.member_id, "group_instance_id": self.instance, "reason": "done"}
        return self.post("members:leave", members=[who])


def together(members: Iterable[Member]) -> list[Pairs]:
    """All enter at the same time, as a rebalance needs it."""
    found = list(members)
    with ThreadPoolExecutor(len(found)) as pool:
        return list(pool.map(Member.enter, found))


def committed(http: httpx.Client, group: str) -> dict[tuple[str, int], int]:
    answer = http.get(f"{GROUPS}/{group}/offsets")
    assert answer.status_code == 200, answer.text
    return {(row["topic_name"], row["partition_id"]): row["offset"] for row in answer.json()["offsets"]}
