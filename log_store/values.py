"""The small frozen values that cross module borders."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC_MODE_BIT = 1


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start <= o < end`."""

    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """What an idempotent producer writes on a batch.

    Partition mode (even producer ids): `sequence` counts records, Kafka's rules.
    Topic mode (odd producer ids, R-9): `sequence` counts requests; `partitions`, `crc` and `body_count`
    describe the whole request, of which this partition may hold only a part.
    """

    producer_id: int
    epoch: int
    sequence: int
    partitions: int = 0
    crc: int = 0
    body_count: int = 0

    @property
    def topic_mode(self) -> bool:
        return bool(self.producer_id & TOPIC_MODE_BIT)


@dataclass(frozen=True, slots=True)
class SinkStamp:
    """What a batch of a Spark sink carries: the query, its batch, and which piece of it this is."""

    query: str
    batch: int
    piece: int


@dataclass(frozen=True, slots=True)
class PartitionRef:
    """Where a partition lives: names for people, the topic id for truth (R-8)."""

    topic: str
    topic_id: str
    partition: int
    folder: str
    """Folder of the partition below the root, without a slash at the end: `topics/orders/3`."""

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
