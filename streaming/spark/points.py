"""Where a read begins or ends, as the options say it: a word, offsets, or times, in the forms of Spark's Kafka source.

`startingTimestamp` goes before `startingOffsetsByTimestamp`, that before `startingOffsets`; likewise for the end. What
another one goes before is still refused if it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from sluice.log_store.values import TopicPartition
from sluice.streaming.spark.option_values import OptionValues, wrong

LATEST_OFFSET, EARLIEST_OFFSET = -1, -2
"""In JSON: the end of the log, its start."""


class Edge(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ByOffset:
    """One offset for each partition; -1 is latest, -2 earliest."""

    option: str
    offsets: Mapping[TopicPartition, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class ByTime:
    """The first offset at or after a time: `ms` for all partitions, or one time for each."""

    option: str
    ms: int | None = None
    times: Mapping[TopicPartition, int] = field(default_factory=dict, hash=False)
    else_latest: bool = False
    """Where no record is that young: the end of the log, rather than an error."""


Point: TypeAlias = Edge | ByOffset | ByTime


def starting_point(values: OptionValues, default: Edge, *, streaming: bool) -> Point:
    strategy = values.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    by_time = _by_time(values, "startingTimestamp", "startingOffsetsByTimestamp", else_latest=strategy == "latest")
    point = _by_offset(values, "startingOffsets", default)
    if by_time is not None:
        return by_time
    if not streaming:
        _forbid(point, Edge.LATEST, LATEST_OFFSET, "a batch query cannot start at the end")
    return point


def ending_point(values: OptionValues) -> Point:
    """Of a batch query."""
    by_time = _by_time(values, "endingTimestamp", "endingOffsetsByTimestamp", else_latest=True)
    point = _by_offset(values, "endingOffsets", Edge.LATEST)
    if by_time is not None:
        return by_time
    _forbid(point, Edge.EARLIEST, EARLIEST_OFFSET, "a query cannot end at the start")
    return point


def check_order(starting: Point, ending: Point) -> None:
    if isinstance(starting, ByOffset) and isinstance(ending, ByOffset):
        for tp, start in starting.offsets.items():
            end = ending.offsets.get(tp, LATEST_OFFSET)
            if 0 <= end < start:
                raise wrong(ending.option, f"{tp} would end at {end}, before it begins at {start}")


def _by_time(values: OptionValues, for_all: str, for_each: str, *, else_latest: bool) -> ByTime | None:
    ms, times = values.whole(for_all, minimum=0), _partition_numbers(values, for_each, minimum=0)
    if ms is not None:
        return ByTime(for_all, ms=ms, else_latest=else_latest)
    return None if times is None else ByTime(for_each, times=times, else_latest=else_latest)


def _by_offset(values: OptionValues, name: str, default: Edge) -> Point:
    text = values.text(name)
    if text is None:
        return default
    if text.strip().lower() in tuple(Edge):
        return Edge(text.strip().lower())
    if not text.lstrip().startswith("{"):
        raise wrong(name, f'must be earliest, latest or JSON such as {{"topic":{{"0":23,"1":-1}}}}, not {text!r}')
    offsets = _partition_numbers(values, name, minimum=EARLIEST_OFFSET)
    return ByOffset(name, offsets or {})


def _forbid(point: Point, edge: Edge, number: int, why: str) -> None:
    if isinstance(point, ByOffset):
        for tp, offset in point.offsets.items():
            if offset == number:
                raise wrong(point.option, f"{tp} has {number} ({edge}): {why}")
    elif point is edge:
        raise wrong("startingOffsets" if edge is Edge.LATEST else "endingOffsets", f"{edge}: {why}")


def _partition_numbers(values: OptionValues, name: str, *, minimum: int) -> dict[TopicPartition, int] | None:
    """`{"topic": {"0": 23}}`"""
    found = values.json_object(name)
    if found is None:
        return None
    numbers: dict[TopicPartition, int] = {}
    for topic, per_partition in found.items():
        if not isinstance(per_partition, dict):
            raise wrong(name, f'{topic!r} must be an object such as {{"0":23}}')
        for partition, number in per_partition.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise wrong(name, f"{topic!r}: {partition!r} is no partition number")
            if type(number) is not int or number < minimum:
                raise wrong(name, f"{topic}-{partition}: must be a whole number, at least {minimum}, not {number!r}")
            if (one := TopicPartition(topic, int(partition))) in numbers:  # as "0" and "00"
                raise wrong(name, f"names {one} twice")
            numbers[one] = number
    if not numbers:
        raise wrong(name, "names no partition")
    return numbers
