"""The topic catalog of a running cluster: commands, incarnations, replay (R-8)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sluice.conf.settings import TopicSettings
from sluice.log_store import catalog as catalog_module
from sluice.log_store.delta_log import commit_path
from sluice.log_store.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    RequestTimedOut,
    SluiceError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sluice.log_store.topic import CLUSTER_METADATA, CONSUMER_OFFSETS, AlterOp, ConfigChange
from tests.support.logs import (
    Cluster,
    append,
    append_one_by_one,
    batch,
    eventually,
    fetched,
    folder_cluster,
    memory_cluster,
    rows,
    stamp,
    values,
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster(topics_num_partitions=3, topics_cluster_max_partitions=50) as made:
        yield made


def test_create_list_delete(cluster: Cluster) -> None:
    """Kafka's rule."""
    log = cluster.open()
    made = log.create_topic("b", partitions=2, configs={"retention.ms": "5"}, replication_factor=1)
    log.create_topic("a")
    assert [(meta.name, meta.partitions) for meta in log.topics()] == [("a", 3), ("b", 2)]
    assert made.config().retention_ms == 5
    log.delete_topic("b")
    assert [meta.name for meta in log.topics()] == ["a"]
    for use in (lambda: log.topic("b"), lambda: log.delete_topic("b"), lambda: log.reads("b", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            use()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "x/y"}, InvalidTopic),
        ({"name": ".."}, InvalidTopic),
        ({"name": CONSUMER_OFFSETS}, InvalidTopic),
        ({"name": "taken"}, TopicAlreadyExists),
        ({"name": "ta.ken_"}, None),
        ({"name": "p", "partitions": 0}, InvalidPartitions),
        ({"name": "p", "partitions": 51}, InvalidPartitions),
        ({"name": "p", "replication_factor": 2}, InvalidReplicationFactor),
        ({"name": "p", "configs": {"no.such": "1"}}, InvalidConfig),
        ({"name": "p", "configs": {"retention.ms": "soon"}}, InvalidConfig),
    ],
)
def test_what_is_refused_at_creation(cluster: Cluster, arguments: dict[str, object], error: type[Exception]) -> None:
    """Kafka's rule: and `validate_only` answers the same, changing nothing either way."""
    log = cluster.open()
    log.create_topic("taken", partitions=1)
    for validate_only in (True, False):
        if error is None:
            log.create_topic(**arguments, validate_only=validate_only)  # type: ignore[arg-type]
            assert (len(log.topics()) == 1) is validate_only
        else:
            with pytest.raises(error):
                log.create_topic(**arguments, validate_only=validate_only)  # type: ignore[arg-type]
            assert len(log.topics()) == 1


def test_partitions_only_grow(cluster: Cluster) -> None:
    """Kafka's rule: same or lower is refused; what was written stays where it is."""
    log = cluster.open()
    log.create_topic("t", partitions=2)
    append_one_by_one(log, "t", "ab", partition=1)
    with pytest.raises(UnknownTopicOrPartition):
        append(log, "t", 2, batch("x"))
    for count in (2, 1, 0, -1, 51):
        with pytest.raises(InvalidPartitions):
            log.grow_topic("t", count)
    assert log.grow_topic("t", 4).partitions == 4
    append(log, "t", 3, batch("c"))
    log = cluster.reopen()
    assert (values(log, "t", 1), values(log, "t", 3)) == ([b"a", b"b"], [b"c"])
    with pytest.raises(UnknownTopicOrPartition):
        log.grow_topic("nothing", 3)


def test_changed_configs_hold_at_once(tmp_root: Path) -> None:
    """Kafka's rule: without a restart, and after one."""
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"))
        log.alter_topic("t", [ConfigChange("compression.type", "gzip")])
        append(log, "t", 0, batch("b"))
        log.alter_topic("t", [ConfigChange("compression.type", op=AlterOp.DELETE)])
        append(log, "t", 0, batch("c"))
        log.alter_topic("t", [ConfigChange("compression.type", "snappy")])
        log = cluster.reopen()
        append(log, "t", 0, batch("d"))
        files = log.partition("t", 0).state.files
        used = [pq.read_metadata(tmp_root / "topics/t/0" / f.path).row_group(0).column(0).compression for f in files]
    assert used == ["ZSTD", "GZIP", "ZSTD", "SNAPPY"]


