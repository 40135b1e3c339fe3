"""Where a member of a group goes on in a partition: what its checkpoint says against what the group has committed.

Every commit of a query is labelled `{query, batch}`: *from this batch of this query on, its checkpoint knows better*.
A query that takes a partition over commits at once where it begins, with the number of the batch that it plans next:
until that batch is in the checkpoint the commit holds, from then on the checkpoint. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sluice.log_store.values import TopicPartition
from sluice.streaming.membership.offsets import CommittedOffset
from sluice.streaming.spark.offsets import SourceOffset

QUERY, BATCH, GENERATION = "query", "batch", "generation"
"""In the stamp of an offset."""


class Origin(StrEnum):
    CHECKPOINT = "checkpoint"
    COMMIT = "commit"
    NEITHER = "neither"
    """`startingOffsets` decides."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a query has finished, by its checkpoint."""

    query: str
    batch: int
    offsets: Mapping[TopicPartition, int] = field(hash=False)
    topic_ids: Mapping[str, str] = field(hash=False)

    @classmethod
    def of(cls, start: SourceOffset, otherwise: str) -> Progress:
        """A checkpoint from before the query was in a group has no stamp: it goes on under the name `otherwise`."""
        query, batch = start.stamp.get(QUERY), start.stamp.get(BATCH)
        known = isinstance(query, str) and isinstance(batch, int)
        return cls(
            query=str(query) if known else otherwise,
            batch=int(batch) if known and batch is not None else 0,
            offsets=start.next_offsets(),
            topic_ids=start.topic_ids,
        )

    def offset_of(self, one: TopicPartition, topic_id: str) -> int | None:
        """None also if the topic was made anew since then (R-8)."""
        return self.offsets.get(one) if self.topic_ids.get(one.topic) == topic_id else None


@dataclass(frozen=True, slots=True)
class Place:
    origin: Origin
    offset: int | None
    """None: nothing is known."""


def place(one: TopicPartition, topic_id: str, progress: Progress, commit: CommittedOffset | None) -> Place:
    """Of a partition that was just assigned.

    | the group's commit | the checkpoint has a position | goes on at |
    |---|---|---|
    | of this query, of a batch at or before the checkpoint's | yes | checkpoint |
    | any other: a reset, another member, a newer batch | either | commit |
    | of this query, at or before | no | commit |
    | none, or of a topic that was made anew | yes | checkpoint |
    | none, or of a topic that was made anew | no | `startingOffsets` |
    """
    own = progress.offset_of(one, topic_id)
    if commit is None or commit.topic_id != topic_id:
        return Place(Origin.NEITHER, None) if own is None else Place(Origin.CHECKPOINT, own)
    if own is not None and _is_behind(commit, progress):
        return Place(Origin.CHECKPOINT, own)
    return Place(Origin.COMMIT, commit.offset)


def _is_behind(commit: CommittedOffset, progress: Progress) -> bool:
    return commit.query == progress.query and commit.batch is not None and commit.batch <= progress.batch


def label_of(origin: Origin, batch: int) -> int:
    """Of the commit that says where the query begins; `batch` is the checkpoint's.

    What did not come from the checkpoint must hold against it until the next batch is there.
    """
    return batch if origin is Origin.CHECKPOINT else batch + 1
