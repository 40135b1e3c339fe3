from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.log_store.config_kinds import INT_MAX, LONG_MAX
from sluice.log_store.errors import InvalidConfig, InvalidRequest, InvalidTopic
from sluice.log_store.topic import (
    CONFIG_KEYS,
    INTERNAL_TOPICS,
    AlterOp,
    ConfigChange,
    TopicConfig,
    alter,
    codec,
    collides,
    is_internal,
    validate_topic_name,
)

DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "segment.ms": "604800000",
    "segment.bytes": "1073741824",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": str(LONG_MAX),
    "min.cleanable.dirty.ratio": "0.5",
    "file.delete.delay.ms": "900000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.after.max.ms": "3600000",
    "unclean.leader.election.enable": "false",
    "commit.interval.ms": None,
    "acks": None,
    "merge.target.bytes": "134217728",
    "mirror.source": "",
    "interceptor.classes": "",
    "serializer.class": "",
    "partitioner.class": "",
}


def test_defaults_are_kafkas_and_the_designs() -> None:
    entries = TopicConfig().describe()
    assert {entry.name: entry.value for entry in entries} == DEFAULTS
    assert all(entry.is_default and entry.value == entry.default and entry.doc for entry in entries)


def test_every_default_keeps_its_own_rule() -> None:
    for key in CONFIG_KEYS.values():
        text = key.text(key.default)
        assert text is None or key.parse(text) == key.default


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("retention.ms", 1000, "1000"),
        ("retention.ms", " +1000 ", "1000"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", INT_MAX, str(INT_MAX)),
        ("segment.bytes", 14, "14"),
        ("unclean.leader.election.enable", True, "true"),
        ("unclean.leader.election.enable", "FALSE", "false"),
        ("min.cleanable.dirty.ratio", 1, "1.0"),
        ("min.cleanable.dirty.ratio", ".25", "0.25"),
        ("cleanup.policy", " compact , delete,compact", "compact,delete"),
        ("acks", -1, "all"),
        ("acks", 1, "1"),
        ("compression.type", "lz4", "lz4"),
        ("interceptor.classes", " a.B , c.d.E,a.B", "a.B,c.d.E"),
        ("interceptor.classes", "", ""),
        ("serializer.class", "pkg.mod.Class", "pkg.mod.Class"),
    ],
)
def test_values_are_stored_in_one_spelling(name: str, raw: object, text: str) -> None:
    config = TopicConfig.parse({name: raw})
    assert config.overrides == {name: text}
    assert TopicConfig.parse(config.overrides) == config
    assert next(entry for entry in config.describe() if entry.name == name).value == text


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("retention.ms", -2),
        ("retention.ms", "1_000"),
        ("retention.ms", "١"),
        ("retention.ms", "1.0"),
        ("retention.ms", 1.5),
        ("retention.ms", True),
        ("retention.ms", None),
        ("retention.ms", ""),
        ("retention.ms", [1]),
        ("retention.ms", LONG_MAX + 1),
        ("retention.ms", "9" * 5000),
        ("segment.bytes", 13),
        ("segment.bytes", INT_MAX + 1),
        ("segment.ms", 0),
        ("min.insync.replicas", 0),
        ("max.compaction.lag.ms", 0),
        ("file.delete.delay.ms", 59_999),
        ("min.cleanable.dirty.ratio", 1.01),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1e999"),
        ("min.cleanable.dirty.ratio", -0.1),
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", "shrink"),
        ("compression.type", "ZSTD"),
        ("message.timestamp.type", "createtime"),
        ("unclean.leader.election.enable", "yes"),
        ("unclean.leader.election.enable", 1),
        ("acks", "2"),
        ("interceptor.classes", "a.B,"),
        ("interceptor.classes", "os"),
        ("serializer.class", "a.b c"),
        ("serializer.class", "../x.Y"),
        ("partitioner.class", ".a.B"),
        ("partitioner.class", "a." + "b" * 200),
    ],
)
def test_bad_value_is_refused_with_name_value_and_rule(name: str, raw: object) -> None:
    with pytest.raises(InvalidConfig) as refused:
        TopicConfig.parse({name: raw})
    assert name in str(refused.value)
    assert "must be" in str(refused.value)
    assert refused.value.fields["name"] == name
    assert refused.value.fields["value"] is raw
    assert refused.value.fields["rule"]


def test_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.hours"):
        TopicConfig.parse({"retention.hours": 1})


