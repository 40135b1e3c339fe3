from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from sluice.log_store.errors import CorruptData, InvalidProducerEpoch, InvalidRequest, OutOfOrderSequence
from sluice.log_store.producers import (
    MAX_SEQUENCE,
    WINDOW,
    BelowWindow,
    Fresh,
    ProducerWindows,
    Repeat,
    RequestEntry,
    TopicWindows,
    null_key_start,
)
from sluice.log_store.values import ProducerStamp

DAY = 86_400_000
PID, TOPIC_PID = 4, 5


def batch(sequence: int, epoch: int = 0, pid: int = PID) -> ProducerStamp:
    return ProducerStamp(pid, epoch, sequence)


def request(sequence: int, epoch: int = 0, crc: int = 7, n: int = 3, body_count: int = 10) -> ProducerStamp:
    return ProducerStamp(TOPIC_PID, epoch, sequence, n, crc, body_count)


def windows(*appended: tuple[ProducerStamp, int]) -> ProducerWindows:
    """Append the batches one after the other, from offset 0 and time 1000 on."""
    result, offset = ProducerWindows(DAY), 0
    for stamp, count in appended:
        result.record(stamp, count, offset, 1000 + offset)
        offset += count
    return result


class TestPartitionMode:
    def test_unknown_producer_may_start_anywhere(self) -> None:
        assert ProducerWindows(DAY).check(batch(17), 3, 0) is None

    def test_next_sequence_counts_records(self) -> None:
        known = windows((batch(0), 10))
        assert known.check(batch(10), 1, 0) is None

    @pytest.mark.parametrize("back", range(WINDOW))
    def test_exact_repeat_of_the_last_five_answers_its_offset(self, back: int) -> None:
        known = windows(*[(batch(2 * i), 2) for i in range(8)])
        sequence = 2 * (7 - back)
        entry = known.check(batch(sequence), 2, 0)
        assert entry is not None
        assert (entry.base_offset, entry.append_ms) == (sequence, 1000 + sequence)

    def test_repeat_older_than_five_is_out_of_order(self) -> None:
        known = windows(*[(batch(2 * i), 2) for i in range(8)])
        with pytest.raises(OutOfOrderSequence) as refused:
            known.check(batch(4), 2, 2015)
        assert refused.value.fields["expected"] == 16
        assert refused.value.fields["idle_ms"] == 1001

    @pytest.mark.parametrize(("sequence", "count"), [(10, 4), (11, 4), (14, 5), (10, 6)])
    def test_partial_overlap_is_not_a_duplicate(self, sequence: int, count: int) -> None:
        known = windows((batch(10), 5))
        with pytest.raises(OutOfOrderSequence):
            known.check(batch(sequence), count, 0)

    def test_gap_is_out_of_order(self) -> None:
        with pytest.raises(OutOfOrderSequence, match="sequence 11, expected 10"):
            windows((batch(0), 10)).check(batch(11), 1, 0)

    def test_lower_epoch_is_refused_even_for_a_known_sequence(self) -> None:
        known = windows((batch(0), 1), (batch(0, epoch=1), 1))
        with pytest.raises(InvalidProducerEpoch):
            known.check(batch(0), 1, 0)

    def test_higher_epoch_starts_at_zero_and_clears_the_window(self) -> None:
        known = windows((batch(0), 1))
        with pytest.raises(OutOfOrderSequence):
            known.check(batch(1, epoch=1), 1, 0)
        assert known.check(batch(0, epoch=1), 1, 0) is None
        known.record(batch(0, epoch=1), 1, 1, 0)
        window = known.get(PID)
        assert window is not None
        assert [entry.base_offset for entry in window.entries] == [1]

    def test_sequence_wraps_after_the_largest(self) -> None:
        known = windows((batch(MAX_SEQUENCE - 1), 4))
        assert known.get(PID).entries[0].last_sequence == 1  # type: ignore[union-attr]
        assert known.check(batch(2), 1, 0) is None
        assert known.check(batch(MAX_SEQUENCE - 1), 4, 0) is not None

    def test_zero_follows_the_largest(self) -> None:
        known = windows((batch(MAX_SEQUENCE), 1))
        assert known.check(batch(0), 1, 0) is None

    @pytest.mark.parametrize(
        ("stamp", "count"),
        [
            (batch(0, pid=-2), 1),
            (batch(-1), 1),
            (batch(MAX_SEQUENCE + 1), 1),
            (batch(0, epoch=-1), 1),
            (batch(0, epoch=2**15), 1),
            (batch(0), 0),
            (request(0, n=0), 1),
        ],
    )
    def test_impossible_stamps_are_invalid(self, stamp: ProducerStamp, count: int) -> None:
        with pytest.raises(InvalidRequest):
            ProducerWindows(DAY).check(stamp, count, 0)


