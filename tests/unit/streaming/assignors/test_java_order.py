"""The orders against what a Java virtual machine printed."""

from __future__ import annotations

import pytest

from sluice.streaming.assignors.java_order import HashSet, in_table_order, partition_hash, string_hash


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("é", 233),
        ("\U0001f600", 1_772_899),
        ("consumer1", 3_873_962_747),
        ("consumer-group-1-9f2c", 63_651_359),
    ],
)
def test_the_hash_of_a_string(name: str, expected: int):
    assert string_hash(name) == expected


@pytest.mark.parametrize(
    ("prefix", "numbers", "expected"),
    [
        ("consumer", range(1, 5), [4, 3, 2, 1]),
        ("c", range(1, 4), [3, 1, 2]),
        ("m", range(12), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10]),
        ("m", range(13), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10, 12]),
        ("consumer-", range(1, 15), [11, 10, 6, 5, 4, 3, 2, 13, 1, 12, 14, 9, 8, 7]),
    ],
)
def test_the_order_of_names_in_a_table(prefix: str, numbers: range, expected: list[int]):
    names = [f"{prefix}{number}" for number in numbers]
    assert in_table_order(names) == [f"{prefix}{number}" for number in expected]
    assert in_table_order(reversed(names)) == in_table_order(names)


def test_names_of_one_slot_come_in_one_order():
    assert string_hash("Aa") == string_hash("BB")
    assert in_table_order(["BB", "Aa"]) == in_table_order(["Aa", "BB"]) == ["Aa", "BB"]


@pytest.mark.parametrize(("count", "removed", "first"), [(3, 0, 0), (12, 0, 7), (13, 0, 7), (20, 0, 7), (20, 18, 18)])
def test_the_first_of_a_set(count: int, removed: int, first: int):
    numbers = HashSet()
    for number in range(count):
        numbers.add(number, partition_hash(string_hash("orders"), number))
    for number in range(removed):
        numbers.remove(number)
    assert numbers.first() == first
    assert len(numbers) == count - removed
