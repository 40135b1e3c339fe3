"""Which partition a record goes to: the one asked for, else Kafka's hash of its key, else the next in turn.

Pure and columnar. Keys keep the partition they had in Kafka: the same murmur2, made positive, modulo n.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from sluice.ingest.request import NOT_GIVEN, Bools, Int32s, Int64s
from sluice.log_store.errors import UnknownTopicOrPartition

Words = np.ndarray[Any, np.dtype[np.uint32]]

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_MASK = 0xFFFFFFFF
_WORD = struct.Struct("<I")
_FEW = 16
"""Keys below which a plain loop over their words beats one over numpy's calls."""
_SHORT = 4096
_BLOCK = 1024
"""Words per key that are planned at once."""


class Part(NamedTuple):
    batch: pa.RecordBatch
    indices: Int64s
    """Place of each record in the request."""


# --- murmur2 -----------------------------------------------------------------------------------


def murmur2(keys: pa.Array) -> Int32s:
    """Kafka's `Utils.murmur2` of every key of a binary column; that of null is that of no bytes.

    Word by word over all keys at once, the longest keys in front, so that those which still have a word are always
    a prefix. The work is one pass over the bytes, whatever the mixture of lengths. A key of many kilobytes is slow
    (60 ns a word): check sizes first.
    """
    if len(keys) < _FEW and keys.nbytes < _SHORT:
        return np.array([murmur2_of(key or b"") for key in keys.to_pylist()], np.uint32).view(np.int32)
    starts, lengths, data = _layout(keys)
    longest = int(lengths.max())
    order = None if int(lengths.min()) == longest else _longest_first(lengths, longest)
    if order is not None:
        starts, lengths = starts[order], lengths[order]
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    _mix_words(hashes, starts, lengths >> 2, data)
    _mix_tails(hashes, starts, lengths, data)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    if order is None:
        return hashes.view(np.int32)
    found = np.empty(len(hashes), np.int32)
    found[order] = hashes.view(np.int32)
    return found


def murmur2_of(key: bytes) -> int:
    """The same of one key, as an unsigned number: a request of a few records is done sooner without numpy."""
    m, whole = int(_M), len(key) & ~3
    value = _SEED ^ len(key)
    for (word,) in _WORD.iter_unpack(key[:whole]):
        mixed = word * m & _MASK
        value = (value * m & _MASK) ^ ((mixed ^ (mixed >> 24)) * m & _MASK)
    if whole != len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * m & _MASK
    value = (value ^ (value >> 13)) * m & _MASK
    return value ^ (value >> 15)


