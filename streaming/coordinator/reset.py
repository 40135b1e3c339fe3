"""Where a reset puts a group: Kafka's eight scenarios as pure rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sluice.log_store.errors import InvalidRequest, NonEmptyGroup
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups import Group, Phase


class Scenario(StrEnum):
    TO_EARLIEST = "to_earliest"
    TO_LATEST = "to_latest"
    TO_CURRENT = "to_current"
    TO_OFFSET = "to_offset"
    SHIFT_BY = "shift_by"
    TO_DATETIME = "to_datetime"
    BY_DURATION = "by_duration"
    FROM_FILE = "from_file"

    @property
    def by_time(self) -> bool:
        return self in (Scenario.TO_DATETIME, Scenario.BY_DURATION)


@dataclass(frozen=True, slots=True)
class Position:
    """What there is to choose from in one partition."""

    start: int
    latest: int
    committed: int | None
    at_time: int | None = None
    """The first offset whose record is at the time asked for, or later; None: there is none."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    where: TopicPartition
    current: int | None
    new: int


def refuse_active(group: Group | None) -> None:
    """A reset under the feet of its members would be overwritten by their next commit."""
    if group is not None and group.phase not in (Phase.EMPTY, Phase.DEAD):
        raise NonEmptyGroup(f"offsets can only be reset while the group is inactive; it is {group.phase} now")


def plan(
    scenario: Scenario,
    positions: Mapping[TopicPartition, Position],
    number: int = 0,
    offsets: Mapping[TopicPartition, int] | None = None,
) -> list[PlanRow]:
    """`number`: of to_offset and shift_by; `offsets`: of from_file. Shifting without a commit fails the whole run."""
    given = offsets or {}
    rows = []
    for where, at in positions.items():
        wanted = given.get(where, number)
        rows.append(PlanRow(where, at.committed, _target(scenario, where, at, wanted)))
    return rows


def _target(scenario: Scenario, where: TopicPartition, at: Position, number: int) -> int:
    match scenario:
        case Scenario.TO_EARLIEST:
            return at.start
        case Scenario.TO_LATEST:
            return at.latest
        case Scenario.TO_CURRENT:
            return at.latest if at.committed is None else at.committed
        case Scenario.TO_OFFSET | Scenario.FROM_FILE:
            return clamped(number, at)
        case Scenario.SHIFT_BY:
            if at.committed is None:
                raise InvalidRequest(f"{where}: nothing is committed that could be shifted", field="shift_by")
            return clamped(at.committed + number, at)
        case Scenario.TO_DATETIME | Scenario.BY_DURATION:
            return at.latest if at.at_time is None else at.at_time


def clamped(offset: int, at: Position) -> int:
    """Too high first, then too low: in a log whose start is past its end the start wins."""
    return max(at.start, min(offset, at.latest))


# --- which partitions --------------------------------------------------------------------------


def parse_scope(text: str) -> tuple[str, tuple[int, ...] | None]:
    """`orders` is all of its partitions, `orders:0,2` is those two."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not topic or not all(part.isascii() and part.isdecimal() and len(part) <= 10 for part in parts):
        raise InvalidRequest(f"topics: {text[:100]!r} must be TOPIC or TOPIC:PARTITION,PARTITION", field="topics")
    return topic, tuple(dict.fromkeys(int(part) for part in parts))


def chosen(given: Mapping[Scenario, object]) -> tuple[Scenario, object]:
    """The one scenario that a request names."""
    if len(given) != 1:
        names = ", ".join(Scenario)
        told = ", ".join(sorted(given)) or "none"
        raise InvalidRequest(f"exactly one of {names} must be given; it is {told}")
    return next(iter(given.items()))


def whole_number(scenario: Scenario, value: object) -> int:
    if type(value) is not int or abs(value) >= 2**63 or (scenario is Scenario.TO_OFFSET and value < 0):
        kind = "an offset, 0 or more" if scenario is Scenario.TO_OFFSET else "a whole number"
        raise InvalidRequest(f"{scenario}: must be {kind}", field=scenario)
    return value


def flag(scenario: Scenario, value: object) -> None:
    if value is not True:
        raise InvalidRequest(f"{scenario}: must be true, or left out", field=scenario)


def in_order(rows: Sequence[PlanRow]) -> list[PlanRow]:
    return sorted(rows, key=lambda row: (row.where.topic, row.where.partition))
