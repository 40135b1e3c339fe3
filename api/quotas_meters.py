"""Who is over a quota now. Pure but for its memory, which is bounded; time is an argument.

As in Kafka a request that goes over is still done, and told how long its sender must wait. A Kafka broker then stops
reading the connection; over HTTP the next requests of the same owner are refused until that time is over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from sluice.api.quotas_rate import Rate, Tokens
from sluice.log_store.catalog_quotas import MUTATION_RATE, QuotaBound, QuotaEntity, QuotaRegistry

MAX_TRACKED = 10_000
SWEEP_EVERY_S = 1.0


class Client(NamedTuple):
    user: str
    client_id: str


class _Meter:
    __slots__ = ("limit", "measure", "muted_until")

    def __init__(self, kind: str, limit: float) -> None:
        self.measure: Rate | Tokens = Tokens() if kind == MUTATION_RATE else Rate()
        self.limit = limit
        self.muted_until = float("-inf")

    def follow(self, limit: float, now: float) -> None:
        """A quota that was changed holds at once, also for who is waiting for the old one."""
        if limit != self.limit:
            self.limit, self.muted_until = limit, now + self.measure.wait_s(limit, now)

    def idle(self, now: float) -> bool:
        return self.muted_until <= now and self.measure.idle(self.limit, now)


_Key = tuple[str, QuotaEntity]


class Meters:
    def __init__(self, rules: QuotaRegistry, most: int = MAX_TRACKED) -> None:
        self._rules = rules
        self._most = most
        self._meters: OrderedDict[_Key, _Meter] = OrderedDict()
        """The one used longest ago first."""
        self._swept_at = float("-inf")
        self._looked_up_in = rules.entities
        self._found: dict[tuple[str, Client, str | None], tuple[QuotaBound, ...]] = {}
        """What holds for whom, until a quota is changed."""

    @property
    def active(self) -> bool:
        """Is there any quota at all? The only question that a service without quotas ever asks."""
        return bool(self._rules.entities)

    def __len__(self) -> int:
        return len(self._meters)

    def wait_ms(self, kind: str, who: Client, topic: str | None, now: float) -> int:
        """For how long requests of this kind are still to be refused; 0: welcome."""
        longest = 0.0
        for bound in self._bounds(kind, who, topic):
            meter = self._meters.get((kind, bound.owner))
            if meter is not None:
                meter.follow(bound.rate, now)
                longest = max(longest, meter.muted_until - now)
        return round(longest * 1000)

    def charge(self, kind: str, who: Client, topic: str | None, amount: float, now: float) -> int:
        """Count what was done. The throttle time in milliseconds: 0 while all is within its quota."""
        longest = 0
        for bound in self._bounds(kind, who, topic):
            meter = self._meter((kind, bound.owner), bound.rate, now)
            meter.measure.add(amount, bound.rate, now)
            wait_ms = round(meter.measure.wait_s(bound.rate, now) * 1000)
            if wait_ms:
                meter.muted_until = max(meter.muted_until, now + wait_ms / 1000)
                longest = max(longest, wait_ms)
        return longest

    def _bounds(self, kind: str, who: Client, topic: str | None) -> tuple[QuotaBound, ...]:
        if self._rules.entities is not self._looked_up_in:
            self._looked_up_in, self._found = self._rules.entities, {}
        found = self._found.get((kind, who, topic))
        if found is None:
            if len(self._found) >= self._most:
                self._found.clear()
            found = self._found[kind, who, topic] = tuple(self._look_up(kind, who, topic))
        return found

    def _look_up(self, kind: str, who: Client, topic: str | None) -> Iterator[QuotaBound]:
        own = self._rules.bound(kind, who.user, who.client_id)
        if own is not None:
            yield own
        shared = self._rules.topic_bound(kind, topic) if topic is not None else None
        if shared is not None:
            yield shared

    def _meter(self, key: _Key, limit: float, now: float) -> _Meter:
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._most:
                self._make_room(now)
            meter = self._meters[key] = _Meter(key[0], limit)
        else:
            self._meters.move_to_end(key)
            meter.follow(limit, now)
        return meter

    def _make_room(self, now: float) -> None:
        """Who is idle is forgotten; if nobody is, whoever was seen longest ago. Client ids cost nothing to make up."""
        if now - self._swept_at >= SWEEP_EVERY_S:
            self._swept_at = now
            for key in [key for key, meter in self._meters.items() if meter.idle(now)]:
                del self._meters[key]
        if len(self._meters) >= self._most:
            self._meters.popitem(last=False)
