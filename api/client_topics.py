"""Topics and their configs over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sluice.api.client_values import ConfigInfo, TopicInfo
from sluice.streaming.http_client import Connection
from sluice.streaming.http_paths import CLUSTER, topic_path


class Topics:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> TopicInfo:
        body: dict[str, Any] = {"topic_name": name}
        if partitions is not None:
            body["partitions_count"] = partitions
        if configs:
            body["configs"] = [{"name": key, "value": value} for key, value in configs.items()]
        return _info(self._connection.json("POST", f"{CLUSTER}/topics", body=body, repeatable=False))

    def list(self) -> list[TopicInfo]:
        answer = self._connection.json("GET", f"{CLUSTER}/topics", repeatable=True)
        return [_info(topic) for topic in answer["data"]]

    def describe(self, name: str) -> TopicInfo:
        return _info(self._connection.json("GET", topic_path(name), repeatable=True))

    def configs(self, name: str) -> Iterable[ConfigInfo]:
        """All of them, the ones that were never set with their default."""
        answer = self._connection.json("GET", f"{topic_path(name)}/configs", repeatable=True)
        return tuple(
            ConfigInfo(name=entry["name"], value=entry.get("value"), is_default=entry.get("is_default", False))
            for entry in answer["data"]
        )

    def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set configs; None removes one, so that the default holds again. All of them or none."""
        data = [
            {"name": key, "operation": "DELETE"} if value is None else {"name": key, "value": value, "operation": "SET"}
            for key, value in changes.items()
        ]
        self._connection.call("POST", f"{topic_path(name)}/configs:alter", body={"data": data}, repeatable=True)

    def grow(self, name: str, partitions: int) -> None:
        self._connection.call("PATCH", topic_path(name), body={"partitions_count": partitions}, repeatable=False)

    def delete(self, name: str) -> None:
        self._connection.call("DELETE", topic_path(name), repeatable=False)


def _info(entry: Mapping[str, Any]) -> TopicInfo:
    return TopicInfo(
        name=entry["topic_name"],
        partitions=entry.get("partitions_count", 0),
        replication_factor=entry.get("replication_factor", 1),
        is_internal=entry.get("is_internal", False),
    )
