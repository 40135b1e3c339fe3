"""The topics and producers of a cluster: a pure replay of `__cluster_metadata`.

Commands look and decide, and return the records that would make it so (`Change`); `apply` alone changes anything,
and the same `apply` serves the live service and its restart. So what was committed is what is known, always.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.log_store.catalog_producers import (
    BLOCK_TYPE,
    NAMED_TYPE,
    NamedProducer,
    ProducerBlock,
    ProducerIds,
    ProducerMode,
    ProducerRegistry,
    parse_mode,
)
from sluice.log_store.catalog_quotas import QUOTA_TYPE, QuotaRegistry
from sluice.log_store.catalog_records import Change, Record, decode_key, decode_value, record, record_type
from sluice.log_store.errors import (
    CorruptData,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedFormat,
)
from sluice.log_store.topic import ConfigChange, TopicConfig, alter, collides, is_internal, validate_topic_name
from sluice.log_store.values import PartitionRef, ProducerStamp

__all__ = [
    "CatalogLimits",
    "CatalogState",
    "Change",
    "NamedProducer",
    "ProducerBlock",
    "ProducerIds",
    "ProducerMode",
    "Record",
    "TopicMeta",
    "parse_mode",
    "record_type",
]

TOPIC_TYPE = "topic"
DEFAULT = -1
"""In a request: take the server's default."""

# The id becomes part of a folder name.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    default_partitions: int = 1
    max_partitions: int = 4000
    """Partitions of all client topics together."""


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """One incarnation of a topic (R-8). The folder belongs to it for ever, also after its deletion."""

    name: str
    topic_id: str
    folder: str
    partition_history: tuple[int, ...]
    """Partition counts in order of growth; the last one holds."""
    configs: Mapping[str, str] = field(hash=False)
    """Overrides only, canonical."""
    created_ms: int
    internal: bool = False
    deleted_ms: int | None = None
    purged: bool = False
    """The data of a deleted incarnation has been removed."""

    @property
    def partitions(self) -> int:
        return self.partition_history[-1]

    @property
    def live(self) -> bool:
        return self.deleted_ms is None

    def config(self) -> TopicConfig:
        return TopicConfig.parse(self.configs)

    def partition(self, number: int) -> PartitionRef:
        if not 0 <= number < self.partitions:
            raise UnknownTopicOrPartition(
                f"topic {self.name!r} has {self.partitions} partitions, none is {number}",
                topic=self.name,
                partition=number,
            )
        return PartitionRef(self.name, self.topic_id, number, f"{self.folder}/{number}")


