"""What a partition of `__consumer_offsets` says: the last record of each key, whatever the length of its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.records import Committed, GroupKey, decode_committed, decode_key
from sluice.streaming.groups import GroupMetadata, decode_metadata


@dataclass(slots=True)
class StoredGroup:
    metadata: GroupMetadata | None = None
    """None: it never had members, only offsets."""
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)


class Replay:
    """Takes batches in the order of the log. Only what is left at the end is decoded."""

    def __init__(self, *, deleted: bool = False) -> None:
        self._deleted = deleted
        """Whether to remember what was deleted; else a long log would cost memory for what is no more."""
        self._latest: dict[bytes, bytes | None] = {}
        self.end = 0
        """The offset after the last record that was taken."""

    def take(self, batches: Iterable[pa.RecordBatch]) -> Replay:
        for batch in batches:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            self._latest.update(zip(keys, values, strict=True))
            if not self._deleted and None in values:
                for key in [key for key, value in self._latest.items() if value is None]:
                    del self._latest[key]
            self.end = int(batch.column("offset")[-1].as_py()) + 1
        return self

    def groups(self) -> dict[str, StoredGroup]:
        """What there is: deleted keys are left out."""
        found: dict[str, StoredGroup] = {}
        for key, value in self._latest.items():
            if value is None:
                continue
            name = decode_key(key)
            stored = found.setdefault(name.group, StoredGroup())
            if isinstance(name, GroupKey):
                stored.metadata = decode_metadata(value)
            else:
                stored.offsets[TopicPartition(name.topic, name.partition)] = decode_committed(name, value)
        return found

    def offsets(self) -> Mapping[str, Mapping[TopicPartition, Committed | None]]:
        """Offsets by group; None: deleted."""
        found: dict[str, dict[TopicPartition, Committed | None]] = {}
        for key, value in self._latest.items():
            name = decode_key(key)
            if not isinstance(name, GroupKey):
                where = TopicPartition(name.topic, name.partition)
                found.setdefault(name.group, {})[where] = None if value is None else decode_committed(name, value)
        return found
