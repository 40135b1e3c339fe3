"""After a kill the ends of all partitions are what they were, and the probes: nothing less and nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.peers.probes import Probes, wrong_ends
from bench.peers.service import takes

ENDS = st.lists(st.integers(0, 1_000), min_size=1, max_size=8)


@given(ENDS, st.data())
def test_exactly_the_probes_may_be_added(before: list[int], data: st.DataObject):
    added = [data.draw(st.integers(0, 3)) for _ in before]
    probes = Probes(Counter(dict(enumerate(added))))
    after = [end + more for end, more in zip(before, added, strict=True)]
    assert wrong_ends(before, after, probes) is None
    number = data.draw(st.integers(0, len(before) - 1))
    wrong = list(after)
    wrong[number] += data.draw(st.sampled_from([-2, -1, 1, 2]))
    assert f"partition {number} " in str(wrong_ends(before, wrong, probes))


def test_a_lost_record_does_not_hide_behind_a_probe():
    assert wrong_ends([10, 10], [10, 11], Probes(Counter({0: 1, 1: 1}))) == (
        "partition 0 lost records: it ends at 10 instead of 11"
    )


def test_a_lost_record_does_not_hide_behind_one_more_elsewhere():
    assert "lost records" in str(wrong_ends([10, 10], [9, 11], Probes()))


def test_a_probe_without_an_answer_leaves_nothing_proven():
    assert "not answered" in str(wrong_ends([10], [10], Probes(unanswered=1)))


def test_a_partition_less_is_not_overlooked():
    assert wrong_ends([1, 2], [1], Probes()) == "2 partitions became 1"


def answering(*answers: httpx.Response | Exception) -> httpx.Client:
    left = list(answers)

    def handle(_: httpx.Request) -> httpx.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return httpx.Client(transport=httpx.MockTransport(handle), base_url="http://service")


def taken() -> httpx.Response:
    return httpx.Response(200, json={"offsets": [{"partition": 0, "offset": 5, "error_code": None}]})


def test_acknowledged_probes_are_counted_by_partition():
    probes = Probes()
    with answering(taken(), taken()) as client:
        assert takes(client, "orders", 2, probes)
    assert (probes.acknowledged, probes.unanswered) == (Counter({0: 1, 1: 1}), 0)


@pytest.mark.parametrize(
    ("second", "unanswered"),
    [
        (lambda: httpx.Response(503), 0),
        (lambda: httpx.Response(200, json={"offsets": [{"error_code": 50003, "error": "busy"}]}), 0),
        (lambda: httpx.ConnectError("refused"), 0),
        (lambda: httpx.ReadTimeout("silence"), 1),
        (lambda: httpx.RemoteProtocolError("closed"), 1),
    ],
)
def test_only_those_that_were_sent_and_not_answered_are_unknown(
    second: Callable[[], httpx.Response | Exception], unanswered: int
):
    probes = Probes()
    with answering(taken(), second()) as client:
        assert not takes(client, "orders", 3, probes)
    assert (probes.acknowledged, probes.unanswered) == (Counter({0: 1}), unanswered)