class CatalogState:
    TYPES = frozenset({TOPIC_TYPE, BLOCK_TYPE, NAMED_TYPE, QUOTA_TYPE})
    """Record types that `apply` takes; others of the same topic belong to other states."""

    def __init__(self, limits: CatalogLimits | None = None) -> None:
        self.limits = limits or CatalogLimits()
        self._topics: dict[str, TopicMeta] = {}
        """Every incarnation there ever was, by id."""
        self._live: dict[str, TopicMeta] = {}
        self._names: set[str] = set()
        """Names that were ever used: their plain folder is taken."""
        self._producers = ProducerRegistry()
        self.quotas = QuotaRegistry()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CatalogState):
            return NotImplemented
        return (self._topics, self._live, self._producers, self.quotas) == (
            other._topics,
            other._live,
            other._producers,
            other.quotas,
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    # --- replay --------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Take one record of the metadata topic, in the order of its offsets."""
        name = decode_key(key)
        body = None if value is None else decode_value(value)
        try:
            if name["type"] == TOPIC_TYPE:
                self._apply_topic(name, body)
            elif name["type"] == BLOCK_TYPE:
                self._producers.apply_block(name, body)
            elif name["type"] == NAMED_TYPE:
                self._producers.apply_named(name, body)
            elif name["type"] == QUOTA_TYPE:
                self.quotas.apply(name, body)
            else:
                raise UnsupportedFormat(
                    f"metadata record of unknown type {name['type']!r}: it needs a newer Sluice", type=name["type"]
                )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise CorruptData(f"metadata record {key!r} is damaged: {e!r}", key=key) from e

    def apply_all(self, records: Iterable[Record]) -> None:
        for key, value in records:
            self.apply(key, value)

    def _apply_topic(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is None:
            raise CorruptData(f"the record of topic {key['name']!r} was deleted: its folder could be used again")
        meta = _topic_from_json(key, value)
        current = self._live.get(meta.name)
        if current is not None and current.topic_id == meta.topic_id:
            del self._live[meta.name]
        elif current is not None and meta.live:
            raise CorruptData(f"topic {meta.name!r} is live twice: {current.topic_id} and {meta.topic_id}")
        self._topics[meta.topic_id] = meta
        self._names.add(meta.name)
        if meta.live:
            self._live[meta.name] = meta

    # --- topics: questions ---------------------------------------------------------------------

    def topics(self, *, internal: bool = True) -> list[TopicMeta]:
        """Live topics by name."""
        return [meta for _, meta in sorted(self._live.items()) if internal or not meta.internal]

    def to_purge(self) -> list[TopicMeta]:
        """Deleted incarnations whose data is still there, oldest deletion first."""
        waiting = [meta for meta in self._topics.values() if not meta.live and not meta.purged]
        return sorted(waiting, key=lambda meta: (meta.deleted_ms, meta.topic_id))

    def find(self, name: str) -> TopicMeta | None:
        return self._live.get(name)

    def get(self, name: str, topic_id: str | None = None) -> TopicMeta:
        """The live topic; with an id only if it is still that incarnation."""
        meta = self._live.get(name)
        if meta is None:
            raise UnknownTopicOrPartition(f"unknown topic {name!r}", topic=name)
        if topic_id is not None and topic_id != meta.topic_id:
            raise UnknownTopicId(f"topic {name!r} now has id {meta.topic_id}, not {topic_id}", topic_id=topic_id)
        return meta

    def by_id(self, topic_id: str) -> TopicMeta:
        """The live topic of this id."""
        meta = self._topics.get(topic_id)
        if meta is None or not meta.live:
            raise UnknownTopicId(f"no topic has id {topic_id}", topic_id=topic_id)
        return meta

    def incarnation(self, topic_id: str) -> TopicMeta | None:
        """The topic of this id, also after its deletion."""
        return self._topics.get(topic_id)

    # --- topics: commands ----------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        topic_id: str,
        now_ms: int,
        partitions: int = DEFAULT,
        configs: Mapping[str, object] | None = None,
        replication_factor: int = DEFAULT,
    ) -> Change[TopicMeta]:
        validate_topic_name(name)
        if is_internal(name):
            raise InvalidTopic(f"{name!r} is an internal topic", topic=name)
        self._refuse_taken(name)
        count = self.limits.default_partitions if partitions == DEFAULT else partitions
        if count < 1:
            raise InvalidPartitions(f"{partitions} partitions: must be at least 1, or -1", partitions=partitions)
        if replication_factor not in (1, DEFAULT):
            raise InvalidReplicationFactor(
                f"replication factor {replication_factor}: this release keeps 1 copy (1, or -1)",
                replication_factor=replication_factor,
            )
        overrides = TopicConfig.parse(configs or {}).overrides
        self._refuse_too_many(count)
        return _put(self._new(name, topic_id, count, overrides, now_ms))

    def create_internal(
        self, name: str, *, topic_id: str, now_ms: int, partitions: int, configs: Mapping[str, object]
    ) -> Change[TopicMeta]:
        """For the service itself: no limits, only reserved names."""
        if not is_internal(name):
            raise InvalidTopic(f"{name!r} is not an internal topic", topic=name)
        self._refuse_taken(name)
        overrides = TopicConfig.parse(configs).overrides
        return _put(replace(self._new(name, topic_id, partitions, overrides, now_ms), internal=True))

    def delete(self, name: str, now_ms: int, topic_id: str | None = None) -> Change[TopicMeta]:
        """The name is free at once; the data goes later, then `purge`."""
        return _put(replace(self._get_own(name, topic_id), deleted_ms=now_ms))

    def purge(self, topic_id: str) -> Change[TopicMeta]:
        """The data of a deleted incarnation is gone. The record stays, so that its folder is never used again."""
        meta = self._topics.get(topic_id)
        if meta is None:
            raise UnknownTopicId(f"no topic ever had id {topic_id}", topic_id=topic_id)
        if meta.live:
            raise InvalidRequest(f"topic {meta.name!r} is not deleted", topic=meta.name)
        if meta.purged:
            return Change((), meta)
        return _put(replace(meta, purged=True, configs={}))

    def grow(self, name: str, partitions: int) -> Change[TopicMeta]:
        meta = self._get_own(name)
        if partitions <= meta.partitions:
            raise InvalidPartitions(
                f"topic {name!r} has {meta.partitions} partitions: {partitions} would not add any",
                topic=name,
                partitions=partitions,
            )
        self._refuse_too_many(partitions - meta.partitions)
        return _put(replace(meta, partition_history=(*meta.partition_history, partitions)))

    def alter_configs(self, name: str, changes: Iterable[ConfigChange]) -> Change[TopicMeta]:
        meta = self._get_own(name)
        altered = replace(meta, configs=alter(meta.configs, changes))
        return Change((), meta) if altered == meta else _put(altered)

    def _new(self, name: str, topic_id: str, count: int, overrides: Mapping[str, str], now_ms: int) -> TopicMeta:
        if topic_id in self._topics or not _TOPIC_ID.fullmatch(topic_id):
            raise ValueError(f"{topic_id!r} is no fresh topic id")
        folder = f"topics/{name}~{topic_id}" if name in self._names else f"topics/{name}"
        return TopicMeta(name, topic_id, folder, (count,), overrides, now_ms)

    def _get_own(self, name: str, topic_id: str | None = None) -> TopicMeta:
        """A topic that clients may change."""
        meta = self.get(name, topic_id)
        if meta.internal:
            raise InvalidTopic(f"{name!r} is an internal topic", topic=name)
        return meta

    def _refuse_taken(self, name: str) -> None:
        if name in self._live:
            raise TopicAlreadyExists(f"topic {name!r} exists already", topic=name)
        other = collides(name, self._live)
        if other is not None:
            raise InvalidTopic(f"topic {name!r} collides with {other!r}: '.' and '_' count as equal", topic=name)

    def _refuse_too_many(self, more: int) -> None:
        used = sum(meta.partitions for meta in self._live.values() if not meta.internal)
        if used + more > self.limits.max_partitions:
            raise InvalidPartitions(
                f"{more} more partitions: the cluster has {used} of at most {self.limits.max_partitions}",
                partitions=more,
            )

    # --- producers -----------------------------------------------------------------------------

    def reserve_block(self, mode: ProducerMode) -> Change[ProducerBlock]:
        return self._producers.reserve_block(mode)

    def producer(self, name: str) -> NamedProducer | None:
        return self._producers.get(name)

    def needs_id(self, name: str) -> bool:
        return self._producers.needs_id(name)

    def named_producer(self, name: str, mode: ProducerMode, fresh_id: int | None) -> Change[NamedProducer]:
        return self._producers.init(name, mode, fresh_id)

    def current_epoch(self, producer_id: int) -> int | None:
        return self._producers.current_epoch(producer_id)

    def check_epoch(self, stamp: ProducerStamp) -> None:
        self._producers.check_epoch(stamp)


def _put(meta: TopicMeta) -> Change[TopicMeta]:
    value = {
        "folder": meta.folder,
        "partitions": list(meta.partition_history),
        "configs": dict(meta.configs),
        "created_ms": meta.created_ms,
        "internal": meta.internal,
        "deleted_ms": meta.deleted_ms,
        "purged": meta.purged,
    }
    return Change((record({"type": TOPIC_TYPE, "name": meta.name, "id": meta.topic_id}, value),), meta)


def _topic_from_json(key: dict[str, Any], value: dict[str, Any]) -> TopicMeta:
    deleted_ms = value["deleted_ms"]
    if not value["partitions"]:
        raise ValueError("no partition count")
    return TopicMeta(
        name=str(key["name"]),
        topic_id=str(key["id"]),
        folder=str(value["folder"]),
        partition_history=tuple(int(count) for count in value["partitions"]),
        configs={str(name): str(text) for name, text in value["configs"].items()},
        created_ms=int(value["created_ms"]),
        internal=bool(value["internal"]),
        deleted_ms=None if deleted_ms is None else int(deleted_ms),
        purged=bool(value["purged"]),
    )
