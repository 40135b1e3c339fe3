"""Cron expressions: when does a schedule come next? Pure, in UTC.

Five fields (minute, hour, day of month, month, day of week), each `*`, a number, a name (`jan`, `mon`), a range `a-b`,
a step `*/n` or `a-b/n`, or several of these with commas; or `@hourly`, `@daily`, `@weekly`, `@monthly`. As in cron, if
both days are restricted, either of them is enough; Sunday is 0 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: at for at, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: at for at, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: dict[str, int]
    last: int
    """Up to which `*` counts: Sunday is not counted twice."""


_FIELDS = (
    _Field("minute", 0, 59, {}, 59),
    _Field("hour", 0, 23, {}, 23),
    _Field("day of month", 1, 31, {}, 31),
    _Field("month", 1, 12, _MONTHS, 12),
    _Field("day of week", 0, 7, _DAYS, 6),
)


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    any_day: bool
    any_weekday: bool

    def next_after(self, moment: datetime) -> datetime:
        """The first minute after `moment` that fits."""
        at = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while at.month not in self.months or not self._fits_day(at):
            at = at.replace(hour=0, minute=0) + timedelta(days=1)
        while at.hour not in self.hours or at.minute not in self.minutes:
            late = at.hour in self.hours
            at = at + timedelta(minutes=1) if late else at.replace(minute=0) + timedelta(hours=1)
            if at.hour == 0 and at.minute == 0:
                return self.next_after(at - timedelta(minutes=1))
        return at

    def _fits_day(self, at: datetime) -> bool:
        by_month, by_week = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_month and by_week
        return by_month or by_week


def parse_cron(text: str) -> Cron:
    """ValueError, with the field and the rule, for what is no schedule or can never come."""
    parts = NAMED.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"{text!r}: must be {', '.join(NAMED)} or five fields, not {len(parts)}")
    minutes, hours, days, months, weekdays = (
        _values(part.lower(), field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    cron = Cron(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        any_day=parts[2].startswith("*"),
        any_weekday=parts[4].startswith("*"),
    )
    _check_comes(cron, text)
    return cron


def _check_comes(cron: Cron, text: str) -> None:
    """Days of month that none of the months has, such as the 31st of June."""
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    by_month = any(min(cron.days) <= longest.get(month, 31) for month in cron.months)
    if not by_month and (cron.any_day or cron.any_weekday):
        raise ValueError(f"{text!r}: there is no such day")


def _values(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for piece in text.split(","):
        found.update(_range(piece, field))
    return frozenset(found)


def _range(piece: str, field: _Field) -> range:
    whole, slash, step_text = piece.partition("/")
    step = 1
    if slash:
        if not step_text.isdecimal() or not int(step_text):
            raise _wrong(piece, field, "the step must be a number above 0")
        step = int(step_text)
    if whole == "*":
        return range(field.low, field.last + 1, step)
    first, dash, last = whole.partition("-")
    low = _number(first, piece, field)
    high = _number(last, piece, field) if dash else (field.high if slash else low)
    if high < low:
        raise _wrong(piece, field, "the range goes backward")
    return range(low, high + 1, step)


def _number(text: str, piece: str, field: _Field) -> int:
    number = field.names.get(text, int(text) if text.isdecimal() and text.isascii() else -1)
    if not field.low <= number <= field.high:
        raise _wrong(piece, field, f"must be between {field.low} and {field.high}")
    return number


def _wrong(piece: str, field: _Field, rule: str) -> ValueError:
    return ValueError(f"{field.name} {piece!r}: {rule}")
