"""Which topics a query reads: exactly one of `subscribe`, `subscribePattern` and `assign`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sluice.streaming.spark.option_values import OptionValues, wrong

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Topics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """All topics whose whole name matches; internal topics never do."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: Mapping[str, tuple[int, ...]] = field(hash=False)


Subscription: TypeAlias = Topics | TopicPattern | Assigned


def subscription_of(values: OptionValues) -> Subscription:
    chosen = [name for name in SUBSCRIPTIONS if name in values]
    if len(chosen) != 1:
        found = " and ".join(map(repr, chosen)) or "none"
        raise wrong(chosen[-1] if chosen else "subscribe", f"give one of {', '.join(SUBSCRIPTIONS)}; there is {found}")
    if (pattern := values.text("subscribePattern")) is not None:
        try:
            return TopicPattern(re.compile(pattern))
        except re.error as error:
            raise wrong("subscribePattern", f"{pattern!r} is no pattern: {error}") from None
    if (topics := values.names("subscribe")) is not None:
        return Topics(topics)
    return _assigned(values)


def _assigned(values: OptionValues) -> Assigned:
    name = "assign"
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in (values.json_object(name) or {}).items():
        if not isinstance(partitions, list) or not partitions or not all(map(_is_number, partitions)):
            raise wrong(name, f"{topic!r} must be a list of partition numbers, not {json.dumps(partitions)}")
        found[topic] = tuple(sorted(set(partitions)))
    if not found:
        raise wrong(name, 'names no partition: write {"topic":[0,1]}')
    return Assigned(found)


def _is_number(value: object) -> bool:
    return type(value) is int and value >= 0
