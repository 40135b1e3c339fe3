from __future__ import annotations

import json

import pytest

from sluice.log_store.catalog_records import encode, record, record_type
from sluice.log_store.catalog_state import (
    CatalogLimits,
    CatalogState,
    Change,
    NamedProducer,
    ProducerIds,
    ProducerMode,
    TopicMeta,
    parse_mode,
)
from sluice.log_store.errors import (
    CorruptData,
    InvalidConfig,
    InvalidPartitions,
    InvalidProducerEpoch,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedFormat,
)
from sluice.log_store.topic import CLUSTER_METADATA, CONSUMER_OFFSETS, ConfigChange
from sluice.log_store.values import ProducerStamp


@pytest.fixture
def state() -> CatalogState:
    return CatalogState(CatalogLimits(default_partitions=3, max_partitions=100))


def create(state: CatalogState, name: str, topic_id: str = "id1", partitions: int = 2) -> TopicMeta:
    change = state.create(name, topic_id=topic_id, now_ms=5, partitions=partitions)
    state.apply_all(change.records)
    return change.result


def delete(state: CatalogState, name: str) -> None:
    state.apply_all(state.delete(name, now_ms=9).records)


class TestCreate:
    def test_commands_change_nothing_until_their_records_are_applied(self, state: CatalogState) -> None:
        change = state.create("orders", topic_id="id1", now_ms=5)
        assert state.find("orders") is None
        assert state == CatalogState()
        state.apply_all(change.records)
        assert state.get("orders") == change.result

    def test_records_are_readable_json(self, state: CatalogState) -> None:
        ((key, value),) = state.create("orders", topic_id="id1", now_ms=5, configs={"retention.ms": 7}).records
        assert json.loads(key) == {"type": "topic", "name": "orders", "id": "id1"}
        assert value is not None
        assert json.loads(value) == {
            "format": 1,
            "folder": "topics/orders",
            "partitions": [3],
            "configs": {"retention.ms": "7"},
            "created_ms": 5,
            "internal": False,
            "deleted_ms": None,
            "purged": False,
        }

    def test_default_counts(self, state: CatalogState) -> None:
        meta = state.create("t", topic_id="x", now_ms=0, partitions=-1, replication_factor=-1).result
        assert (meta.partitions, meta.partition_history) == (3, (3,))

    @pytest.mark.parametrize("partitions", [0, -2])
    def test_bad_partition_count(self, state: CatalogState, partitions: int) -> None:
        with pytest.raises(InvalidPartitions):
            state.create("t", topic_id="x", now_ms=0, partitions=partitions)

    @pytest.mark.parametrize("factor", [0, -2, 2, 3])
    def test_only_one_replica(self, state: CatalogState, factor: int) -> None:
        with pytest.raises(InvalidReplicationFactor):
            state.create("t", topic_id="x", now_ms=0, replication_factor=factor)

    def test_bad_config(self, state: CatalogState) -> None:
        with pytest.raises(InvalidConfig):
            state.create("t", topic_id="x", now_ms=0, configs={"retention.ms": "soon"})

    def test_bad_name_existing_name_and_colliding_name(self, state: CatalogState) -> None:
        create(state, "a.b")
        with pytest.raises(InvalidTopic):
            state.create("a/b", topic_id="x", now_ms=0)
        with pytest.raises(TopicAlreadyExists):
            state.create("a.b", topic_id="x", now_ms=0)
        with pytest.raises(InvalidTopic, match="collides"):
            state.create("a_b", topic_id="x", now_ms=0)

    def test_deleted_topic_no_longer_collides(self, state: CatalogState) -> None:
        create(state, "a.b")
        delete(state, "a.b")
        state.create("a_b", topic_id="x", now_ms=0)

    def test_cluster_has_a_largest_number_of_partitions(self, state: CatalogState) -> None:
        create(state, "a", partitions=60)
        with pytest.raises(InvalidPartitions, match="60 of at most 100"):
            state.create("b", topic_id="x", now_ms=0, partitions=41)
        with pytest.raises(InvalidPartitions):
            state.grow("a", 101)
        state.grow("a", 100)
        delete(state, "a")
        state.create("b", topic_id="x", now_ms=0, partitions=100)

    @pytest.mark.parametrize("topic_id", ["id1", "", "../x", "a~b"])
    def test_topic_id_is_fresh_and_fit_for_a_folder(self, state: CatalogState, topic_id: str) -> None:
        create(state, "a", topic_id="id1")
        with pytest.raises(ValueError, match="fresh topic id"):
            state.create("b", topic_id=topic_id, now_ms=0)


