"""The window of one producer in one partition, and the rules that judge a batch against it.

Partition mode is Kafka's, rule by rule. Topic mode is R-9's, as far as a single
partition can judge it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.log_store.errors import CorruptData, InvalidProducerEpoch, InvalidRequest, OutOfOrderSequence
from sluice.log_store.values import ProducerStamp

WINDOW = 5
MAX_EPOCH = 2**15 - 1
MAX_SEQUENCE = 2**31 - 1
"""Partition mode wraps to 0 after this, as Kafka does."""
MAX_REQUEST_SEQUENCE = 2**63 - 1
"""Topic mode never wraps: at 1,000 requests a second 2^31 would last 25 days, this lasts for ever."""


@dataclass(frozen=True, slots=True)
class WindowEntry:
    """One appended batch. `partitions` is 0 in partition mode, else the n the request was placed with."""

    sequence: int
    count: int
    base_offset: int
    append_ms: int
    partitions: int = 0
    crc: int = 0
    body_count: int = 0

    @property
    def last_sequence(self) -> int:
        if self.partitions:
            return self.sequence
        return (self.sequence + self.count - 1) % (MAX_SEQUENCE + 1)

    def same_batch(self, other: WindowEntry) -> bool:
        """Equal in all that the client sent; the time of append may be known less exactly after a replay."""
        return replace(self, append_ms=0) == replace(other, append_ms=0)


@dataclass(frozen=True, slots=True)
class ProducerWindow:
    """The last batches of one producer, oldest sequence first; never empty."""

    epoch: int
    entries: tuple[WindowEntry, ...]
    last_ms: int

    @property
    def newest_offset(self) -> int:
        # Not entries[-1]: a completion of an earlier request has a low sequence and a high offset.
        return max(entry.base_offset for entry in self.entries)

    def find(self, sequence: int) -> WindowEntry | None:
        return next((entry for entry in self.entries if entry.sequence == sequence), None)


def validate(stamp: ProducerStamp, count: int) -> None:
    highest = MAX_REQUEST_SEQUENCE if stamp.topic_mode else MAX_SEQUENCE
    if stamp.producer_id < 0:
        raise InvalidRequest(f"producer id {stamp.producer_id} is negative", producer_id=stamp.producer_id)
    if not 0 <= stamp.epoch <= MAX_EPOCH:
        raise InvalidRequest(f"producer epoch {stamp.epoch} is not in 0..{MAX_EPOCH}", epoch=stamp.epoch)
    if not 0 <= stamp.sequence <= highest:
        raise InvalidRequest(f"sequence {stamp.sequence} is not in 0..{highest}", sequence=stamp.sequence)
    if count < 1:
        raise InvalidRequest("an idempotent batch needs at least one record", count=count)
    if stamp.topic_mode and stamp.partitions < 1:
        raise InvalidRequest("a topic-mode stamp needs the number of partitions", partitions=stamp.partitions)


def check_batch(window: ProducerWindow, stamp: ProducerStamp, count: int, now_ms: int) -> WindowEntry | None:
    """Kafka's rules for one partition; the epoch is known not to be lower."""
    if stamp.epoch > window.epoch:
        if stamp.sequence != 0:
            raise out_of_order(stamp, expected=0, idle_ms=now_ms - window.last_ms)
        return None
    entry = window.find(stamp.sequence)
    if entry is not None and entry.count == count:
        return entry
    expected = _next_sequence(window)
    if stamp.sequence != expected:
        raise out_of_order(stamp, expected=expected, idle_ms=now_ms - window.last_ms)
    return None


def check_request(window: ProducerWindow, stamp: ProducerStamp, now_ms: int, completing: bool) -> WindowEntry | None:
    """One partition's part of a request (R-9). A gap is normal: other requests went to other partitions."""
    if stamp.epoch > window.epoch:
        return None  # "starts at 0" holds for the topic; this partition may get a later request first
    entry = window.find(stamp.sequence)
    if entry is not None:
        refuse_other_body(stamp, entry.crc, entry.body_count)
        if entry.partitions != stamp.partitions:
            raise InvalidRequest(
                f"sequence {stamp.sequence} was placed over {entry.partitions} partitions, not {stamp.partitions}",
                sequence=stamp.sequence,
            )
        return entry
    if stamp.sequence > window.entries[-1].sequence:
        return None
    # Below a full window nobody can tell whether the request was here: refuse rather than append twice.
    if completing and not _below_full(window, stamp.sequence):
        return None
    expected = window.entries[-1].sequence + 1
    raise out_of_order(stamp, expected=expected, idle_ms=now_ms - window.last_ms)


def refuse_lower_epoch(stamp: ProducerStamp, known: int) -> None:
    if stamp.epoch < known:
        raise InvalidProducerEpoch(
            f"producer {stamp.producer_id} has epoch {known}, the batch carries {stamp.epoch}",
            producer_id=stamp.producer_id,
            epoch=stamp.epoch,
            current_epoch=known,
        )


def refuse_other_body(stamp: ProducerStamp, crc: int, body_count: int) -> None:
    if (stamp.crc, stamp.body_count) != (crc, body_count):
        raise InvalidRequest(
            f"sequence {stamp.sequence} of producer {stamp.producer_id} was used for another request body",
            producer_id=stamp.producer_id,
            sequence=stamp.sequence,
        )


def out_of_order(stamp: ProducerStamp, expected: int, idle_ms: int | None = None) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"producer {stamp.producer_id} epoch {stamp.epoch}: sequence {stamp.sequence}, expected {expected}",
        producer_id=stamp.producer_id,
        epoch=stamp.epoch,
        sequence=stamp.sequence,
        expected=expected,
        idle_ms=idle_ms,
    )


def _next_sequence(window: ProducerWindow) -> int:
    return (window.entries[-1].last_sequence + 1) % (MAX_SEQUENCE + 1)


def _below_full(window: ProducerWindow, sequence: int) -> bool:
    return len(window.entries) >= WINDOW and sequence < window.entries[0].sequence


def appended(window: ProducerWindow | None, stamp: ProducerStamp, entry: WindowEntry) -> ProducerWindow:
    if window is None:
        return ProducerWindow(stamp.epoch, (entry,), entry.append_ms)
    # Offsets only rise, so a batch at or below the newest one is a replay of something already counted.
    if entry.base_offset <= window.newest_offset:
        _refuse_other_batch(window, stamp, entry)
        return window
    last_ms = max(window.last_ms, entry.append_ms)
    if stamp.epoch != window.epoch or _starts_over(window, stamp):
        return ProducerWindow(stamp.epoch, (entry,), last_ms)
    entries = (*window.entries, entry)
    if stamp.topic_mode:  # a completion comes late; partition mode wraps, so its order is that of arrival
        entries = tuple(sorted(entries, key=lambda e: e.sequence))
    return ProducerWindow(stamp.epoch, entries[-WINDOW:], last_ms)


def _starts_over(window: ProducerWindow, stamp: ProducerStamp) -> bool:
    """A batch that `check` would have refused is in the log: the producer had expired before it came."""
    if stamp.topic_mode:
        return window.find(stamp.sequence) is not None or _below_full(window, stamp.sequence)
    return stamp.sequence != _next_sequence(window)


def _refuse_other_batch(window: ProducerWindow, stamp: ProducerStamp, entry: WindowEntry) -> None:
    stored = next((e for e in window.entries if e.base_offset == entry.base_offset), None)
    if stored is not None and (stamp.epoch != window.epoch or not stored.same_batch(entry)):
        raise CorruptData(
            f"producer {stamp.producer_id}: two batches claim offset {entry.base_offset}", offset=entry.base_offset
        )
