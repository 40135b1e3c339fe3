"""Names, and the partition a group lives in, against values of a real Java."""

from __future__ import annotations

import pytest

from sluice.log_store.errors import InvalidGroupId
from sluice.streaming.groups.ids import java_hash, partition_of_group, validate_group_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("hello world", 1794106052),
        ("The quick brown fox jumps over the lazy dog", -609428141),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 1772899),  # two UTF-16 units
    ],
)
def test_hash_is_that_of_java(text: str, expected: int):
    assert java_hash(text) == expected


def test_partition_of_a_group():
    assert partition_of_group("abc") == 96354 % 50
    assert partition_of_group("The quick brown fox jumps over the lazy dog") == 609428141 % 50
    assert partition_of_group("hello", partitions=7) == 99162322 % 7


def test_the_number_without_a_positive_twin_is_partition_0():
    assert partition_of_group("polygenelubricants") == 0


@pytest.mark.parametrize("group_id", ["orders", "a/../b", " ", "Gruppe ü", "日本", "😀", "x" * 249, "%00", "a\u200bb"])
def test_any_readable_text_is_a_group_id(group_id: str):
    assert validate_group_id(group_id) == group_id


@pytest.mark.parametrize("group_id", ["", "x" * 250, "a\nb", "a\x00", "\x7f", "a\x85", "\ud800"])
def test_other_text_is_not(group_id: str):
    with pytest.raises(InvalidGroupId):
        validate_group_id(group_id)