class TestIncarnations:
    """R-8."""

    def test_later_incarnation_gets_its_own_folder(self, state: CatalogState) -> None:
        assert create(state, "t", "id1").folder == "topics/t"
        delete(state, "t")
        assert create(state, "t", "id2").folder == "topics/t~id2"

    def test_folder_is_remembered_after_the_purge(self, state: CatalogState) -> None:
        create(state, "t", "id1")
        delete(state, "t")
        change = state.purge("id1")
        reborn = CatalogState()
        reborn.apply_all(change.records)  # all that compaction leaves
        assert create(reborn, "t", "id2").folder == "topics/t~id2"

    def test_old_id_is_unknown(self, state: CatalogState) -> None:
        create(state, "t", "id1")
        assert state.by_id("id1") == state.get("t", "id1")
        delete(state, "t")
        with pytest.raises(UnknownTopicId):
            state.by_id("id1")
        create(state, "t", "id2")
        with pytest.raises(UnknownTopicId, match="now has id id2"):
            state.get("t", "id1")
        with pytest.raises(UnknownTopicId):
            state.delete("t", now_ms=0, topic_id="id1")
        old = state.incarnation("id1")
        assert old is not None
        assert old.deleted_ms == 9

    def test_purge(self, state: CatalogState) -> None:
        create(state, "t", "id1")
        with pytest.raises(InvalidRequest):
            state.purge("id1")
        with pytest.raises(UnknownTopicId):
            state.purge("never")
        delete(state, "t")
        assert [meta.topic_id for meta in state.to_purge()] == ["id1"]
        state.apply_all(state.purge("id1").records)
        assert state.to_purge() == []
        assert state.purge("id1").records == ()

    def test_record_of_a_topic_is_never_deleted(self, state: CatalogState) -> None:
        ((key, _),) = state.create("t", topic_id="x", now_ms=0).records
        with pytest.raises(CorruptData, match="folder"):
            state.apply(key, None)

    def test_two_live_incarnations_are_corrupt(self, state: CatalogState) -> None:
        other = state.create("t", topic_id="id2", now_ms=0).records
        create(state, "t", "id1")
        with pytest.raises(CorruptData, match="live twice"):
            state.apply_all(other)
        assert state.get("t").topic_id == "id1"


class TestChange:
    def test_unknown_topic(self, state: CatalogState) -> None:
        for command in (
            lambda: state.get("t"),
            lambda: state.delete("t", now_ms=0),
            lambda: state.grow("t", 5),
            lambda: state.alter_configs("t", []),
        ):
            with pytest.raises(UnknownTopicOrPartition):
                command()

    def test_partitions_only_grow(self, state: CatalogState) -> None:
        create(state, "t", partitions=2)
        for count in (2, 1, 0, -1):
            with pytest.raises(InvalidPartitions):
                state.grow("t", count)
        state.apply_all(state.grow("t", 4).records)
        state.apply_all(state.grow("t", 7).records)
        assert state.get("t").partition_history == (2, 4, 7)

    def test_partition_refs(self, state: CatalogState) -> None:
        meta = create(state, "t", "id1", partitions=2)
        assert meta.partition(1).folder == "topics/t/1"
        for number in (2, -1):
            with pytest.raises(UnknownTopicOrPartition):
                meta.partition(number)

    def test_alter_configs(self, state: CatalogState) -> None:
        create(state, "t")
        state.apply_all(state.alter_configs("t", [ConfigChange("retention.ms", 7)]).records)
        assert state.get("t").config().retention_ms == 7
        assert state.alter_configs("t", [ConfigChange("retention.ms", "7")]).records == ()
        with pytest.raises(InvalidConfig):
            state.alter_configs("t", [ConfigChange("retention.ms", "x")])

    def test_topics_are_listed_by_name(self, state: CatalogState) -> None:
        internal = state.create_internal(
            CONSUMER_OFFSETS, topic_id="i", now_ms=0, partitions=50, configs={"cleanup.policy": "compact"}
        )
        state.apply_all(internal.records)
        create(state, "b", "id1")
        create(state, "a", "id2")
        assert [meta.name for meta in state.topics()] == [CONSUMER_OFFSETS, "a", "b"]
        assert [meta.name for meta in state.topics(internal=False)] == ["a", "b"]


