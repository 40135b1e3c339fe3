"""What is stored, read with delta-rs and nothing of ours: the tables, the log starts and ends, what was set aside."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from tests.lab.facts import Place, Stored, Value

NAME = "name"
"""The header that names a tombstone."""
_VALUE = re.compile(rb"[a-z0-9-]+(?:\.[a-z0-9]+)+:\d+:\d+")


def plain(stored: bytes | None) -> str | None:
    """Keys and values that came as JSON strings are stored with their quotes."""
    return None if stored is None else stored.decode().strip('"')


def table_rows(table: DeltaTable, first: int = 0) -> list[tuple[int, str | None, Value, str]]:
    """Offset, key, value, and what a header calls a record without a value."""
    query = f'select "offset", key, value, headers from t where "offset" >= {first} order by "offset"'
    rows = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
    offsets, headers = (rows.column(name).to_pylist() for name in ("offset", "headers"))
    keys, values = (rows.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
    return [
        (offset, plain(key), plain(value), _name(more) if value is None else "")
        for offset, key, value, more in zip(offsets, keys, values, headers, strict=True)
    ]


def _name(headers: list[dict[str, Any]] | None) -> str:
    return next((plain(one["value"]) or "" for one in headers or () if one["key"] == NAME), "")


class Lake:
    """`url`: a folder or a URL that delta-rs takes."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.options = dict(options or {})

    def table(self, folder: str, partition: int) -> DeltaTable:
        return DeltaTable(f"{self.url}/{folder}/{partition}", storage_options=self.options or None)

    def topics(self) -> list[dict[str, Any]]:
        """The newest value of each key of the catalog, of topics that are not deleted."""
        newest: dict[str, str | None] = {}
        for _, key, value, _ in table_rows(self.table("topics/__cluster_metadata", 0)):
            assert key is not None
            newest[key] = value
        found = []
        for key, value in newest.items():
            name = json.loads(key)
            if name["type"] == "topic" and value is not None:
                found.append({"name": name["name"], "id": name["id"], **json.loads(value)})
        return [topic for topic in found if topic["deleted_ms"] is None and not topic["internal"]]

    def stored(self) -> dict[Place, Stored]:
        """Every partition; one of a topic that was made again is named `<topic>@<topic id>`."""
        found = {}
        for topic in self.topics():
            again = "~" in topic["folder"].rpartition("/")[2] or topic["name"].startswith("again")
            label = f"{topic['name']}@{topic['id']}" if again else topic["name"]
            compacted = "compact" in topic["configs"].get("cleanup.policy", "")
            trims = "retention.bytes" in topic["configs"]
            for partition in range(topic["partitions"][-1]):
                found[label, partition] = self._stored(topic["folder"], partition, compacted, trims)
        return found

    def _stored(self, folder: str, partition: int, compacted: bool, trims: bool) -> Stored:
        try:
            table = self.table(folder, partition)
        except TableNotFoundError:
            return Stored({}, compacted=compacted, trims=trims)  # nothing was ever appended to it
        start, end = (table.transaction_version(name) or 0 for name in ("sluice.start", "sluice.end"))
        return stored_of(table_rows(table, start), start, end, compacted=compacted, trims=trims)

    def committed(self) -> dict[str, list[list[Any]]]:
        """What the groups have committed, as the topic of their offsets has it: topic, partition, offset."""
        try:
            rows = table_rows(self.table("topics/__consumer_offsets", 0))
        except TableNotFoundError:
            return {}
        newest = {key: value for _, key, value, _ in rows if key is not None}
        found: dict[str, list[list[Any]]] = {}
        for key, value in newest.items():
            what = json.loads(key)
            if what["type"] == "offset" and value is not None:
                at = json.loads(value)["offset"]
                found.setdefault(what["group"], []).append([what["topic"], what["partition"], at])
        return found


def stored_of(
    rows: Sequence[tuple[int, str | None, Value, str]], start: int, end: int, *, compacted: bool, trims: bool
) -> Stored:
    counts = Counter(offset for offset, *_ in rows)
    return Stored(
        {offset: (key, value) for offset, key, value, _ in rows},
        start,
        end,
        compacted,
        trims,
        tombstones={offset: name for offset, _, value, name in rows if value is None},
        twice=sorted(offset for offset, count in counts.items() if count > 1),
    )


def set_aside(wal: Path) -> Iterator[str]:
    """Values in files that recovery cut from a write-ahead log: they hold the records as they were sent."""
    for path in wal.parent.glob(f"{wal.name}*/cut/*.wal"):
        for value in _VALUE.findall(path.read_bytes()):
            yield value.decode()


def copied(table: Path) -> list[tuple[str, int, int, Value]]:
    """What the consumer job wrote to a Delta table."""
    if not (table / "_delta_log").exists():
        return []
    query = "select __topic, __partition, __offset, value from t"
    found = pa.table(QueryBuilder().register("t", DeltaTable(str(table))).execute(query).read_all()).to_pylist()
    return [
        (row["__topic"], row["__partition"], row["__offset"], plain(row["value"]) if row["value"] else None)
        for row in found
    ]
