"""Readers without a group: stateless fetches as JSON and Arrow, and plain delta-rs on the stored tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.lab.client import EVENTS, KEYS, MOST_ORDERS, ORDERS, Client, Refusal, Surroundings, topic_path
from tests.lab.storage import plain, table_rows

PLACES = [
    *((ORDERS, partition) for partition in range(MOST_ORDERS)),
    *((topic, partition) for topic in (EVENTS, KEYS) for partition in range(2)),
]
ARROW = "application/vnd.apache.arrow.stream"
AGAIN_BACK = 300
"""How far back a reader goes to see whether what it read is still the same."""


class Fetching(Client):
    def __init__(self, around: Surroundings, number: int) -> None:
        super().__init__(around, f"fetch-{number}")
        self._next = dict.fromkeys(PLACES, 0)

    def once(self) -> None:
        place = self.dice.choice(PLACES)
        offset = self._next[place]
        looks_back = self.dice.random() < 0.2
        if looks_back:
            offset = max(0, offset - self.dice.randint(1, AGAIN_BACK))
        operation = self.recorder.invoke(self.name, "read", topic=place[0], partition=place[1], **{"from": offset})
        params: dict[str, Any] = {"offset": offset, "max_records": self.dice.choice([10, 1000]), "max_wait_ms": 200}
        path = f"{topic_path(place[0])}/partitions/{place[1]}/records"
        as_arrow = self.dice.random() < 0.4
        headers = {"Accept": ARROW} if as_arrow else {}
        try:
            answer = self.ask(operation, "GET", path, params=params | {"format": "string"}, headers=headers)
        except Refusal as error:
            if error.status == 416:
                self._next[place] = error.body["details"]["log_start"]
            raise
        rows = _arrow_rows(answer.content) if as_arrow else _json_rows(answer.json())
        hw, start, after = (
            int(answer.headers[f"sluice-{name}"]) for name in ("high-watermark", "log-start-offset", "next-offset")
        )
        operation.ok(hw=hw, start=start, next=after, rows=rows)
        if not looks_back:
            self._next[place] = after


def _json_rows(answer: dict[str, Any]) -> list[list[Any]]:
    return [[row["offset"], None if row["value"] is None else row["value"].strip('"')] for row in answer["data"]]


def _arrow_rows(content: bytes) -> list[list[Any]]:
    table = pa.ipc.open_stream(content).read_all()
    values = table.column("value").to_pylist()
    return [[o, plain(v)] for o, v in zip(table.column("offset").to_pylist(), values, strict=True)]


class DeltaReading(Client):
    """Stock delta-rs: it knows nothing of services, epochs and write-ahead logs."""

    pause_s = 0.25

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, "delta")
        self._next = dict.fromkeys(PLACES, 0)

    def once(self) -> None:
        place = self.dice.choice(PLACES)
        offset = max(0, self._next[place] - AGAIN_BACK)
        asked = {"topic": place[0], "partition": place[1], "from": offset, "whole": True}
        operation = self.recorder.invoke(self.name, "read", **asked)
        try:
            table = self.around.lake.table(f"topics/{place[0]}", place[1])
            found = table_rows(table, offset)
        except Exception as error:  # noqa: BLE001  # of a file that was torn its reader says many things
            operation.fail(f"{type(error).__name__}: {error}"[:300])
            return
        operation.ok(rows=[[at, value] for at, _, value, _ in found])
        if found:
            self._next[place] = found[-1][0] + 1
