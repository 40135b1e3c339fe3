"""v3 shapes: every resource carries `kind` and `metadata`, and links to what belongs to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request

from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.partition import PartitionLog
from sluice.log_store.topic import ConfigEntry

Json = dict[str, Any]


class Links:
    """Addresses as this client sees the service."""

    def __init__(self, request: Request, cluster_id: str) -> None:
        self._base = f"{request.url.scheme}://{request.url.netloc}/v3/clusters"
        self._cluster = cluster_id
        self.cluster_id = cluster_id

    def url(self, *path: object) -> str:
        return "/".join((self._base, self._cluster, *map(str, path)))

    def related(self, *path: object) -> Json:
        return {"related": self.url(*path)}

    def resource(self, kind: str, path: tuple[object, ...], body: Json) -> Json:
        pairs = zip(path[::2], path[1::2], strict=False)
        names = "/".join(f"{_singular(str(name))}={value}" for name, value in pairs)
        name = f"crn:///kafka={self.cluster_id}" + (f"/{names}" if names else "")
        return {"kind": kind, "metadata": {"self": self.url(*path), "resource_name": name}, **body}

    def listed(self, kind: str, path: tuple[object, ...], data: Iterable[Json]) -> Json:
        return {"kind": kind, "metadata": {"self": self.url(*path), "next": None}, "data": list(data)}

    # --- the resources -------------------------------------------------------------------------

    def cluster(self, storage_root: str) -> Json:
        body = {name.replace("-", "_"): self.related(name) for name in ("topics", "brokers", "consumer-groups")}
        return self.resource("KafkaCluster", (), {"cluster_id": self.cluster_id, "storage_root": storage_root, **body})

    def topic(self, meta: TopicMeta) -> Json:
        path = ("topics", meta.name)
        body = {
            "cluster_id": self.cluster_id,
            "topic_name": meta.name,
            "topic_id": meta.topic_id,
            "is_internal": meta.internal,
            "replication_factor": 1,
            "partitions_count": meta.partitions,
            "created_ms": meta.created_ms,
            "partitions": self.related(*path, "partitions"),
            "configs": self.related(*path, "configs"),
        }
        return self.resource("KafkaTopic", path, body)

    def partition(self, meta: TopicMeta, led: PartitionLog) -> Json:
        number = led.ref.partition
        path = ("topics", meta.name, "partitions", number)
        body = {
            "cluster_id": self.cluster_id,
            "topic_name": meta.name,
            "partition_id": number,
            "leader": self.related("brokers", 0),
            "replicas": self.related(*path, "replicas"),
            "log_start_offset": led.log_start,
            "high_watermark": led.high_watermark,
            "log_end_offset": led.log_end,
            "version": led.state.version,
            "size_bytes": sum(file.size for file in led.view()[0]),
            "folder": led.ref.folder,
            "problem": None if led.problem is None else led.problem.message,
        }
        return self.resource("KafkaPartition", path, body)

    def config(self, meta: TopicMeta, entry: ConfigEntry) -> Json:
        source = "DEFAULT_CONFIG" if entry.is_default else "DYNAMIC_TOPIC_CONFIG"
        body = {
            "cluster_id": self.cluster_id,
            "topic_name": meta.name,
            "name": entry.name,
            "value": entry.value,
            "is_default": entry.is_default,
            "is_read_only": False,
            "is_sensitive": False,
            "source": source,
            "synonyms": [{"name": entry.name, "value": entry.value, "source": source}],
            "doc": entry.doc,
        }
        return self.resource("KafkaTopicConfig", ("topics", meta.name, "configs", entry.name), body)


def _singular(name: str) -> str:
    return name.removesuffix("s")
