"""Which partitions a streaming query reads next, and from where: the seam between the stream reader and its followers.

The stream reader (`stream_reader.py`) plans batches: it looks at the log, applies the limits, judges data loss and
cuts tasks. It asks a `Follower` where to go on. There are two: `CheckpointFollower` (here) reads every subscribed
partition from where the checkpoint ends; `group_follower.GroupFollower` reads what its consumer group assigned, from
the committed offsets. `source.py` picks one when the first planner call comes.

The life of a query, all in one planner process and one thread, in this order::

    prepare_available_now()      only with Trigger.AvailableNow, before anything else
    initial()                    a new query only; asked more than once, answered the same by the reader
    read_elsewhere(end)          restart: a batch that was logged and not finished runs again, exactly as logged, and
                                 positions() is not asked for it. Asked only if something of it is gone
    done(start)                  at the beginning of every later look: all batches up to `start` are finished, their
                                 sinks included. It also comes after the last batch of AvailableNow and on every idle
                                 trigger, so it is where group offsets are committed. On restart the first `start` is
                                 the end of the last finished batch in the checkpoint.
    positions(start)             the partitions to read now, each with the next offset. May differ from where `start`
                                 ended: the plan is made from these alone
    stamp()                      what to write into the end of the batch being planned (generation, query, batch)
    planned(end)                 the batch is decided, and Spark logs it next. Not called when there is nothing to read
    idle()                       nothing to read: no batch follows. With AvailableNow the query ends here
    close()                      the planner ends by an error. On a normal stop Spark just ends the process: a follower
                                 that has to say good-bye handles SIGTERM

Rules for followers:

- the constructor has no side effects; threads and connections begin with the first call;
- transient failures are dealt with inside; what is raised ends the query;
- positions below the log start or of another incarnation of the topic are data loss, which `Lake` and the reader
  judge by `failOnDataLoss`; a follower that has a better rule (a group without a commit) applies it before;
- a partition may be left out of `positions` at any time: it is simply not part of the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from sluice.log_store.values import PartitionRef, TopicPartition
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.offsets import SourceOffset, Stamp
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.starting import check_named, offset_of, resolve


class Follower(Protocol):
    def prepare_available_now(self) -> None:
        """The query will end when it has read what is there now."""

    def initial(self) -> SourceOffset:
        """Where a new query begins; all ranges are empty."""

    def read_elsewhere(self, end: SourceOffset) -> Collection[TopicPartition]:
        """Partitions of a batch of an earlier run whose records others have read since: no loss if they are gone."""

    def done(self, start: SourceOffset) -> None:
        """Everything up to the end of `start` has been processed."""

    def positions(self, start: SourceOffset) -> Mapping[PartitionRef, int]:
        """What to read next, and from where."""

    def stamp(self) -> Stamp:
        """Of the batch that is being planned."""

    def planned(self, end: SourceOffset) -> None:
        """The batch is decided."""

    def idle(self) -> None:
        """There is nothing to read: no batch follows."""

    def close(self) -> None: ...


class CheckpointFollower:
    """Every subscribed partition, from where the last batch ended: progress lives in the checkpoint alone."""

    def __init__(self, options: SourceOptions, lake: Lake, judge: LossJudge) -> None:
        self._options = options
        self._lake = lake
        self._judge = judge

    def prepare_available_now(self) -> None:
        pass

    def initial(self) -> SourceOffset:
        refs = self._lake.subscribed(self._options.subscription, all_there=True)
        check_named(self._options.starting, refs)
        return offset_of(refs, resolve(self._lake, self._judge, self._lake.views(refs), self._options.starting))

    def read_elsewhere(self, end: SourceOffset) -> Collection[TopicPartition]:
        return ()

    def done(self, start: SourceOffset) -> None:
        pass

    def positions(self, start: SourceOffset) -> Mapping[PartitionRef, int]:
        """New partitions, and topics that appeared, begin at their first record, as in Spark's Kafka source."""
        refs = self._lake.subscribed(self._options.subscription)
        found: dict[PartitionRef, int] = {}
        known = start.next_offsets()
        for ref in refs:
            if ref.tp not in known:
                found[ref] = 0
            elif start.topic_ids[ref.topic] == ref.topic_id:
                found[ref] = known[ref.tp]
            else:
                self._judge.report(f"topic {ref.topic!r} was deleted and made again since the last batch")
                found[ref] = 0
        gone = sorted(str(tp) for tp in known.keys() - {ref.tp for ref in refs})
        if gone:
            self._judge.report(f"{', '.join(gone)} is gone: the topic was deleted or is not subscribed any more")
        return found

    def stamp(self) -> Stamp:
        return {}

    def planned(self, end: SourceOffset) -> None:
        pass

    def idle(self) -> None:
        pass

    def close(self) -> None:
        pass