def test_a_wrong_change_changes_nothing(cluster: Cluster) -> None:
    log = cluster.open()
    log.create_topic("t")
    with pytest.raises(InvalidConfig):
        log.alter_topic("t", [ConfigChange("retention.ms", 1), ConfigChange("segment.ms", "x")])
    assert log.topic("t").configs == {}


def test_internal_topics_are_protected(cluster: Cluster) -> None:
    """Kafka's rule: no write, no change, no creation under a reserved name, not even by auto-create."""
    log = cluster.open()
    log.catalog.change(
        lambda state: state.create_internal(CONSUMER_OFFSETS, topic_id="o", now_ms=1, partitions=2, configs={})
    )
    for use in (
        lambda: log.append(CONSUMER_OFFSETS, 0, batch("x")),
        lambda: log.append_topic(CONSUMER_OFFSETS, lambda _: {0: batch("x")}),
        lambda: log.delete_topic(CONSUMER_OFFSETS),
        lambda: log.grow_topic(CONSUMER_OFFSETS, 9),
        lambda: log.alter_topic(CONSUMER_OFFSETS, [ConfigChange("retention.ms", 1)]),
        lambda: log.append(CLUSTER_METADATA, 0, batch("x")),
        lambda: log.append("__transaction_state", 0, batch("x")),
    ):
        with pytest.raises(InvalidTopic):
            use()
    assert log.topics() == []
    assert [meta.name for meta in log.topics(internal=True)] == [CONSUMER_OFFSETS]


@pytest.mark.parametrize("enabled", [True, False])
def test_auto_create(enabled: bool) -> None:
    """Kafka's rule: with the defaults, where the switch allows it; never by a read."""
    with memory_cluster(topics_auto_create_topics_enable=enabled, topics_num_partitions=2) as cluster:
        log = cluster.open()
        with pytest.raises(UnknownTopicOrPartition):
            log.topic("new")
        with pytest.raises(UnknownTopicOrPartition):
            log.reads("new", 0)
        if enabled:
            append(log, "new", 1, batch("a"))
            assert log.topic("new").partitions == 2
            with pytest.raises(InvalidTopic):
                append(log, "bad name", 0, batch("a"))
        else:
            with pytest.raises(UnknownTopicOrPartition):
                append(log, "new", 0, batch("a"))
            assert log.topics() == []
    assert TopicSettings().auto_create_topics_enable


def test_of_concurrent_creations_one_wins(cluster: Cluster) -> None:
    """Kafka's rule: the others hear that it exists, and there is one incarnation."""
    log = cluster.open()

    def create(_: int) -> object:
        try:
            return log.create_topic("t")
        except TopicAlreadyExists as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(16)))
    assert sum(not isinstance(outcome, SluiceError) for outcome in outcomes) == 1
    log = cluster.reopen()
    assert len(log.catalog.state._topics) == 1


def test_concurrent_first_writes_create_once(cluster: Cluster) -> None:
    log = cluster.open()
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda n: append(log, "auto", 0, batch(str(n))).base_offset, range(12)))
    assert sorted(got) == list(range(12))


def test_a_restart_replays_the_catalog(cluster: Cluster) -> None:
    """R-8: equal states; producers too."""
    log = cluster.open()
    log.create_topic("a", partitions=2, configs={"segment.ms": "7"})
    log.create_topic("b")
    log.delete_topic("b")
    log.grow_topic("a", 5)
    log.new_producer("topic", "named")
    before = log.catalog.state
    log = cluster.reopen()
    assert log.catalog.state == before
    assert log.catalog.state is not before
    log = cluster.crash()
    assert log.catalog.state == before


# --- incarnations (R-8) ------------------------------------------------------------------------


