"""Every option of the source: names, defaults and meaning of Spark's Kafka source, and a few of our own.

What the Kafka source ignores is ignored with a warning, what it refuses is refused, and so is what it would pass over
in silence: an unknown name, a contradiction.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sluice.streaming.spark.address import ADDRESS_OPTIONS, STORAGE_PREFIX, Address
from sluice.streaming.spark.group_options import GROUP_OPTIONS, GroupOptions, group_of
from sluice.streaming.spark.option_values import OptionValues, wrong
from sluice.streaming.spark.points import Edge, Point, check_order, ending_point, starting_point
from sluice.streaming.spark.schema import COLUMNS, HEADERS_COLUMN
from sluice.streaming.spark.subscriptions import SUBSCRIPTIONS, Assigned, Subscription, TopicPattern, Topics
from sluice.streaming.spark.subscriptions import subscription_of as _subscription_of

__all__ = [
    "SOURCE_OPTIONS",
    "Assigned",
    "GroupOptions",
    "SourceOptions",
    "Subscription",
    "TopicPattern",
    "Topics",
    "columns_of",
]

logger = logging.getLogger("sluice.spark")

STARTS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
OTHERS = (
    "columns",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
SOURCE_OPTIONS = (*ADDRESS_OPTIONS, *SUBSCRIPTIONS, *STARTS, *ENDS, *TRIGGERS, *GROUP_OPTIONS, *OTHERS)

IGNORED_PREFIXES = ("kafka.", "kafkaconsumer.")
IGNORED = ("groupIdPrefix",)
# What Spark's Kafka source refuses, and what to do instead.
_REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "key is binary; cast it in the query",
    "kafka.value.deserializer": "value is binary; cast it in the query",
    "kafka.key.serializer": "key is binary; cast it in the query",
    "kafka.value.serializer": "value is binary; cast it in the query",
    "kafka.enable.auto.commit": "progress is in the checkpoint, or with group.id in the group",
    "kafka.interceptor.classes": "there are no interceptors",
}

MAX_TRIGGER_DELAY_MS = 15 * 60_000
RETRIES = 3
RETRY_INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    address: Address
    subscription: Subscription
    starting: Point
    """For a new query, and for partitions of a group that nothing is committed for."""
    ending: Point = Edge.LATEST
    """Of a batch query."""
    columns: tuple[str, ...] = COLUMNS
    """What the rows hold, in the order of the schema."""
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    retries: int = RETRIES
    retry_interval_ms: int = RETRY_INTERVAL_MS
    group: GroupOptions | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool, environ: Mapping[str, str]) -> SourceOptions:
        """InvalidConfig names the option that is wrong."""
        values = _values_of(given)
        if streaming:
            _refuse_ends(values)
        else:
            _ignore_triggers(values)
        lowest, highest = (values.whole(name, minimum=1) for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"))
        if lowest is not None and highest is not None and lowest > highest:
            raise wrong("minOffsetsPerTrigger", f"{lowest} is more than maxOffsetsPerTrigger, {highest}")
        address, subscription = Address.parse(values, environ), _subscription_of(values)
        starting = starting_point(values, Edge.LATEST if streaming else Edge.EARLIEST, streaming=streaming)
        ending = Edge.LATEST if streaming else ending_point(values)
        check_order(starting, ending)
        retries = values.whole("fetchOffset.numRetries", minimum=0, maximum=1_000)
        interval = values.whole("fetchOffset.retryIntervalMs", minimum=0, maximum=600_000)
        delay = values.duration_ms("maxTriggerDelay")
        return cls(
            address=address,
            subscription=subscription,
            starting=starting,
            ending=ending,
            columns=_columns(values),
            fail_on_data_loss=values.flag("failOnDataLoss", default=True),
            max_offsets_per_trigger=highest,
            min_offsets_per_trigger=lowest,
            max_trigger_delay_ms=MAX_TRIGGER_DELAY_MS if delay is None else delay,
            min_partitions=values.whole("minPartitions", minimum=1),
            max_records_per_partition=values.whole("maxRecordsPerPartition", minimum=1),
            retries=RETRIES if retries is None else retries,
            retry_interval_ms=RETRY_INTERVAL_MS if interval is None else interval,
            group=group_of(values, address, subscription, streaming=streaming),
        )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """What decides the schema, without a look at the rest."""
    wanted = {name: value for name, value in given.items() if name.lower() in ("columns", "includeheaders")}
    return _columns(OptionValues(wanted, OTHERS))


def _columns(values: OptionValues) -> tuple[str, ...]:
    headers = values.flag("includeHeaders", default=False)
    offered = (*COLUMNS, HEADERS_COLUMN) if headers else COLUMNS
    named = values.names("columns")
    if named is None:
        return offered
    for name in named:
        if name == HEADERS_COLUMN and not headers:
            raise wrong("columns", "headers needs includeHeaders to be true")
        if name not in offered:
            raise wrong("columns", f"{name!r} is none of {', '.join(offered)}")
    return tuple(name for name in offered if name in named)


def _values_of(given: Mapping[str, str]) -> OptionValues:
    lowered = {name.lower() for name in given}
    for name, instead in _REFUSED.items():
        if name in lowered:
            raise wrong(name, f"is not supported: {instead}")
    values = OptionValues(given, (*SOURCE_OPTIONS, *IGNORED), (STORAGE_PREFIX, *IGNORED_PREFIXES))
    if "kafka.bootstrap.servers" in values and "path" not in values and "server" not in values:
        raise wrong("kafka.bootstrap.servers", "there is no Kafka here: say where the cluster is with path or server")
    left = sorted(name for name in lowered if name.startswith(IGNORED_PREFIXES) or name in map(str.lower, IGNORED))
    if left:
        logger.warning("options of the Kafka source that mean nothing here are ignored: %s", ", ".join(left))
    return values


def _refuse_ends(values: OptionValues) -> None:
    for name in ENDS:
        if name in values:
            raise wrong(name, "a streaming query has no end")


def _ignore_triggers(values: OptionValues) -> None:
    left = [name for name in TRIGGERS if name in values]
    if left:
        logger.warning("ignored, because a batch query has no triggers: %s", ", ".join(left))
