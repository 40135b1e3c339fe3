"""Which batches of Spark sinks a partition holds already: what makes a replayed micro-batch add nothing twice.

A batch of a sink comes in pieces, numbered from 0 and the same at every try; a partition gets the rows of some of them.
For each query the partition remembers the newest (batch, piece) that it holds: whatever is at or below it is a repeat.
`record` in offset order rebuilds the same state after a crash. Nothing here knows a clock or a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import SinkStamp

DAY_MS = 86_400_000
KEPT_MS = 30 * DAY_MS
"""How long a query is remembered after its last batch."""
JOB_KEPT_MS = DAY_MS
JOB_PREFIX = "job-"
"""Ids of single jobs, each used once: they cannot come back later than the retries of their one commit."""
MAX_ID_CHARS = 100
MAX_BATCH = 2**63 - 1
MAX_PARTS = 16_000
"""Of one batch. Its list must fit into one request (8 MiB and 100,000 values; a part has six), and its commit into the
driver's `commit.timeout.ms`: on an object store each part costs two to four calls, one after the other, which is ten to
twenty minutes for so many at 20 ms a call. The service needs about 7 KiB of memory for each, beside the rows."""

_ID = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9._-]{{0,{MAX_ID_CHARS - 1}}}")


class SinkEntry(NamedTuple):
    batch: int
    piece: int
    last_ms: int


class SinkEntries:
    """Of one partition, by query id. The caller serialises access, as for the partition."""

    def __init__(self, entries: Mapping[str, SinkEntry] | None = None) -> None:
        self._entries = dict(entries or {})

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SinkEntries) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]  # mutable

    def get(self, query: str) -> SinkEntry | None:
        return self._entries.get(query)

    def holds(self, stamp: SinkStamp) -> bool:
        entry = self._entries.get(stamp.query)
        return entry is not None and (stamp.batch, stamp.piece) <= entry[:2]

    def record(self, stamp: SinkStamp, append_ms: int) -> None:
        if not self.holds(stamp):
            self._entries[stamp.query] = SinkEntry(stamp.batch, stamp.piece, append_ms)

    def copy(self) -> SinkEntries:
        return SinkEntries(self._entries)

    def expire(self, now_ms: int) -> None:
        """Forget queries that were not heard of for so long. The caller knows whether wall time can be trusted."""
        self._entries = {
            query: entry for query, entry in self._entries.items() if now_ms - entry.last_ms < kept_ms(query)
        }

    def to_json(self) -> dict[str, list[int]]:
        return {query: list(entry) for query, entry in self._entries.items()}

    @classmethod
    def from_json(cls, entries: Mapping[str, list[int]]) -> SinkEntries:
        return cls({query: SinkEntry(*entry) for query, entry in entries.items()})


def kept_ms(query: str) -> int:
    return JOB_KEPT_MS if query.startswith(JOB_PREFIX) else KEPT_MS


def check_query_id(query: str) -> str:
    """The id itself, which is part of paths and of WAL entries; InvalidRequest if it cannot be one."""
    if _ID.fullmatch(query) is None:
        raise InvalidRequest(
            f"query id {query[:40]!r}: must have 1 to {MAX_ID_CHARS} letters, digits, '.', '_' or '-', no '.' first",
            field="query",
        )
    return query


def check_batch_id(batch: int) -> int:
    if not 0 <= batch <= MAX_BATCH:
        raise InvalidRequest(f"batch id {batch}: must be from 0 to {MAX_BATCH}", field="batch")
    return batch