class TestTopicModeInOnePartition:
    def test_sequences_need_not_be_dense(self) -> None:
        assert windows((request(3), 4)).check(request(9), 1, 0) is None

    def test_stored_sequence_is_a_duplicate_whatever_the_count_here(self) -> None:
        entry = windows((request(3), 4)).check(request(3), 4, 0)
        assert entry is not None
        assert (entry.base_offset, entry.last_sequence) == (0, 3)

    @pytest.mark.parametrize("other", [{"crc": 8}, {"body_count": 11}, {"n": 4}])
    def test_same_sequence_with_another_body_is_invalid(self, other: dict[str, int]) -> None:
        with pytest.raises(InvalidRequest, match="sequence 3"):
            windows((request(3), 4)).check(request(3, **other), 4, 0)

    def test_missing_lower_sequence_needs_to_be_a_completion(self) -> None:
        known = windows((request(3), 4))
        with pytest.raises(OutOfOrderSequence):
            known.check(request(2), 1, 0)
        assert known.check(request(2), 1, 0, completing=True) is None

    def test_completion_takes_its_place_by_sequence(self) -> None:
        known = windows(*[(request(s), 1) for s in (3, 4, 6, 7, 8, 5)])
        window = known.get(TOPIC_PID)
        assert window is not None
        assert [entry.sequence for entry in window.entries] == [4, 5, 6, 7, 8]
        assert window.newest_offset == 5

    def test_nothing_is_completed_below_a_full_window(self) -> None:
        known = windows(*[(request(s), 1) for s in (3, 4, 5, 6, 7)])
        with pytest.raises(OutOfOrderSequence):
            known.check(request(2), 1, 0, completing=True)

    def test_higher_epoch_may_begin_here_with_a_later_request(self) -> None:
        assert windows((request(3), 4)).check(request(2, epoch=1), 1, 0) is None


class TestReplay:
    def test_replaying_known_batches_changes_nothing(self) -> None:
        stamps = [batch(i) for i in range(8)]
        known = windows(*[(stamp, 1) for stamp in stamps])
        before = known.copy()
        for offset, stamp in enumerate(stamps):
            known.record(stamp, 1, offset, 0)
        assert known == before

    def test_two_batches_at_one_offset_are_corrupt(self) -> None:
        known = windows((batch(0), 2))
        with pytest.raises(CorruptData):
            known.record(batch(0), 3, 0, 0)

    @pytest.mark.parametrize("restart", [batch(0), batch(9), batch(5, epoch=0)])
    def test_batch_that_check_would_refuse_proves_an_expiry(self, restart: ProducerStamp) -> None:
        known = windows((batch(0, epoch=1), 1), (batch(1, epoch=1), 1))
        known.record(restart, 1, 2, 5000)
        window = known.get(PID)
        assert window is not None
        assert (window.epoch, [entry.base_offset for entry in window.entries]) == (0, [2])

    def test_request_below_a_full_window_proves_an_expiry(self) -> None:
        known = windows(*[(request(s), 1) for s in (3, 4, 5, 6, 7, 0)])
        assert [entry.sequence for entry in known.get(TOPIC_PID).entries] == [0]  # type: ignore[union-attr]


class TestForget:
    def test_is_the_inverse_of_record_with_a_full_window(self) -> None:
        known = windows(*[(batch(i), 1) for i in range(6)])
        twin = known.copy()
        before = known.record(batch(6), 1, 6, 9000)
        assert known != twin
        known.forget(batch(6), 6, before)
        assert known == twin

    def test_gives_back_the_old_epoch(self) -> None:
        known = windows((batch(0), 1))
        before = known.record(batch(0, epoch=1), 1, 1, 0)
        known.forget(batch(0, epoch=1), 1, before)
        assert known.check(batch(1), 1, 0) is None

    def test_first_batch_leaves_an_unknown_producer(self) -> None:
        known = ProducerWindows(DAY)
        known.forget(batch(3), 0, known.record(batch(3), 1, 0, 0))
        assert len(known) == 0

    def test_only_the_newest(self) -> None:
        known = windows((batch(0), 1), (batch(1), 1))
        with pytest.raises(ValueError, match="not the newest"):
            known.forget(batch(0), 0, None)
        with pytest.raises(ValueError, match="not the newest"):
            known.forget(batch(0, pid=8), 0, None)


class TestExpiry:
    def test_age_is_counted_from_the_last_batch_and_inclusive(self) -> None:
        known = windows((batch(0), 1), (batch(1), 1))
        assert known.expire(1001 + DAY - 1) == 0
        assert known.expire(1001 + DAY) == 1
        assert known.get(PID) is None

    def test_check_alone_never_expires(self) -> None:
        """R-13: a wall clock that jumped must not turn a retry into a second append."""
        assert windows((batch(0), 1)).check(batch(0), 1, 100 * DAY) is not None

    def test_topic_mode_producer_is_kept_while_active_elsewhere(self) -> None:
        here, there = windows((request(0), 1)), ProducerWindows(DAY)
        there.record(request(1), 1, 0, 1000 + DAY)
        now = 1000 + DAY
        assert here.active(now) == frozenset()
        assert there.active(now) == {TOPIC_PID}
        assert here.expire(now, keep=here.active(now) | there.active(now)) == 0
        assert here.expire(now) == 1


