"""Names of groups, members and instances, and the partition of `__consumer_offsets` a group lives in."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from sluice.log_store.errors import InvalidGroupId

MAX_ID_LENGTH = 249
OFFSETS_PARTITIONS = 50
KNOWN = 8_192
"""Names remembered: each request of a member names its group, and looks at every character of it."""


def validate_group_id(group_id: str) -> str:
    """Any text that people can read: a group id is never part of a path."""
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    fault = id_fault(group_id)
    if fault:
        raise InvalidGroupId(f"the group id {fault}")
    return group_id


@lru_cache(maxsize=KNOWN)
def id_fault(text: str) -> str | None:
    """What is wrong with a name; None when nothing is."""
    if len(text) > MAX_ID_LENGTH:
        return f"has {len(text)} characters; at most {MAX_ID_LENGTH} are allowed"
    # Half a surrogate pair (Cs) cannot be stored as UTF-8.
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in text):
        return "has a control character or half a surrogate pair"
    return None


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, in 32 signed bits."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] | units[at + 1] << 8)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=KNOWN)
def partition_of_group(group_id: str, partitions: int = OFFSETS_PARTITIONS) -> int:
    """Kafka's choice. Its `abs` makes 0 of the one number that has no positive twin."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