def _layout(keys: pa.Array) -> tuple[Int64s, Int64s, Words]:
    """Start and length of each key, and the word that begins at each byte: four bytes, little-endian, unaligned."""
    _, ends, data = keys.buffers()
    offsets = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # A copy of the keys alone, with room for the word that begins at the last byte.
    text = np.zeros(last - first + 4, np.uint8)
    if last > first:
        text[:-4] = np.frombuffer(data, np.uint8)[first:last]
    words: Words = np.ndarray(last - first + 1, np.dtype("<u4"), text.data, strides=(1,))
    lengths = np.diff(offsets)
    if keys.null_count:
        lengths[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return offsets[:-1] - first, lengths, words


def _longest_first(lengths: Int64s, longest: int) -> Int64s:
    narrow = np.uint16 if longest < 1 << 16 else np.int64  # numpy sorts 16 bits by radix
    return np.argsort((longest - lengths).astype(narrow), kind="stable")


def _mix_words(hashes: Words, starts: Int64s, counts: Int64s, data: Words) -> None:
    """All whole words of all keys; `counts` falls."""
    falling, most, cursors = -counts, int(counts[0]), starts.copy()
    for begin in range(0, most, _BLOCK):
        numbers = np.arange(begin, min(begin + _BLOCK, most))
        for number, keys in zip(numbers.tolist(), _alive(falling, numbers), strict=True):
            if keys < _FEW < number:
                _finish_few(hashes, starts, counts, data, number, keys)
                return
            part, at = hashes[:keys], cursors[:keys]
            part *= _M
            part ^= _scrambled(data[at])
            at += 4


def _alive(falling: Int64s, numbers: Int64s) -> list[int]:
    """How many keys have a word of each number."""
    alive: list[int] = np.searchsorted(falling, -(numbers + 1), side="right").tolist()
    return alive


def _scrambled(words: Words) -> Words:
    words *= _M
    words ^= words >> np.uint32(24)
    words *= _M
    return words


def _finish_few(hashes: Words, starts: Int64s, counts: Int64s, data: Words, number: int, keys: int) -> None:
    for key in range(keys):
        start, count = int(starts[key]), int(counts[key])
        words = _scrambled(data[start + 4 * number : start + 4 * count : 4].copy())
        value, m = int(hashes[key]), int(_M)
        for word in words.tolist():
            value = (value * m & _MASK) ^ word
        hashes[key] = value


def _mix_tails(hashes: Words, starts: Int64s, lengths: Int64s, data: Words) -> None:
    left = lengths & 3
    keys = np.flatnonzero(left)
    if len(keys):
        left = left[keys]
        tails = data[starts[keys] + lengths[keys] - left] & ((1 << 8 * left) - 1).astype(np.uint32)
        hashes[keys] = (hashes[keys] ^ tails) * _M


# --- placement ---------------------------------------------------------------------------------


def assign(batch: pa.RecordBatch, explicit: Int32s | None, n: int, start: int) -> Int32s:
    """The partition of each record, of `n`. Records without key and wish take turns, from `start` on.

    `start` is random for a plain request, and `producers.null_key_start` for an idempotent one to a topic (R-9).
    """
    keys = batch.column("key")
    if explicit is None:
        return _unasked(keys, n, start)
    asked = _checked(explicit, n)
    placed = explicit.copy()
    if not asked.all():
        free = ~asked
        placed[free] = _unasked(keys.filter(pa.array(free)), n, start)
    return placed


def _unasked(keys: pa.Array, n: int, start: int) -> Int32s:
    """By key; those without one take turns among themselves."""
    if keys.null_count == len(keys):
        return _in_turn(len(keys), n, start)
    placed: Int32s = (murmur2(keys) & 0x7FFFFFFF) % np.int32(n)
    if keys.null_count:
        placed[keys.is_null().to_numpy(zero_copy_only=False)] = _in_turn(keys.null_count, n, start)
    return placed


def _in_turn(count: int, n: int, start: int) -> Int32s:
    return ((np.arange(count, dtype=np.int64) + start) % n).astype(np.int32)


def _checked(explicit: Int32s, n: int) -> Bools:
    """True where a partition is asked for; one that the topic does not have is refused."""
    asked: Bools = explicit != NOT_GIVEN
    wrong = np.flatnonzero(asked & ((explicit < 0) | (explicit >= n)))
    if len(wrong):
        index = int(wrong[0])
        raise UnknownTopicOrPartition(
            f"records[{index}].partition: must be from 0 to {n - 1}, not {int(explicit[index])}",
            field=f"records[{index}].partition",
            index=index,
        )
    return asked


def split(batch: pa.RecordBatch, partitions: Int32s) -> Mapping[int, Part]:
    """One batch per partition that gets any, in the order of the request. One partition alone costs no copy."""
    if not len(partitions):
        return {}
    first = int(partitions[0])
    if bool((partitions == first).all()):
        return {first: Part(batch, np.arange(len(partitions)))}
    largest = int(partitions.max())
    order = np.argsort(partitions.astype(np.uint16) if largest < 1 << 16 else partitions, kind="stable")
    ordered = partitions[order]
    sorted_batch = _taken(batch, pa.array(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    return {
        int(ordered[low]): Part(sorted_batch.slice(low, high - low), order[low:high]) for low, high in pairwise(bounds)
    }


def _taken(batch: pa.RecordBatch, order: pa.Array) -> pa.RecordBatch:
    # Nulls look the same in any order, and most records have neither key nor headers.
    columns = [column if column.null_count == len(column) else column.take(order) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