class TestJson:
    def test_round_trip(self) -> None:
        known = windows((batch(0), 2), (request(5), 3), (batch(2), 1))
        stored = json.loads(json.dumps(known.to_json()))
        assert ProducerWindows.from_json(stored, DAY) == known

    def test_partition_mode_entries_are_short(self) -> None:
        assert windows((batch(0), 2)).to_json() == [[PID, 0, 1000, [[0, 2, 0, 1000]]]]

    @pytest.mark.parametrize(
        "data", [[[1, 2]], [[1, 0, 5, []]], [[1, 0, 5, [[1]]]], [[1, 0, 5, [[1, 2, 3, "x"]]]], [7]]
    )
    def test_damage_is_reported(self, data: list[object]) -> None:
        with pytest.raises(CorruptData):
            ProducerWindows.from_json(data, DAY)


def topic(*sequences: int, epoch: int = 0) -> TopicWindows:
    known = TopicWindows()
    for sequence in sequences:
        known.record(request(sequence, epoch), partition=sequence % 3, base_offset=sequence, count=1)
    return known


class TestTopicWindows:
    def test_unknown_producer_may_start_anywhere(self) -> None:
        assert TopicWindows().check(request(7)) == Fresh()

    def test_next_is_fresh_and_a_gap_is_out_of_order(self) -> None:
        assert topic(0, 1).check(request(2)) == Fresh()
        with pytest.raises(OutOfOrderSequence, match="sequence 3, expected 2"):
            topic(0, 1).check(request(3))

    def test_last_five_are_repeats_and_older_ones_below(self) -> None:
        known = topic(*range(8))
        for sequence in range(3, 8):
            verdict = known.check(request(sequence))
            assert isinstance(verdict, Repeat)
            assert verdict.entry.parts == {sequence % 3: (sequence, 1)}
        assert known.check(request(2)) == BelowWindow()

    def test_repeat_with_another_body_is_invalid(self) -> None:
        with pytest.raises(InvalidRequest, match="sequence 1"):
            topic(0, 1).check(request(1, crc=8))

    def test_repeat_keeps_the_first_number_of_partitions(self) -> None:
        stamp = request(1, n=6)
        verdict = topic(0, 1).check(stamp)
        assert isinstance(verdict, Repeat)
        assert verdict.entry.restamp(stamp) == replace(stamp, partitions=3)

    def test_request_that_failed_everywhere_can_be_completed(self) -> None:
        verdict = topic(0, 2).check(request(1))
        assert isinstance(verdict, Repeat)
        assert verdict.entry.parts == {}

    def test_request_before_the_first_known_one_can_be_completed(self) -> None:
        """It was in flight with the known one, and a crash left only that."""
        for sequence in range(3, 7):
            assert topic(7).check(request(sequence)) == Repeat(RequestEntry(sequence, 3, 7, 10, {}))
        assert topic(7).check(request(2)) == BelowWindow()

    def test_epochs(self) -> None:
        known = topic(4, 5, epoch=2)
        with pytest.raises(InvalidProducerEpoch):
            known.check(request(5, epoch=1))
        with pytest.raises(OutOfOrderSequence):
            known.check(request(6, epoch=3))
        assert known.check(request(0, epoch=3)) == Fresh()

    def test_partition_mode_producer_is_refused(self) -> None:
        with pytest.raises(InvalidRequest):
            TopicWindows().check(ProducerStamp(PID, 0, 0, 3, 7, 10))

    def test_merge_takes_the_newest_epoch_of_all_partitions(self) -> None:
        old, new = windows((request(8), 1)), windows((request(0, epoch=1), 2))
        merged = TopicWindows.merge({0: new, 1: old, 2: windows((batch(0), 1))})
        verdict = merged.check(request(0, epoch=1))
        assert isinstance(verdict, Repeat)
        assert verdict.entry.parts == {0: (0, 2)}


class TestNullKeyStart:
    def test_is_fixed_for_ever(self) -> None:
        """A stored request is completed by later versions: these numbers may never change."""
        assert [null_key_start(1, sequence, 1000) for sequence in range(4)] == [470, 448, 882, 660]

    @pytest.mark.parametrize("n", [1, 2, 3, 8, 12, 50, 64])
    def test_spreads_a_producers_requests(self, n: int) -> None:
        hits = Counter(null_key_start(2001, sequence, n) for sequence in range(200 * n))
        assert set(hits) == set(range(n))
        assert max(hits.values()) < 300
