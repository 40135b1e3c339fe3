"""A question as JSON has it: `{"strategy"?, "partitions_per_topic", "subscriptions", "previous"?, …}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors.group import NO_GENERATION, Member
from sluice.streaming.assignors.registry import Strategy, strategy_named

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Question:
    strategy: Strategy | None
    """None: it does not say."""
    partitions_per_topic: Mapping[str, int]
    members: tuple[Member, ...]


def parse_question(value: object) -> Question:
    """InvalidRequest names the field. Fields that are not known, and members that left, are passed over."""
    fields = _object(value, "the question")
    name = fields.get("strategy")
    counts = _each(_required(fields, "partitions_per_topic"), "partitions_per_topic", _integer)
    topics = _each(_required(fields, "subscriptions"), "subscriptions", _topics)
    owned = _each(fields.get("previous"), "previous", _partitions)
    generations = _each(fields.get("previous_generation"), "previous_generation", _generation)
    instances = _each(fields.get("instance_ids"), "instance_ids", _instance)
    members = tuple(
        Member(
            member_id=member,
            topics=subscribed,
            instance_id=instances.get(member),
            owned=owned.get(member, frozenset()),
            generation=generations.get(member, NO_GENERATION),
        )
        for member, subscribed in topics.items()
    )
    return Question(None if name is None else strategy_named(_text(name, "strategy")), counts, members)


def _required(fields: Mapping[str, object], name: str) -> object:
    if name not in fields:
        raise InvalidRequest(f"{name}: is missing")
    return _object(fields[name], name)


def _each(value: object, where: str, parse: Callable[[object, str], _T]) -> dict[str, _T]:
    if value is None:
        return {}
    return {name: parse(entry, f"{where}[{name!r}]") for name, entry in _object(value, where).items()}


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    return value


def _list(value: object, where: str, kind: str) -> list[object]:
    if not isinstance(value, list):
        raise _wrong(where, kind, value)
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "a string", value)
    return value


def _integer(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(where, "an integer", value)
    return value


def _topics(value: object, where: str) -> frozenset[str]:
    entries = _list(value, where, "a list of topics")
    return frozenset(_text(topic, f"{where}[{place}]") for place, topic in enumerate(entries))


def _partitions(value: object, where: str) -> frozenset[TopicPartition]:
    entries = [] if value is None else _list(value, where, "a list of [topic, partition]")
    return frozenset(_partition(entry, f"{where}[{place}]") for place, entry in enumerate(entries))


def _partition(value: object, where: str) -> TopicPartition:
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(where, "[topic, partition]", value)
    return TopicPartition(_text(value[0], f"{where}[0]"), _integer(value[1], f"{where}[1]"))


def _generation(value: object, where: str) -> int:
    return NO_GENERATION if value is None else _integer(value, where)


def _instance(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _wrong(where: str, kind: str, value: object) -> InvalidRequest:
    shown = repr(value)
    return InvalidRequest(f"{where}: must be {kind}, not {shown if len(shown) <= 60 else shown[:57] + '...'}")
