"""Topic names and topic configs: what is allowed, what is the default, what it means.

Every config is one line of `TopicConfig`: attribute, name, default, bounds and doc side by side. A topic
stores only what was set on it, as canonical strings; everything else follows the defaults of the version
that runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from sluice.log_store.config_kinds import (
    INT_MAX,
    LONG_MAX,
    Boolean,
    DottedName,
    DottedNames,
    FloatRange,
    IntRange,
    Kind,
    ListOf,
    OneOf,
    ShortText,
)
from sluice.log_store.errors import InvalidConfig, InvalidRequest, InvalidTopic

KIB, MIB, GIB = 1024, 1024**2, 1024**3
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    default: Any
    kind: Kind
    doc: str

    def parse(self, raw: object) -> Any:
        try:
            return self.kind.parse(_as_text(raw))
        except ValueError:
            raise InvalidConfig(
                f"{self.name} = {raw!r}: must be {self.kind.rule}", name=self.name, value=raw, rule=self.kind.rule
            ) from None

    def text(self, value: Any) -> str | None:
        return None if value is None else self.kind.text(value)


def _as_text(raw: object) -> str:
    """JSON scalars as Kafka's strings; null, objects and arrays are no config values."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str | int | float):
        return str(raw).strip()
    raise ValueError(raw)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    default: str | None
    is_default: bool
    doc: str


