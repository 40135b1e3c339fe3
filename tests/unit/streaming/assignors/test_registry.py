from __future__ import annotations

import pytest

from sluice.log_store.errors import InvalidRequest
from sluice.streaming.assignors import MAX_PARTITIONS, Strategy, assign, strategy_named
from tests.support.assignors import members


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_strategies_have_kafkas_names(name: str):
    assert strategy_named(name).value == name


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(InvalidRequest, match=r"'uniform' is none of range, roundrobin, sticky, cooperative-sticky"):
        strategy_named("uniform")


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"t": -1}, "topic 't' has -1 partitions"),
        ({"t": MAX_PARTITIONS, "u": 1}, "1000001 partitions in total; at most 1000000"),
        ({"unused": 10**30}, "at most 1000000"),
    ],
)
def test_impossible_counts_are_refused_before_any_work(counts: dict[str, int], message: str):
    with pytest.raises(InvalidRequest, match=message):
        assign(Strategy.RANGE, counts, members({"c": "t"}))


def test_a_member_id_given_twice_is_refused():
    with pytest.raises(InvalidRequest, match="same member id"):
        assign(Strategy.RANGE, {"t": 1}, [*members({"c": "t"}), *members({"c": "t"})])
