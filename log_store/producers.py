"""Idempotent producers: which batch is new, which is a repeat, which must be refused.

`ProducerWindows` holds the last five batches of every producer of one partition. Partition mode follows
Kafka's rules to the letter; topic mode (R-9) counts requests, of which a partition sees only some, so
its density is judged by `TopicWindows`, the view across all partitions of a topic.

Nothing here knows a clock or a file: `check` asks, `record` remembers, and a replay of `record` in offset
order rebuilds the same state after a crash.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluice.log_store.errors import CorruptData, InvalidRequest
from sluice.log_store.producer_window import (
    MAX_EPOCH,
    MAX_REQUEST_SEQUENCE,
    MAX_SEQUENCE,
    WINDOW,
    ProducerWindow,
    WindowEntry,
    appended,
    check_batch,
    check_request,
    out_of_order,
    refuse_lower_epoch,
    refuse_other_body,
    validate,
)
from sluice.log_store.values import TOPIC_MODE_BIT, ProducerStamp

__all__ = [
    "MAX_EPOCH",
    "MAX_REQUEST_SEQUENCE",
    "MAX_SEQUENCE",
    "WINDOW",
    "BelowWindow",
    "Fresh",
    "ProducerWindow",
    "ProducerWindows",
    "Repeat",
    "RequestEntry",
    "TopicWindows",
    "WindowEntry",
    "null_key_start",
]


class ProducerWindows:
    """The windows of one partition, by producer id. The caller serialises access, as for the partition."""

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._windows: dict[int, ProducerWindow] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._windows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerWindows) and self._windows == other._windows

    __hash__ = None  # type: ignore[assignment]  # mutable

    def get(self, producer_id: int) -> ProducerWindow | None:
        return self._windows.get(producer_id)

    def check(self, stamp: ProducerStamp, count: int, now_ms: int, *, completing: bool = False) -> WindowEntry | None:
        """None to append; the stored entry for an exact repeat; an error otherwise. Changes nothing.

        `now_ms` only tells the refused client how long it was silent. It never expires a producer here:
        a wall clock that jumps ahead must not turn a retry into a second append (R-13), so only
        `expire`, which the caller may pause, forgets.

        `completing` marks a topic-mode request that `TopicWindows` found to be missing here.
        """
        validate(stamp, count)
        window = self._windows.get(stamp.producer_id)
        if window is None:
            return None
        refuse_lower_epoch(stamp, window.epoch)
        if stamp.topic_mode:
            return check_request(window, stamp, now_ms, completing)
        return check_batch(window, stamp, count, now_ms)

    def record(self, stamp: ProducerStamp, count: int, base_offset: int, append_ms: int) -> ProducerWindow | None:
        """Remember an accepted batch; answers the window as it was before, for `forget`.

        Replaying what is already known, in any overlap, changes nothing.
        """
        entry = WindowEntry(
            stamp.sequence, count, base_offset, append_ms, stamp.partitions, stamp.crc, stamp.body_count
        )
        before = self._windows.get(stamp.producer_id)
        self._windows[stamp.producer_id] = appended(before, stamp, entry)
        return before

    def forget(self, stamp: ProducerStamp, base_offset: int, before: ProducerWindow | None) -> None:
        """Withdraw the producer's newest batch, which never got into the log: the exact inverse of `record`.

        `before` is what `record` answered: without it the entry that fell out of the window, or the epoch that
        was given up, could not come back. Several withdrawals go newest first.
        """
        window = self._windows.get(stamp.producer_id)
        if window is None or window.epoch != stamp.epoch or window.newest_offset != base_offset:
            raise ValueError(f"{stamp} at offset {base_offset} is not the newest batch of its producer")
        if before is None:
            del self._windows[stamp.producer_id]
        else:
            self._windows[stamp.producer_id] = before

    def active(self, now_ms: int) -> frozenset[int]:
        """Topic-mode producers that are not yet due to expire here."""
        return frozenset(
            pid for pid, window in self._windows.items() if pid & TOPIC_MODE_BIT and not self._due(window, now_ms)
        )

    def expire(self, now_ms: int, keep: Collection[int] = ()) -> int:
        """Forget producers that were silent for the expiration time; answers how many.

        `keep` is the union of `active` over the topic's partitions: a topic-mode producer expires in all of
        them together, or a repeat would find its request missing where it was merely forgotten.
        """
        due = [pid for pid, window in self._windows.items() if self._due(window, now_ms) and pid not in keep]
        for pid in due:
            del self._windows[pid]
        return len(due)

    def _due(self, window: ProducerWindow, now_ms: int) -> bool:
        return now_ms - window.last_ms >= self._expiration_ms

    def copy(self) -> ProducerWindows:
        twin = ProducerWindows(self._expiration_ms)
        twin._windows = dict(self._windows)
        return twin

    def to_json(self) -> list[Any]:
        """`[[producer id, epoch, last ms, [[sequence, count, offset, ms(, n, crc, body count)], …]], …]`."""
        return [
            [pid, window.epoch, window.last_ms, [_entry_to_json(entry) for entry in window.entries]]
            for pid, window in sorted(self._windows.items())
        ]

    @classmethod
    def from_json(cls, data: list[Any], expiration_ms: int) -> ProducerWindows:
        windows = cls(expiration_ms)
        try:
            for pid, epoch, last_ms, rows in data:
                entries = tuple(WindowEntry(*row) for row in rows)
                if not entries or not all(isinstance(cell, int) for row in rows for cell in row):
                    raise ValueError(f"entries of producer {pid}")
                windows._windows[int(pid)] = ProducerWindow(int(epoch), entries, int(last_ms))
        except (TypeError, ValueError) as e:
            raise CorruptData(f"stored producer windows are damaged: {e}") from e
        return windows


def _entry_to_json(entry: WindowEntry) -> list[int]:
    row = [entry.sequence, entry.count, entry.base_offset, entry.append_ms]
    return [*row, entry.partitions, entry.crc, entry.body_count] if entry.partitions else row


# --- one topic, all partitions (R-9) -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestEntry:
    """A topic-mode request as far as it got: `parts` maps partition to (base offset, count)."""

    sequence: int
    partitions: int
    crc: int
    body_count: int
    parts: Mapping[int, tuple[int, int]]

    def restamp(self, stamp: ProducerStamp) -> ProducerStamp:
        """The repeat's stamp with the n of the first try: the topic may have grown in between."""
        return replace(stamp, partitions=self.partitions)


