"""A query with `group.id` reads what its consumer group assigns to it, from where the group has got to.

Between two batches, in this order:

1. `done`: the positions move to the end of the finished batch, which is committed in the background;
2. what the group took away is given up, once its last commit is there;
3. `positions`: partitions that are new to us are placed (`reconcile.py`), and the group is told where we begin;
4. the next batch reads from these positions; its end carries generation, query and batch.

A crash after 1 leaves a commit that lags behind the checkpoint: the checkpoint wins on restart, and another member
that takes over reads the last batch again. After 3 it leaves a commit with the number of a batch that is not in the
checkpoint: the commit wins. In no case is something passed over.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sluice.log_store.clock import Clock
from sluice.log_store.errors import CoordinatorNotAvailable, InvalidRequest
from sluice.log_store.values import PartitionRef, TopicPartition
from sluice.streaming.http_client import Connection
from sluice.streaming.http_errors import RequestFailed
from sluice.streaming.membership.calls import GroupCalls, QueryLabel, is_transient
from sluice.streaming.membership.offsets import CommittedOffset
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.group_beginnings import Beginning
from sluice.streaming.spark.group_commits import Entry
from sluice.streaming.spark.group_farewell import before_termination
from sluice.streaming.spark.group_membership import GroupMembership
from sluice.streaming.spark.group_values import Kept, SparkMember
from sluice.streaming.spark.offsets import SourceOffset, Stamp
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.points import Edge
from sluice.streaming.spark.reconcile import BATCH, GENERATION, QUERY, Origin, Place, Progress, label_of, place
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.starting import check_named, resolve

logger = logging.getLogger("sluice.spark.groups")

SHORT_WAIT_S = 0.5
"""For a rebalance that is under way when there is nothing to read; the next trigger looks again."""
JOIN_MARGIN_S = 60.0
"""More than the longest rebalance takes, so that a service that is just starting is waited for too."""
REQUEST_S = 10.0
LAST_COMMIT_S = 15.0
FAREWELL_S = 8.0


@dataclass(frozen=True, slots=True)
class _Position:
    ref: PartitionRef
    offset: int
    tenure: int


class GroupFollower:
    """See `following.Follower`."""

    def __init__(self, options: SourceOptions, lake: Lake, judge: LossJudge, clock: Clock) -> None:
        if options.group is None or options.address.server is None:
            raise InvalidRequest("a group needs a server", field="server")
        self._options = options
        self._group = options.group
        self._server = options.address.server
        self._lake = lake
        self._judge = judge
        self._clock = clock
        self._query = uuid.uuid4().hex
        """Of this query for good, as soon as its first batch is in the checkpoint."""
        self._progress = Progress(self._query, 0, {}, {})
        self._planned: SourceOffset | None = None
        self._positions: dict[TopicPartition, _Position] = {}
        self._generation = -1
        self._first_seen: Counter[str] | None = None
        """Partitions by topic id, when this process first looked."""
        self._resumed = False
        """Whether it had finished batches by then."""
        self._notes: dict[str, str] = {}
        """For commits, by topic id."""
        self._ends = False
        self._joined = False
        self._membership: GroupMembership | None = None
        self._connection: Connection | None = None
        self._ignore_termination: Callable[[], None] = lambda: None

    # --- the life of a query ---------------------------------------------------------------------

    def prepare_available_now(self) -> None:
        self._ends = True

    def initial(self) -> SourceOffset:
        """No positions: what the query will read is not known before it is in the group."""
        check_named(self._options.starting, self._lake.subscribed(self._options.subscription, all_there=True))
        return SourceOffset(stamp={QUERY: self._query, BATCH: 0})

    def read_elsewhere(self, end: SourceOffset) -> Collection[TopicPartition]:
        """Who took over from a query that crashed may have read its batch to the end, and retention removed it since.
        A service that cannot be asked excuses nothing."""
        try:
            with closing(self._connect()) as connection:
                calls = GroupCalls(connection, SparkMember.of(self._group, f"spark-{self._query[:8]}"))
                commits = calls.committed(())
        except RequestFailed as error:
            logger.warning("cannot ask for the committed offsets now: %s", error.message)
            return ()
        found = {one: commit for one, commit in commits.items() if commit.topic_id == end.topic_ids.get(one.topic)}
        return {one for one, wanted in end.ranges.items() if one in found and found[one].offset >= wanted.end}

    def done(self, start: SourceOffset) -> None:
        self._progress = Progress.of(start, self._query)
        self._query = self._progress.query
        membership = self._started()
        membership.check()
        membership.finished(self._advanced())

    def positions(self, start: SourceOffset) -> Mapping[PartitionRef, int]:
        membership = self._started()
        self._wait_for_the_group(membership)
        holding = membership.hold()
        self._generation = holding.generation
        refs = {ref.tp: ref for ref in self._lake.subscribed(self._options.subscription)}
        if self._first_seen is None:
            self._first_seen = Counter(ref.topic_id for ref in refs.values())
            self._resumed = self._progress.batch > 0
        self._report_lost_topics(refs)
        held = {refs[one]: tenure for one, tenure in holding.tenures.items() if one in refs}
        self._positions = {one: at for one, at in self._positions.items() if held.get(at.ref) == at.tenure}
        fresh = {ref: tenure for ref, tenure in held.items() if ref.tp not in self._positions}
        if fresh:
            self._take_up(membership, fresh)
        return {at.ref: at.offset for at in self._positions.values()}

    def stamp(self) -> Stamp:
        return {GENERATION: self._generation, QUERY: self._query, BATCH: self._progress.batch + 1}

    def planned(self, end: SourceOffset) -> None:
        self._planned = end

    def idle(self) -> None:
        membership = self._started()
        membership.finished({})
        if self._ends and not membership.drain(LAST_COMMIT_S):
            logger.warning("the last batch is not committed: the next run of the query will do that")
        membership.check()

    def close(self) -> None:
        if self._membership is not None:
            if self._last_batch_is_finished():
                self._membership.put(self._advanced())
            self._membership.close("the query ended")
        if self._group.finished_file is not None:  # whoever wrote it waits for that
            with suppress(OSError):
                Path(self._group.finished_file).unlink()
        if self._connection is not None:
            self._connection.close()
        self._ignore_termination()

    def _last_batch_is_finished(self) -> bool:
        """Spark has not asked for more since it was planned, but whoever stops the query may know that it is."""
        if self._group.finished_file is None or self._planned is None:
            return False
        try:
            noted = json.loads(Path(self._group.finished_file).read_text())
        except (OSError, ValueError):  # none: the query was not stopped in order
            return False
        if noted != dict(self._planned.stamp):
            return False
        self._progress = Progress.of(self._planned, self._query)
        return True

    # --- membership ------------------------------------------------------------------------------

    def _started(self) -> GroupMembership:
        if self._membership is None:
            self._connection = self._connect()
            member = SparkMember.of(self._group, f"spark-{self._query[:8]}")
            self._membership = GroupMembership(self._connection, member, self._options.subscription, self._clock)
            self._ignore_termination = before_termination(self.close, FAREWELL_S)
            self._membership.start()
        return self._membership

    def _connect(self) -> Connection:
        address = self._options.address
        return Connection(self._server, address.token, ca_file=address.ca_file, timeout_s=REQUEST_S, clock=self._clock)

    def _wait_for_the_group(self, membership: GroupMembership) -> None:
        """A query that reads goes on without waiting. Who has nothing yet waits, or would end without having begun."""
        if membership.holds_any:
            self._joined = True
            return
        patient = self._ends or not self._joined
        wait_s = self._group.rebalance_timeout_ms / 1000 + JOIN_MARGIN_S if patient else SHORT_WAIT_S
        self._joined = membership.settle(wait_s) or self._joined
        if patient and not membership.settled:
            why = membership.fenced or f"{self._server} did not let it join within {wait_s:.0f} s"
            raise CoordinatorNotAvailable(f"the query is no member of group {self._group.group_id!r}: {why}")

    # --- positions -------------------------------------------------------------------------------

    def _advanced(self) -> dict[TopicPartition, Kept]:
        """The batch that was planned last is finished: commit it where the partitions are still ours."""
        planned, self._planned = self._planned, None
        if planned is None or Progress.of(planned, self._query).batch != self._progress.batch:
            return {}
        label = QueryLabel(self._query, self._progress.batch)
        found: dict[TopicPartition, Kept] = {}
        for one, at in self._positions.items():
            if one in planned.ranges and planned.topic_ids[one.topic] == at.ref.topic_id:
                end = planned.ranges[one].end
                self._positions[one] = replace(at, offset=end)
                found[one] = Kept(at.tenure, self._entry(end, at.ref, label))
        return found

    def _take_up(self, membership: GroupMembership, fresh: Mapping[PartitionRef, int]) -> None:
        """Where to begin; without an answer of the group, later."""
        commits = self._committed(membership)
        if commits is None:
            return
        then = self._partitions_then(commits, fresh)
        places = {ref: place(ref.tp, ref.topic_id, self._progress, commits.get(ref.tp)) for ref in fresh}
        begun = self._beginnings((ref for ref, found in places.items() if found.origin is Origin.NEITHER), then)
        claims: dict[TopicPartition, Kept] = {}
        for ref, found in places.items():
            offset = begun[ref] if found.offset is None else found.offset
            self._positions[ref.tp] = _Position(ref, offset, fresh[ref])
            label = QueryLabel(self._query, label_of(found.origin, self._progress.batch))
            claims[ref.tp] = Kept(fresh[ref], self._entry(offset, ref, label))
        membership.put(claims)
        logger.info("group %s, generation %d: %s", self._group.group_id, self._generation, _shown(places))

    def _entry(self, offset: int, ref: PartitionRef, label: QueryLabel) -> Entry:
        return Entry(offset, ref.topic_id, label, self._notes.get(ref.topic_id, ""))

    def _report_lost_topics(self, refs: Mapping[TopicPartition, PartitionRef]) -> None:
        """Of what is read here. What others read, and whether they had read it to its end, is not known."""
        for one, at in list(self._positions.items()):
            now = refs.get(one)
            if now is None or now.topic_id != at.ref.topic_id:
                del self._positions[one]
                how = "deleted, or is not subscribed any more" if now is None else "deleted and made again"
                self._judge.report(f"topic {one.topic!r} was {how}, since the last batch")

    def _partitions_then(
        self, commits: Mapping[TopicPartition, CommittedOffset], fresh: Iterable[PartitionRef]
    ) -> dict[str, int]:
        """How many partitions the topics had when the group began; what came later is read from its first record."""
        beginning, found = Beginning.of(commits.values()), dict[str, int]()
        for ref in fresh:
            seen = 0 if self._first_seen is None else self._first_seen[ref.topic_id]
            meta = self._lake.live(ref.topic, ref.topic_id)
            created_ms = 0 if meta is None else meta.created_ms
            found[ref.topic_id] = beginning.partitions_then(ref.topic_id, created_ms, seen, resumed=self._resumed)
            self._notes[ref.topic_id] = beginning.note(found[ref.topic_id], self._clock.wall_ms())
        return found

    def _committed(self, membership: GroupMembership) -> Mapping[TopicPartition, CommittedOffset] | None:
        """All of the group's: they say when it began, too."""
        deadline = self._clock.boottime() + (LAST_COMMIT_S if self._ends else 0.0)
        while True:
            try:
                return membership.calls.committed(())
            except RequestFailed as error:
                if not is_transient(error):
                    raise
                if self._clock.boottime() >= deadline:
                    logger.warning("cannot ask for the committed offsets now: %s", error.message)
                    return None
            membership.pause(SHORT_WAIT_S)

    def _beginnings(self, refs: Iterable[PartitionRef], then: Mapping[str, int]) -> dict[PartitionRef, int]:
        """Nothing is committed: `startingOffsets`, but what came after the group had begun is read from its start."""
        found: dict[PartitionRef, int] = {}
        views = self._lake.views(refs)
        for old, point in ((True, self._options.starting), (False, Edge.EARLIEST)):
            among = {ref: view for ref, view in views.items() if (ref.partition < then[ref.topic_id]) is old}
            found |= resolve(self._lake, self._judge, among, point)
        return found


def _shown(places: Mapping[PartitionRef, Place]) -> str:
    return ", ".join(sorted(f"{ref.tp} from {found.origin}" for ref, found in places.items()))
