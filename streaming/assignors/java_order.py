"""The orders that Kafka's assignors get from Java: of strings, and of what lies in a hash table.

Some of Kafka's results depend on the order in which a `HashMap` yields its keys: when a partition more is to be kept by
one of two members, the first one in the table keeps it. That order is fixed, because Java specifies the hash of a
string and every client uses the same table; Kafka's own tests rely on it. Following it gives the same assignment as a
group led by Kafka's client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_SMALLEST_TABLE = 16


def string_key(text: str) -> bytes:
    """Sorts like Java's strings: by UTF-16 unit, which differs from Python's order beyond U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")


def string_hash(text: str) -> int:
    value = 0
    units = string_key(text)
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def partition_hash(topic_hash: int, partition: int) -> int:
    return (31 * (31 + partition) + topic_hash) & 0xFFFFFFFF


def in_table_order(names: Iterable[str]) -> list[str]:
    """Different names in the order in which a `HashMap` filled with them yields them.

    Java puts names of the same slot in the order in which they arrived. Here they come as if they had been numbered,
    c2 before c10, so that the order of the input decides nothing.
    """
    ordered = sorted(names, key=lambda name: (len(name), string_key(name)))
    slots = _table_size(len(ordered))
    return sorted(ordered, key=lambda name: _slot(string_hash(name), slots))


class HashSet:
    """Numbers in the order of a `HashSet` of their hashes. Like Java's it grows and never shrinks."""

    __slots__ = ("_hashes", "_slots")

    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self._slots = _SMALLEST_TABLE

    def add(self, number: int, number_hash: int) -> None:
        self._hashes[number] = number_hash
        self._slots = max(self._slots, _table_size(len(self._hashes)))

    def remove(self, number: int) -> None:
        del self._hashes[number]

    def first(self) -> int:
        return min(self, key=lambda number: _slot(self._hashes[number], self._slots))

    def __iter__(self) -> Iterator[int]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)


def _slot(value: int, slots: int) -> int:
    return (value ^ value >> 16) & (slots - 1)


def _table_size(entries: int) -> int:
    """A table doubles when it is filled to more than three quarters."""
    size = _SMALLEST_TABLE
    while entries > size * 3 // 4:
        size *= 2
    return size
