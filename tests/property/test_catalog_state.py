"""The catalog under random commands: its records are its state, however they are replayed."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluice.log_store.catalog_state import CatalogLimits, CatalogState, Change, ProducerIds, ProducerMode, Record
from sluice.log_store.errors import ClientError
from sluice.log_store.topic import AlterOp, ConfigChange
from sluice.log_store.values import ProducerStamp

LIMITS = CatalogLimits(default_partitions=2, max_partitions=40)

names = st.sampled_from(["a.b", "a.b", "a_b", "orders", "bad name"])
modes = st.sampled_from(list(ProducerMode))


def compacted(records: list[Record]) -> list[Record]:
    """What key compaction leaves: the last record of each key, in the order of offsets."""
    last = {key: index for index, (key, _) in enumerate(records)}
    return [rec for index, rec in enumerate(records) if last[rec[0]] == index]


class CatalogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = CatalogState(LIMITS)
        self.ids = ProducerIds()
        self.records: list[Record] = []
        self.now = 0
        self.folders: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.given: set[int] = set()
        self.epochs: dict[int, int] = {}

    def run(self, command: Change[object]) -> None:
        for rec in command.records:
            self.records.append(rec)
            self.state.apply(*rec)

    @rule(name=names, partitions=st.sampled_from([-1, -1, 1, 5, 30, 0]), retention=st.sampled_from([None, None, 5, -7]))
    def create(self, name: str, partitions: int, retention: int | None) -> None:
        self.now += 1
        configs = {} if retention is None else {"retention.ms": retention}
        topic_id = f"id{self.now}"
        try:
            change = self.state.create(name, topic_id=topic_id, now_ms=self.now, partitions=partitions, configs=configs)
        except ClientError:
            return
        self.run(change)
        assert change.result.folder not in self.folders.values()
        assert self.state.get(name) == change.result
        self.folders[topic_id] = change.result.folder
        self.counts[topic_id] = change.result.partitions

    @rule(name=names, again=st.booleans())
    def delete(self, name: str, again: bool) -> None:
        self.now += 1
        if self.state.find(name) is not None:
            self.run(self.state.delete(name, now_ms=self.now))
            if again:
                self.restart(squeeze=True)
                self.create(name, 1, None)

    @rule(name=names, partitions=st.sampled_from([1, 2, 3, 5, 6]))
    def grow(self, name: str, partitions: int) -> None:
        try:
            change = self.state.grow(name, partitions)
        except ClientError:
            return
        self.run(change)

    @rule(name=names, value=st.sampled_from([1, 2, "x"]), op=st.sampled_from(list(AlterOp)))
    def alter(self, name: str, value: object, op: AlterOp) -> None:
        try:
            change = self.state.alter_configs(name, [ConfigChange("segment.ms", value, op)])
        except ClientError:
            return
        self.run(change)

    @rule()
    def purge(self) -> None:
        for meta in self.state.to_purge()[:1]:
            self.run(self.state.purge(meta.topic_id))

    def new_id(self, mode: ProducerMode) -> int:
        taken = self.ids.take(mode)
        if taken is None:
            change = self.state.reserve_block(mode)
            self.run(change)
            self.ids.refill(change.result)
            taken = self.ids.take(mode)
        assert taken is not None
        assert taken not in self.given
        assert ProducerStamp(taken, 0, 0).topic_mode is (mode is ProducerMode.TOPIC)
        self.given.add(taken)
        return taken

    @rule(mode=modes)
    def nameless_producer(self, mode: ProducerMode) -> None:
        self.new_id(mode)

    @rule(name=st.sampled_from(["p", "q"]), mode=modes)
    def named_producer(self, name: str, mode: ProducerMode) -> None:
        fresh = self.new_id(mode) if self.state.needs_id(name) else None
        try:
            change = self.state.named_producer(name, mode, fresh)
        except ClientError:
            return
        self.run(change)
        named = change.result
        assert named.epoch == self.epochs.get(named.producer_id, -1) + 1
        self.epochs[named.producer_id] = named.epoch

    @rule(squeeze=st.booleans())
    def restart(self, squeeze: bool) -> None:
        if squeeze:
            self.records = compacted(self.records)
        self.state = CatalogState(LIMITS)
        self.state.apply_all(self.records)
        self.ids = ProducerIds()

    @invariant()
    def replay_of_all_records_is_the_live_state(self) -> None:
        replayed = CatalogState(LIMITS)
        replayed.apply_all(self.records)
        assert replayed == self.state

    @invariant()
    def compaction_changes_nothing(self) -> None:
        replayed = CatalogState(LIMITS)
        replayed.apply_all(compacted(self.records))
        assert replayed == self.state

    @invariant()
    def folders_are_kept_and_partitions_never_shrink(self) -> None:
        for topic_id, folder in self.folders.items():
            meta = self.state.incarnation(topic_id)
            assert meta is not None
            assert meta.folder == folder
            assert meta.partitions >= self.counts[topic_id]
            assert list(meta.partition_history) == sorted(set(meta.partition_history))
            self.counts[topic_id] = meta.partitions
        assert len(set(self.folders.values())) == len(self.folders)

    @invariant()
    def limit_holds(self) -> None:
        assert sum(meta.partitions for meta in self.state.topics()) <= LIMITS.max_partitions

    @invariant()
    def epochs_are_those_handed_out(self) -> None:
        for producer_id, epoch in self.epochs.items():
            assert self.state.current_epoch(producer_id) == epoch


TestCatalog = CatalogMachine.TestCase
