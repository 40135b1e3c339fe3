"""Which offset is the last of each key, by a 128-bit hash of the keys. No Python per record.

Two different keys with one hash would lose a record, so the hash comes with a proof, not with hope. For keys of up to
`LONG_KEY` bytes it is multilinear hashing (Lemire and Kaser): the key is a vector of 32-bit numbers and its length,
each of four independent 32-bit parts is `(m0 + Σ mi·xi mod 2^64) >> 32` with random 64-bit `m`. Such a family is
strongly universal: whatever two different keys somebody chose before the multipliers were drawn, they agree in all
four parts with probability 2^-128 exactly. The multipliers are drawn anew for every cleaning and never leave it, so
nobody can aim at them, and a collision would not come again. A billion keys are 2^59 pairs: 2^-69 for all of them
together, far below the rate at which memory flips bits. Longer keys go through keyed BLAKE2b with 128 bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from sluice.log_store.compaction_tombstones import Int64s

LONG_KEY = 256
"""Bytes from which on a key is hashed by itself: what that costs is little beside its length."""
SLAB_ROWS = 65_536
SLAB_BYTES = 8 * 1024 * 1024
_CHUNK = 8_192  # rows hashed at once: the arrays stay in the processor's cache
_PARTS = 4
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

UInt64s: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
# How many bytes of the last word belong to the key.
_MASKS: UInt64s = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


class Hashed(NamedTuple):
    """Keys that are not null, in the order of their offsets."""

    high: UInt64s
    low: UInt64s
    offsets: Int64s


class KeyHasher:
    def __init__(self, seed: int) -> None:
        """`seed`: 128 random bits, the same in every process that takes part in one cleaning."""
        draw = np.random.Generator(np.random.Philox(key=seed))
        words = LONG_KEY // 4 + 2
        self._multipliers = draw.integers(0, 2**64, size=(words, _PARTS), dtype=np.uint64)
        self._secret = seed.to_bytes(16, "little")

    def of_rows(self, rows: pa.RecordBatch) -> Hashed:
        """Of a batch with the columns `offset` and `key`."""
        offsets: Int64s = rows.column("offset").to_numpy()
        keys = rows.column("key")
        if keys.null_count:
            valid = keys.is_valid()
            keys, offsets = keys.filter(valid), offsets[valid.to_numpy(zero_copy_only=False)]
        high, low = self.of_keys(keys)
        return Hashed(high, low, offsets)

    def of_keys(self, keys: pa.BinaryArray) -> tuple[UInt64s, UInt64s]:
        count = len(keys)
        high: UInt64s = np.empty(count, dtype=np.uint64)
        low: UInt64s = np.empty(count, dtype=np.uint64)
        if not count:
            return high, low
        bounds = np.frombuffer(keys.buffers()[1], np.int32, count + 1, keys.offset * 4).astype(np.int64)
        data = _padded(keys.buffers()[2], int(bounds[0]), int(bounds[-1]))
        starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
        for first in range(0, count, _CHUNK):
            part = slice(first, min(first + _CHUNK, count))
            high[part], low[part] = self._chunk(data, starts[part], lengths[part])
        for at in np.flatnonzero(lengths > LONG_KEY).tolist():
            high[at], low[at] = self._long(keys[at].as_buffer())
        return high, low

    def _chunk(self, data: np.ndarray[Any, Any], starts: Int64s, lengths: Int64s) -> tuple[UInt64s, UInt64s]:
        m = self._multipliers
        sums = [m[0, part] + m[1, part] * lengths.astype(np.uint64) for part in range(_PARTS)]
        words = np.lib.stride_tricks.as_strided(data[:8].view(np.uint64), (len(data) - 7,), (1,))
        for word in range(-(-min(int(lengths.max()), LONG_KEY) // 8)):
            left = lengths - 8 * word
            rows: Any = slice(None) if int(left.min()) > 0 else np.flatnonzero(left > 0)
            taken = words[starts[rows] + 8 * word] & _MASKS[np.minimum(left[rows], 8)]
            lower, upper = taken & _LOW, taken >> _HALF
            for part in range(_PARTS):
                sums[part][rows] += m[2 * word + 2, part] * lower + m[2 * word + 3, part] * upper
        return (sums[0] & ~_LOW) | (sums[1] >> _HALF), (sums[2] & ~_LOW) | (sums[3] >> _HALF)

    def _long(self, key: pa.Buffer) -> tuple[int, int]:
        digest = hashlib.blake2b(key, digest_size=16, key=self._secret).digest()
        return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _padded(data: pa.Buffer | None, start: int, end: int) -> np.ndarray[Any, Any]:
    """The bytes of the keys with room behind the last: words are taken whole and cut afterwards."""
    padded = np.zeros(end - start + 16, dtype=np.uint8)
    if data is not None and end > start:
        padded[: end - start] = np.frombuffer(data, np.uint8, end - start, start)
    return padded


class LastOffsets:
    """The highest offset of each key hash. Rows come in the order of their offsets; 24 bytes for each key."""

    def __init__(self) -> None:
        none: UInt64s = np.empty(0, dtype=np.uint64)
        self._sealed = Hashed(none, none, none.view(np.int64))
        self._pieces: list[Hashed] = []
        self._waiting = 0
        self._ties = 1
        """How many different keys share the same high half, at most."""

    def add(self, piece: Hashed) -> None:
        if not len(piece.offsets):
            return
        self._pieces.append(piece)
        self._waiting += len(piece.offsets)
        if self._waiting > max(4 * SLAB_ROWS, len(self._sealed.offsets)):
            self._seal()

    @property
    def size(self) -> int:
        """Rows that are held, about: a key may still be there more than once."""
        return len(self._sealed.offsets) + self._waiting

    @property
    def rows(self) -> Hashed:
        """One row for each key, in the order of the hashes."""
        self._seal()
        return self._sealed

    def kept(self) -> Int64s:
        return np.sort(self.rows.offsets)

    def holds(self, keys: Hashed) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of these keys have an offset here."""
        high, low, _ = self.rows
        found = np.zeros(len(keys.offsets), dtype=np.bool_)
        if len(high):
            at = np.searchsorted(high, keys.high)
            for step in range(self._ties):
                place = np.minimum(at + step, len(high) - 1)
                found |= (high[place] == keys.high) & (low[place] == keys.low)
        return found

    def _seal(self) -> None:
        if not self._pieces:
            return
        pieces = [self._sealed, *self._pieces]
        self._pieces, self._waiting = [], 0
        high, low, offsets = (np.concatenate(column) for column in zip(*pieces, strict=True))
        # Stable, so that within a key the offsets still rise and the last one wins.
        order = np.argsort(high, kind="stable")
        high, low, offsets = high[order], low[order], offsets[order]
        same_high = high[1:] == high[:-1]
        if bool(np.any(same_high & (low[1:] != low[:-1]))):
            order = np.lexsort((offsets, low, high))
            high, low, offsets = high[order], low[order], offsets[order]
            same_high = high[1:] == high[:-1]
        last = np.append(~(same_high & (low[1:] == low[:-1])), True)
        self._sealed = Hashed(high[last], low[last], offsets[last])
        self._ties = int(np.unique_counts(self._sealed.high).counts.max())


def slabs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger pieces: a file of one row costs as many calls as one of thousands."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= SLAB_ROWS or size >= SLAB_BYTES:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(waiting)