class TestInternalTopics:
    def test_clients_can_neither_create_nor_change_them(self, state: CatalogState) -> None:
        with pytest.raises(InvalidTopic):
            state.create(CLUSTER_METADATA, topic_id="x", now_ms=0)
        change = state.create_internal(CLUSTER_METADATA, topic_id="x", now_ms=0, partitions=1, configs={})
        state.apply_all(change.records)
        assert state.get(CLUSTER_METADATA).internal
        for command in (
            lambda: state.delete(CLUSTER_METADATA, now_ms=0),
            lambda: state.grow(CLUSTER_METADATA, 5),
            lambda: state.alter_configs(CLUSTER_METADATA, [ConfigChange("cleanup.policy", "delete")]),
        ):
            with pytest.raises(InvalidTopic):
                command()

    def test_only_reserved_names_are_internal(self, state: CatalogState) -> None:
        with pytest.raises(InvalidTopic):
            state.create_internal("mine", topic_id="x", now_ms=0, partitions=1, configs={})

    def test_they_do_not_count_against_the_limit(self, state: CatalogState) -> None:
        change = state.create_internal(CONSUMER_OFFSETS, topic_id="i", now_ms=0, partitions=50, configs={})
        state.apply_all(change.records)
        create(state, "a", partitions=100)


class TestProducerIds:
    def test_a_mode_has_its_own_parity(self) -> None:
        state, ids = CatalogState(), ProducerIds()
        for mode, parity in ((ProducerMode.PARTITION, 0), (ProducerMode.TOPIC, 1)):
            assert ids.take(mode) is None
            change = state.reserve_block(mode)
            state.apply_all(change.records)
            ids.refill(change.result)
            taken = [ids.take(mode) for _ in range(1001)]
            assert taken == [2 * i + parity for i in range(1000)] + [None]

    def test_restart_skips_what_was_left_of_a_block(self) -> None:
        state = CatalogState()
        first = state.reserve_block(ProducerMode.TOPIC)
        state.apply_all(first.records)
        assert state.reserve_block(ProducerMode.TOPIC).result.start == first.result.end

    def test_blocks_never_go_back(self) -> None:
        state = CatalogState()
        state.apply(*record({"type": "producer_block", "mode": "topic"}, {"next": 5000}))
        state.apply(*record({"type": "producer_block", "mode": "topic"}, {"next": 1000}))
        assert state.reserve_block(ProducerMode.TOPIC).result.start == 5000

    def test_modes(self) -> None:
        assert parse_mode("topic") is ProducerMode.TOPIC
        with pytest.raises(InvalidRequest):
            parse_mode("both")


def init(
    state: CatalogState, name: str, fresh_id: int | None, mode: ProducerMode = ProducerMode.TOPIC
) -> NamedProducer:
    change: Change[NamedProducer] = state.named_producer(name, mode, fresh_id)
    state.apply_all(change.records)
    return change.result