def _key(name: str, default: Any, kind: Kind, doc: str) -> Any:
    return field(default=default, metadata={"key": ConfigKey(name, default, kind, doc)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective configs of a topic. `None` means: the server's setting."""

    cleanup_policy: tuple[str, ...] = _key(
        "cleanup.policy",
        ("delete",),
        ListOf(("compact", "delete")),
        "How old records go: `delete` by time and size, `compact` keeps the last record of each key; both may be given",
    )
    retention_ms: int = _key(
        "retention.ms", 7 * DAY_MS, IntRange(-1, LONG_MAX), "Age at which a segment is deleted; -1 = never"
    )
    retention_bytes: int = _key(
        "retention.bytes",
        -1,
        IntRange(-1, LONG_MAX),
        "Size of a partition above which its oldest segments are deleted; -1 = no limit",
    )
    segment_ms: int = _key(
        "segment.ms", 7 * DAY_MS, IntRange(1, LONG_MAX), "Span of record times after which a new segment begins"
    )
    segment_bytes: int = _key("segment.bytes", GIB, IntRange(14, INT_MAX), "Size after which a new segment begins")
    max_message_bytes: int = _key(
        "max.message.bytes",
        MIB + 12,
        IntRange(0, INT_MAX),
        "Largest record: key, value and headers, uncompressed (R-12)",
    )
    min_insync_replicas: int = _key(
        "min.insync.replicas",
        1,
        IntRange(1, INT_MAX),
        "Replicas that must hold a record before acks=all is answered; at most the replication factor counts",
    )
    compression_type: str = _key(
        "compression.type",
        "producer",
        OneOf(("producer", "zstd", "snappy", "gzip", "lz4", "uncompressed")),
        "Parquet codec of the topic's files; `producer` = zstd",
    )
    delete_retention_ms: int = _key(
        "delete.retention.ms",
        DAY_MS,
        IntRange(0, LONG_MAX),
        "How long compaction keeps a tombstone after first meeting it",
    )
    min_compaction_lag_ms: int = _key(
        "min.compaction.lag.ms", 0, IntRange(0, LONG_MAX), "Age below which a record is not compacted"
    )
    max_compaction_lag_ms: int = _key(
        "max.compaction.lag.ms",
        LONG_MAX,
        IntRange(1, LONG_MAX),
        "Age at which a record is due for compaction, however clean the log",
    )
    min_cleanable_dirty_ratio: float = _key(
        "min.cleanable.dirty.ratio",
        0.5,
        FloatRange(0.0, 1.0),
        "Share of not yet compacted bytes above which a partition is compacted",
    )
    file_delete_delay_ms: int = _key(
        "file.delete.delay.ms",
        15 * MINUTE_MS,
        IntRange(MINUTE_MS, LONG_MAX),
        "How long a file stays readable after it left the log (R-6)",
    )
    message_timestamp_type: str = _key(
        "message.timestamp.type",
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        "Whose clock stamps a record: the producer's or the service's",
    )
    message_timestamp_before_max_ms: int = _key(
        "message.timestamp.before.max.ms", LONG_MAX, IntRange(0, LONG_MAX), "How far a CreateTime may lie in the past"
    )
    message_timestamp_after_max_ms: int = _key(
        "message.timestamp.after.max.ms", HOUR_MS, IntRange(0, LONG_MAX), "How far a CreateTime may lie in the future"
    )
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable",
        False,
        Boolean(),
        "Accepted for Kafka's tools; with one replica there is no unclean election",
    )
    commit_interval_ms: int | None = _key(
        "commit.interval.ms",
        None,
        IntRange(0, MINUTE_MS),
        "How long a busy partition gathers batches for one Delta commit",
    )
    acks: str | None = _key(
        "acks", None, OneOf(("0", "1", "all"), aliases=(("-1", "all"),)), "acks of a produce request that names none"
    )
    merge_target_bytes: int = _key(
        "merge.target.bytes", 128 * MIB, IntRange(KIB, LONG_MAX), "Size up to which small files are merged (R-10)"
    )
    interceptor_classes: tuple[str, ...] = _key(
        "interceptor.classes",
        (),
        DottedNames(),
        "Hooks that see each produced batch first; `ingest.hooks.allowed` only",
    )
    serializer_class: str = _key(
        "serializer.class", "", DottedName(), "Hook that makes the stored form of key and value, after the interceptors"
    )
    partitioner_class: str = _key(
        "partitioner.class", "", DottedName(), "Hook that chooses partitions instead of Kafka's rule"
    )
    mirror_source: str = _key(
        "mirror.source",
        "",
        ShortText(),
        "Topic of another cluster that this one is a copy of: produce is refused until it is removed",
    )
    overrides: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What was set on the topic, canonical: the only part that is stored."""

    @classmethod
    def parse(cls, overrides: Mapping[str, object]) -> TopicConfig:
        values = {name: config_key(name).parse(raw) for name, raw in sorted(overrides.items())}
        texts = {name: CONFIG_KEYS[name].kind.text(value) for name, value in values.items()}
        config = cls(overrides=texts, **{_attribute(name): value for name, value in values.items()})
        config._check_together()
        return config

    def _check_together(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            rule = f"at most max.compaction.lag.ms = {self.max_compaction_lag_ms}"
            raise InvalidConfig(
                f"min.compaction.lag.ms = {self.min_compaction_lag_ms}: must be {rule}",
                name="min.compaction.lag.ms",
                value=self.min_compaction_lag_ms,
                rule=rule,
            )

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """segment.ms, or less: the active segment is never cleaned, so it must end before the lag does."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    def describe(self) -> list[ConfigEntry]:
        return [
            ConfigEntry(
                name=key.name,
                value=key.text(getattr(self, _attribute(key.name))),
                default=key.text(key.default),
                is_default=key.name not in self.overrides,
                doc=key.doc,
            )
            for key in CONFIG_KEYS.values()
        ]


CONFIG_KEYS: dict[str, ConfigKey] = {
    f.metadata["key"].name: f.metadata["key"] for f in fields(TopicConfig) if "key" in f.metadata
}


def _attribute(name: str) -> str:
    return name.replace(".", "_")


def config_key(name: str) -> ConfigKey:
    key = CONFIG_KEYS.get(name)
    if key is None:
        raise InvalidConfig(f"unknown topic config {name!r}", name=name, rule="a known topic config")
    return key


# --- incremental change ------------------------------------------------------------------------


class AlterOp(StrEnum):
    SET = "SET"
    DELETE = "DELETE"
    APPEND = "APPEND"
    SUBTRACT = "SUBTRACT"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    value: object = None
    """Not used by DELETE."""
    op: AlterOp = AlterOp.SET


def alter(overrides: Mapping[str, str], changes: Iterable[ConfigChange]) -> dict[str, str]:
    """The overrides after the changes, validated as a whole; none is made when one is wrong."""
    altered: dict[str, object] = dict(overrides)
    seen: set[str] = set()
    for change in changes:
        key = config_key(change.name)
        if change.name in seen:
            raise InvalidRequest(f"config {change.name} is changed twice in one request", name=change.name)
        seen.add(change.name)
        if change.op is AlterOp.DELETE:
            altered.pop(change.name, None)
        elif change.op is AlterOp.SET:
            altered[change.name] = change.value
        else:
            altered[change.name] = _changed_list(key, altered.get(change.name), change)
    return dict(TopicConfig.parse(altered).overrides)


def _changed_list(key: ConfigKey, current: object | None, change: ConfigChange) -> str:
    if not isinstance(key.kind, ListOf | DottedNames):
        raise InvalidConfig(
            f"{key.name}: {change.op} needs a list", name=key.name, value=change.value, rule="SET or DELETE"
        )
    items: tuple[str, ...] = key.default if current is None else key.parse(current)
    given: tuple[str, ...] = key.parse(change.value)
    if change.op is AlterOp.SUBTRACT:
        return ",".join(item for item in items if item not in given)
    return ",".join((*items, *given))


# --- codecs ------------------------------------------------------------------------------------

# zstd 1 makes smaller and faster files than 3 on our records; gzip 6 is zlib's own default,
# where Arrow would take 9; "lz4" is what pyarrow calls Parquet's LZ4_RAW.
_CODECS: dict[str, tuple[str, int | None]] = {
    "producer": ("zstd", 1),
    "zstd": ("zstd", 1),
    "snappy": ("snappy", None),
    "gzip": ("gzip", 6),
    "lz4": ("lz4", None),
    "uncompressed": ("none", None),
}


def codec(compression_type: str) -> tuple[str, int | None]:
    """pyarrow's name of the Parquet codec, and its level."""
    return _CODECS[compression_type]


# --- names -------------------------------------------------------------------------------------

MAX_NAME = 249
CLUSTER_METADATA = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE})

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def validate_topic_name(name: str) -> None:
    """Kafka's rule. The name also becomes a folder, so this is what keeps a client inside the root."""
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidTopic(f"topic name has {len(name)} characters, allowed are 1 to {MAX_NAME}", topic=name)
    if name in (".", ".."):
        raise InvalidTopic(f"topic name {name!r} is not allowed", topic=name)
    if not _NAME.fullmatch(name):
        raise InvalidTopic(f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-'", topic=name)


def collides(name: str, existing: Iterable[str]) -> str | None:
    """Another topic whose name differs only in '.' and '_': metric names make no difference between them."""
    flat = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == flat), None)
