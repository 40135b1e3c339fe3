"""The offset of a streaming query: what Spark writes to its checkpoint and shows in its progress.

As JSON, beginning like an offset of Spark's Kafka source::

    {"orders": {"0": 9, "1": 12},
     "@": {"from": {"orders": {"0": 5, "1": 12}}, "ids": {"orders": "8c1f…"}, "generation": 3, …}}

The numbers under a topic are the next offsets to read. Under `@`, which can be no topic, stands what makes the offset
complete: where the batch that ends here begins in each partition, so that a batch is planned from its end alone and
positions may jump between batches; the id of each topic, so that a topic that was deleted and made again is never
taken for the old one (R-8); and the stamp of the follower (generation, query, batch) if it has one.

Spark compares offsets as text. A batch is run whenever the text changes, so an idle source returns what it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sluice.log_store.errors import CorruptData
from sluice.log_store.values import OffsetRange, TopicPartition

Stamp: TypeAlias = Mapping[str, int | str]
Json: TypeAlias = dict[str, Any]

DETAILS = "@"
_FROM, _IDS = "from", "ids"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a batch. For the start of a query all ranges are empty."""

    ranges: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict, hash=False)
    """`start` is the first offset of the batch, `end` the next to read."""
    topic_ids: Mapping[str, str] = field(default_factory=dict, hash=False)
    stamp: Stamp = field(default_factory=dict, hash=False)

    def next_offsets(self) -> dict[TopicPartition, int]:
        return {tp: found.end for tp, found in self.ranges.items()}

    def to_json(self) -> Json:
        """Sorted, because Spark compares the text."""
        ends, starts = _nested(self.next_offsets()), _nested({tp: r.start for tp, r in self.ranges.items()})
        ids = {topic: self.topic_ids[topic] for topic in ends}
        return {**ends, DETAILS: {_FROM: starts, _IDS: ids, **dict(sorted(self.stamp.items()))}}

    @classmethod
    def from_json(cls, data: Json) -> SourceOffset:
        try:
            details = data[DETAILS]
            starts = dict(_flat(details[_FROM]))
            ends = dict(_flat({topic: numbers for topic, numbers in data.items() if topic != DETAILS}))
            if starts.keys() != ends.keys():
                raise ValueError("starts and ends of different partitions")
            return cls(
                ranges={tp: OffsetRange(starts[tp], end) for tp, end in ends.items()},
                topic_ids={tp.topic: str(details[_IDS][tp.topic]) for tp in ends},
                stamp={name: value for name, value in details.items() if name not in (_FROM, _IDS)},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptData(
                f"the offset in the checkpoint was not written by this source ({error!r}): {data}"
            ) from error


def plain(offsets: Mapping[TopicPartition, int]) -> Json:
    """As Spark's Kafka source shows offsets: `{"orders": {"0": 9}}`."""
    return _nested(offsets)


def _nested(offsets: Mapping[TopicPartition, int]) -> Json:
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets, key=lambda tp: (tp.topic, tp.partition)):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return found


def _flat(nested: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[TopicPartition, int]]:
    for topic, numbers in nested.items():
        for partition, offset in numbers.items():
            yield TopicPartition(topic, int(partition)), int(offset)