def test_compaction_lags_are_checked_together() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms = 11: must be at most max.*= 10"):
        TopicConfig.parse({"min.compaction.lag.ms": 11, "max.compaction.lag.ms": 10})
    TopicConfig.parse({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 10})


def test_typed_attributes() -> None:
    config = TopicConfig.parse({"cleanup.policy": "compact", "segment.ms": 9, "max.compaction.lag.ms": 5, "acks": "0"})
    assert (config.compact, config.delete, config.acks, config.roll_ms) == (True, False, "0", 5)
    assert TopicConfig.parse({"segment.ms": 9, "max.compaction.lag.ms": 5}).roll_ms == 9
    assert TopicConfig.parse({"message.timestamp.type": "LogAppendTime"}).log_append_time


def test_override_equal_to_the_default_is_still_an_override() -> None:
    config = TopicConfig.parse({"retention.bytes": -1})
    assert not next(entry for entry in config.describe() if entry.name == "retention.bytes").is_default


class TestAlter:
    def test_set_and_delete(self) -> None:
        changes = [ConfigChange("retention.ms", 5), ConfigChange("segment.ms", op=AlterOp.DELETE)]
        assert alter({"segment.ms": "7", "acks": "1"}, changes) == {"retention.ms": "5", "acks": "1"}

    def test_deleting_what_is_not_set_is_fine(self) -> None:
        assert alter({}, [ConfigChange("segment.ms", op=AlterOp.DELETE)]) == {}

    def test_append_starts_from_the_default(self) -> None:
        assert alter({}, [ConfigChange("cleanup.policy", "compact", AlterOp.APPEND)]) == {
            "cleanup.policy": "delete,compact"
        }

    def test_appending_twice_changes_nothing(self) -> None:
        stored = {"cleanup.policy": "compact"}
        assert alter(stored, [ConfigChange("cleanup.policy", "compact", AlterOp.APPEND)]) == stored

    def test_subtract(self) -> None:
        stored = {"cleanup.policy": "delete,compact"}
        assert alter(stored, [ConfigChange("cleanup.policy", "delete", AlterOp.SUBTRACT)]) == {
            "cleanup.policy": "compact"
        }

    def test_subtracting_the_last_item_is_refused(self) -> None:
        with pytest.raises(InvalidConfig):
            alter({}, [ConfigChange("cleanup.policy", "delete", AlterOp.SUBTRACT)])

    @pytest.mark.parametrize("op", [AlterOp.APPEND, AlterOp.SUBTRACT])
    def test_only_lists_are_appended_to(self, op: AlterOp) -> None:
        with pytest.raises(InvalidConfig, match="needs a list"):
            alter({}, [ConfigChange("retention.ms", 5, op)])

    @pytest.mark.parametrize("op", list(AlterOp))
    def test_unknown_name_is_refused(self, op: AlterOp) -> None:
        with pytest.raises(InvalidConfig):
            alter({}, [ConfigChange("nope", "1", op)])

    def test_one_config_twice_is_refused(self) -> None:
        with pytest.raises(InvalidRequest):
            alter({}, [ConfigChange("retention.ms", 5), ConfigChange("retention.ms", op=AlterOp.DELETE)])

    def test_result_is_checked_together(self) -> None:
        with pytest.raises(InvalidConfig):
            alter({"min.compaction.lag.ms": "11"}, [ConfigChange("max.compaction.lag.ms", 10)])


@pytest.mark.parametrize("name", CONFIG_KEYS["compression.type"].kind.values)  # type: ignore[attr-defined]
def test_parquet_takes_every_codec(name: str) -> None:
    compression, level = codec(name)
    sink = pa.BufferOutputStream()
    table = pa.table({"value": [b"x" * 100] * 100})
    pq.write_table(table, sink, compression=compression, compression_level=level)
    assert pq.read_table(pa.BufferReader(sink.getvalue())).equals(table)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__mine"])
def test_allowed_names(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "a~b", "ä", "a\n", "a\x00"])
def test_refused_names(name: str) -> None:
    with pytest.raises(InvalidTopic):
        validate_topic_name(name)


def test_internal_names() -> None:
    assert all(is_internal(name) for name in INTERNAL_TOPICS)
    assert not is_internal("__mine")


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    assert collides("a.b", ["x", "a_b"]) == "a_b"
    assert collides("a.b", ["a.b", "a-b"]) is None