class TestNamedProducers:
    def test_keeps_its_id_and_gets_the_next_epoch(self, state: CatalogState) -> None:
        assert state.needs_id("etl")
        first = init(state, "etl", 7)
        assert not state.needs_id("etl")
        second = init(state, "etl", None)
        assert (first.producer_id, first.epoch) == (7, 0)
        assert (second.producer_id, second.epoch) == (7, 1)
        assert state.producer("etl") == second
        assert state.current_epoch(7) == 1

    @pytest.mark.parametrize("epoch", [0, 2])
    def test_only_the_newest_epoch_may_write(self, state: CatalogState, epoch: int) -> None:
        init(state, "etl", 7)
        init(state, "etl", None)
        state.check_epoch(ProducerStamp(7, 1, 0))
        with pytest.raises(InvalidProducerEpoch):
            state.check_epoch(ProducerStamp(7, epoch, 0))

    def test_nameless_producers_are_not_checked_here(self, state: CatalogState) -> None:
        assert state.current_epoch(9) is None
        state.check_epoch(ProducerStamp(9, 4, 0))

    def test_used_up_epochs_give_a_new_id_and_fence_the_old_one(self, state: CatalogState) -> None:
        value = {"id": 7, "epoch": 32767, "mode": "topic", "retired": []}
        state.apply(*record({"type": "producer", "name": "etl"}, value))
        assert state.needs_id("etl")
        renewed = init(state, "etl", 2001)
        assert (renewed.producer_id, renewed.epoch, renewed.retired) == (2001, 0, (7,))
        assert state.current_epoch(7) is None
        with pytest.raises(InvalidProducerEpoch):
            state.check_epoch(ProducerStamp(7, 32767, 0))
        state.check_epoch(ProducerStamp(2001, 0, 0))

    def test_mode_is_for_life(self, state: CatalogState) -> None:
        init(state, "etl", 7)
        with pytest.raises(InvalidRequest, match="mode topic"):
            state.named_producer("etl", ProducerMode.PARTITION, 8)

    @pytest.mark.parametrize("name", ["", "x" * 250])
    def test_name_has_a_length(self, state: CatalogState, name: str) -> None:
        with pytest.raises(InvalidRequest):
            state.named_producer(name, ProducerMode.TOPIC, 7)

    @pytest.mark.parametrize("fresh_id", [None, 8, -1, 7])
    def test_fresh_id_is_fresh_and_of_the_mode(self, state: CatalogState, fresh_id: int | None) -> None:
        init(state, "other", 7)
        with pytest.raises(ValueError, match="no fresh producer id"):
            state.named_producer("etl", ProducerMode.TOPIC, fresh_id)

    def test_tombstone_forgets_a_name(self, state: CatalogState) -> None:
        ((key, _),) = state.named_producer("etl", ProducerMode.TOPIC, 7).records
        init(state, "etl", 7)
        state.apply(key, None)
        assert state == CatalogState()


class TestRecords:
    def test_unknown_type_needs_a_newer_version(self, state: CatalogState) -> None:
        with pytest.raises(UnsupportedFormat, match="hologram"):
            state.apply(*record({"type": "hologram"}, {}))

    def test_newer_format_is_refused(self, state: CatalogState) -> None:
        key = encode({"type": "topic", "name": "t", "id": "x"})
        with pytest.raises(UnsupportedFormat):
            state.apply(key, encode({"format": 2}))

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (b"\xff", b"{}"),
            (b"[]", b"{}"),
            (b"{}", b"{}"),
            (b'{"type":"topic","name":"t","id":"x"}', b"{"),
            (b'{"type":"topic","name":"t","id":"x"}', b"7"),
            (b'{"type":"topic","name":"t","id":"x"}', b"{}"),
            (b'{"type":"topic","name":"t","id":"x"}', b'{"format":1}'),
            (b'{"type":"topic"}', b'{"format":1}'),
            (b'{"type":"producer","name":"p"}', b'{"format":1,"id":1,"epoch":0,"mode":"x","retired":[]}'),
            (b'{"type":"producer_block","mode":"topic"}', None),
        ],
    )
    def test_damage_is_reported_and_changes_nothing(self, state: CatalogState, key: bytes, value: bytes | None) -> None:
        init(state, "p", 7)
        before = state.producer("p")
        with pytest.raises(CorruptData):
            state.apply(key, value)
        assert state.producer("p") == before
        assert state.topics() == []

    @pytest.mark.parametrize(("field", "bad"), [("partitions", []), ("configs", []), ("created_ms", None)])
    def test_damaged_topic_fields(self, state: CatalogState, field: str, bad: object) -> None:
        ((key, value),) = state.create("t", topic_id="x", now_ms=0).records
        assert value is not None
        with pytest.raises(CorruptData):
            state.apply(key, encode({**json.loads(value), field: bad}))

    def test_record_type_tells_whose_a_record_is(self, state: CatalogState) -> None:
        ((key, _),) = state.reserve_block(ProducerMode.TOPIC).records
        assert record_type(key) in CatalogState.TYPES
        assert record_type(b'{"type":"token","id":"1"}') not in CatalogState.TYPES
