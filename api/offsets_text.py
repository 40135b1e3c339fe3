"""The offsets of many records as JSON, by numpy: a request of a thousand records is answered with a thousand objects.

Making each of them, only to write it, takes as long as it took to parse the record.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from sluice.ingest.request import Int64s

_HEAD, _MIDDLE, _TAIL = b'{"partition":', b',"offset":', b',"error_code":null,"error":null},'
_FEW = 200
"""Records below which numpy's calls take longer than to make the objects."""
_UNEVEN = 4
"""Digits between the shortest and the longest number from which on it does, too: each of them is another call."""


class RecordOffset(msgspec.Struct, gc=False):
    partition: int
    offset: int
    error_code: int | None = None
    error: str | None = None


def _numbers(digits: int) -> np.ndarray[Any, np.dtype[Any]]:
    """All numbers of so many digits, each as one element that has the bytes of its text."""
    return np.frombuffer(b"".join(b"%0*d" % (digits, number) for number in range(10**digits)), f"u{digits}")


_TEXTS = {digits: _numbers(digits) for digits in (4, 2, 1)}
"""Numbers are written from the right, as many digits at a time as numpy has elements for."""


def offsets_list(partitions: Int64s, offsets: Int64s) -> bytes:
    """`[{"partition":p,"offset":o,"error_code":null,"error":null},…]`

    Where there are many, all are of one length: shorter numbers have blanks in front of them, which JSON allows.
    """
    count = len(offsets)
    if count < _FEW or int(partitions.min()) < 0 or int(offsets.min()) < 0:
        return _by_msgspec(partitions, offsets)
    wide, wider = _width(partitions), _width(offsets)
    if wider - len(str(int(offsets.min()))) >= _UNEVEN:
        return _by_msgspec(partitions, offsets)
    row = b"".join((_HEAD, b" " * wide, _MIDDLE, b" " * wider, _TAIL))
    text = bytearray(b"[" + row * count)
    end = 1 + len(_HEAD) + wide
    _write(text, end, len(row), wide, partitions)
    _write(text, end + len(_MIDDLE) + wider, len(row), wider, offsets)
    text[-1] = ord("]")
    return bytes(text)


def _by_msgspec(partitions: Int64s, offsets: Int64s) -> bytes:
    return msgspec.json.encode(list(map(RecordOffset, partitions.tolist(), offsets.tolist())))


def _width(numbers: Int64s) -> int:
    return len(str(int(numbers.max())))


def _write(text: bytearray, end: int, step: int, width: int, numbers: Int64s) -> None:
    """Each number so that it ends at its row's `end`, with as many digits as the longest has."""
    left, rest = width, numbers
    while left:
        digits = 4 if left >= 4 else 2 if left >= 2 else 1
        higher = rest // 10**digits
        low = rest - higher * 10**digits
        left -= digits
        _column(text, end - width + left, step, len(numbers), f"u{digits}")[:] = _TEXTS[digits][low]
        rest = higher
    least = int(numbers.min())
    for place in range(width - 1):
        bound = 10 ** (width - 1 - place)
        if least >= bound:
            return
        _column(text, end - width + place, step, len(numbers), "u1")[numbers < bound] = ord(" ")


def _column(text: bytearray, at: int, step: int, count: int, kind: str) -> np.ndarray[Any, np.dtype[Any]]:
    return np.ndarray((count,), kind, text, at, (step,))