@dataclass(frozen=True, slots=True)
class Fresh:
    """The next request of its producer: append all of it."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One of the last five: answer `entry.parts`, append (`completing=True`) only what is missing there.

    Parts are empty when the request failed everywhere, or was lost by a crash, while a later one went through.
    """

    entry: RequestEntry


@dataclass(frozen=True, slots=True)
class BelowWindow:
    """Older than the last five: answer `duplicate: true`, offset -1, append nothing."""


@dataclass(slots=True)
class _Requests:
    epoch: int
    by_sequence: dict[int, RequestEntry]


class TopicWindows:
    """The requests of a topic's topic-mode producers.

    Always derivable from the partitions' windows: after a withdrawal or an expiry, `merge` anew. A request
    in the last five sequences is in the last five of every partition it reached, so nothing is lost.
    """

    def __init__(self) -> None:
        self._producers: dict[int, _Requests] = {}

    @classmethod
    def merge(cls, per_partition: Mapping[int, ProducerWindows]) -> TopicWindows:
        merged = cls()
        for partition, windows in sorted(per_partition.items()):
            for pid in windows:
                window = windows.get(pid)
                if window is None or not pid & TOPIC_MODE_BIT:
                    continue
                for e in window.entries:
                    stamp = ProducerStamp(pid, window.epoch, e.sequence, e.partitions, e.crc, e.body_count)
                    merged.record(stamp, partition, e.base_offset, e.count)
        return merged

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicWindows) and self._producers == other._producers

    __hash__ = None  # type: ignore[assignment]  # mutable

    def check(self, stamp: ProducerStamp) -> Fresh | Repeat | BelowWindow:
        validate(stamp, count=stamp.body_count)
        if not stamp.topic_mode:
            raise InvalidRequest(f"producer {stamp.producer_id} was created for partition mode")
        known = self._producers.get(stamp.producer_id)
        if known is None:
            return Fresh()
        refuse_lower_epoch(stamp, known.epoch)
        expected = 0 if stamp.epoch > known.epoch else max(known.by_sequence) + 1
        if stamp.sequence == expected:
            return Fresh()
        if stamp.epoch > known.epoch or stamp.sequence > expected:
            raise out_of_order(stamp, expected)
        return _check_repeat(known, stamp, expected)

    def record(self, stamp: ProducerStamp, partition: int, base_offset: int, count: int) -> None:
        """A part of the request was accepted by a partition. Repeating it changes nothing."""
        known = self._producers.get(stamp.producer_id)
        if known is None or stamp.epoch > known.epoch:
            known = self._producers[stamp.producer_id] = _Requests(stamp.epoch, {})
        if stamp.epoch < known.epoch:
            return
        requests = known.by_sequence
        # Should partitions ever disagree about a body, the lowest one is believed: the producer is then refused.
        entry = requests.get(stamp.sequence) or RequestEntry(
            stamp.sequence, stamp.partitions, stamp.crc, stamp.body_count, {}
        )
        requests[stamp.sequence] = replace(entry, parts={**entry.parts, partition: (base_offset, count)})
        oldest = max(requests) - WINDOW + 1
        for sequence in [s for s in requests if s < oldest]:
            del requests[sequence]


def _check_repeat(known: _Requests, stamp: ProducerStamp, expected: int) -> Repeat | BelowWindow:
    if stamp.sequence < expected - WINDOW:
        return BelowWindow()
    entry = known.by_sequence.get(stamp.sequence)
    if entry is None:
        # Also before the first one that is known: a crash may have left later ones, on other partitions, that were in
        # flight with it. Only who waits for a week and then repeats behind a newer request could get it twice.
        return Repeat(RequestEntry(stamp.sequence, stamp.partitions, stamp.crc, stamp.body_count, {}))
    refuse_other_body(stamp, entry.crc, entry.body_count)
    return Repeat(entry)


def null_key_start(producer_id: int, sequence: int, n: int) -> int:
    """Partition of the first null-key record of a request; the following ones go round from there.

    CRC-32 of both numbers as big-endian int64: a repeat, also from another process or version, must land on
    the same partitions, so neither a random start nor Python's seeded `hash` will do.
    """
    return zlib.crc32(struct.pack(">qq", producer_id, sequence)) % n
