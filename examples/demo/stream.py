"""What a shop sends: orders, payments and the readings of its devices. The same seed gives the same stream."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

COUNTRIES = ("DE", "FR", "NL", "PL", "SE")
ITEMS = {"lamp": 3_990, "chair": 11_900, "desk": 34_950, "shelf": 8_995}
DEVICES = 40


class Shop:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._number = 0
        self.revenue: Counter[str] = Counter()
        """By country, in cents, of every order that was made."""
        self.readings: dict[str, int] = {}
        """The last reading of each device."""

    def orders(self, count: int) -> list[dict[str, Any]]:
        """As records of a JSON request."""
        chance, made = self._chance, []
        for _ in range(count):
            item, country, quantity = chance.choice(list(ITEMS)), chance.choice(COUNTRIES), chance.randrange(1, 5)
            order = {
                "order": f"o-{self._number:07d}",
                "customer": f"c-{chance.randrange(5_000):04d}",
                "country": country,
                "item": item,
                "quantity": quantity,
                "cents": ITEMS[item] * quantity,
            }
            self._number += 1
            self.revenue[country] += order["cents"]
            made.append(
                {"key": order["customer"], "value": order, "headers": [{"name": "source", "value": "ZGVtbw=="}]}
            )
        return made

    def payments(self, count: int) -> pa.Table:
        chance = self._chance
        values = [
            json.dumps({"payment": chance.randrange(10**9), "cents": chance.randrange(100, 100_000), "note": "x" * 40})
            for _ in range(count)
        ]
        return _table([f"c-{chance.randrange(5_000):04d}" for _ in range(count)], values)

    def device_readings(self, count: int) -> pa.Table:
        """Many readings of few devices: what key compaction is for."""
        keys, values = [], []
        for _ in range(count):
            device, celsius = f"device-{self._chance.randrange(DEVICES):02d}", self._chance.randrange(-2_000, 4_000)
            self.readings[device] = celsius
            keys.append(device)
            values.append(json.dumps({"device": device, "centidegrees": celsius}))
        return _table(keys, values)


def _table(keys: Sequence[str], values: Sequence[str]) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})