def test_a_recreated_topic_is_another_one(cluster: Cluster) -> None:
    """R-8: new id, new folder, offset 0; the old folder stays untouched until it is purged."""
    log = cluster.open()
    first = log.create_topic("t", partitions=1)
    append(log, "t", 0, batch("old"), stamp=stamp(2, 0))
    log.delete_topic("t")
    kept = cluster.store.list(f"{first.folder}/0")
    second = log.create_topic("t", partitions=1)

    assert second.topic_id != first.topic_id
    assert (first.folder, second.folder) == ("topics/t", f"topics/t~{second.topic_id}")
    assert append(log, "t", 0, batch("new"), stamp=stamp(2, 0)).base_offset == 0
    assert rows(log, "t") == [(0, b"new")]
    assert cluster.store.list(f"{first.folder}/0") == kept
    with pytest.raises(UnknownTopicId):
        log.catalog.state.get("t", first.topic_id)
    log = cluster.reopen()
    assert rows(log, "t") == fetched(log, "t", 0) == [(0, b"new")]


def test_the_old_folder_goes_after_the_delay_and_is_never_used_again(cluster: Cluster) -> None:
    """R-8, I-9: readers have `file.delete.delay.ms`; a third incarnation does not get the first one's folder."""
    log = cluster.open()
    log.create_topic("t", configs={"file.delete.delay.ms": "60000"})
    append(log, "t", 0, batch("old"))
    log.delete_topic("t")
    cluster.tick(59)
    assert cluster.store.list("topics/t/0")
    cluster.tick(2)
    eventually(lambda: not cluster.store.list("topics/t/0"))
    eventually(lambda: not log.catalog.state.to_purge())
    assert log.create_topic("t").folder.startswith("topics/t~")
    log = cluster.reopen()
    assert log.catalog.state.to_purge() == []


def test_a_purge_that_a_restart_interrupted_is_done_later(cluster: Cluster) -> None:
    """R-8."""
    log = cluster.open()
    log.create_topic("t", configs={"file.delete.delay.ms": "60000"})
    append(log, "t", 0, batch("old"))
    log.delete_topic("t")
    cluster.reopen()
    cluster.tick(61)
    eventually(lambda: not cluster.store.list("topics/t/0"))


def test_creation_is_the_catalogs_business_alone(cluster: Cluster) -> None:
    """R-8: version 0 comes at first open for writing; until then a missing table is an empty partition."""
    log = cluster.open()
    log.create_topic("t", partitions=3)
    assert cluster.store.list_folders("topics") == [CLUSTER_METADATA]
    assert log.reads("t", 1).latest().offset == 0
    assert cluster.store.list_folders("topics") == [CLUSTER_METADATA]
    append(log, "t", 2, batch("a"))
    assert cluster.store.list_folders("topics/t") == ["2"]
    log = cluster.reopen()
    assert log.partition("t", 1).high_watermark == 0


def test_a_folder_of_another_incarnation_is_refused(cluster: Cluster) -> None:
    """R-8: a mismatch of the topic id is never a position."""
    log = cluster.open()
    log.create_topic("t", partitions=1)
    log.create_topic("u", partitions=1)
    append(log, "u", 0, batch("other"))
    for version in (0, 1):
        data = cluster.store.get(commit_path("topics/u/0", version))
        cluster.store.put_if_absent(commit_path("topics/t/0", version), data)
    log = cluster.reopen()
    for use in (lambda: log.reads("t", 0).fetch(0), lambda: append(log, "t", 0, batch("x"))):
        with pytest.raises(UnknownTopicId):
            use()


def test_a_change_whose_outcome_is_not_known_blocks_the_next(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: nothing is decided on top of it; once it is known, it holds."""
    log = cluster.open()
    log.create_topic("first")
    monkeypatch.setattr(catalog_module, "COMMIT_TIMEOUT_S", 0.02)
    outage = cluster.store.fail_before("put", "topics/__cluster_metadata/*", times=None)
    with pytest.raises(RequestTimedOut, match="not known"):
        log.create_topic("t")
    with pytest.raises(RequestTimedOut):
        log.delete_topic("first")
    assert [meta.name for meta in log.topics()] == ["first"]
    outage.cancel()
    monkeypatch.setattr(catalog_module, "COMMIT_TIMEOUT_S", 20)
    cluster.until(lambda: log.catalog._partition.idle, step=1)
    with pytest.raises(TopicAlreadyExists):
        log.create_topic("t")
    assert [meta.name for meta in log.topics()] == ["first", "t"]
