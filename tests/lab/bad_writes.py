"""Bad histories of what is written and stored: each is a good one with one thing wrong, and what it must be called."""

from __future__ import annotations

from collections.abc import Callable

from tests.lab.facts import Stored
from tests.lab.stories import T1, Story, compaction, good, take_over


def acknowledged_and_lost(story: Story) -> None:
    good(story)
    story.sent(4, 4, stored=False)


def lost_with_acks_1_and_nowhere(story: Story) -> None:
    good(story)
    story.sent(0, 4, producer="one", acks="1", stored=False)


def lost_with_acks_all_though_set_aside(story: Story) -> None:
    good(story)
    story.aside = [story.sent(4, 4, stored=False)]


def lost_with_acks_1_though_nobody_took_over(story: Story) -> None:
    good(story)
    story.aside = [story.sent(0, 4, producer="one", acks="1", stored=False)]


def lost_with_acks_1_after_the_take_over(story: Story) -> None:
    take_over(story)
    story.aside.append(story.sent(2, 3, producer="one", acks="1", stored=False))


def lost_with_acks_1_long_before_the_take_over(story: Story) -> None:
    story.sent(0, 0)
    story.aside = [story.sent(0, 1, producer="one", acks="1", stored=False)]
    story.note("nemesis", who="lab", since=100.0, t=110.0, kind="stop", told="")
    story.note("two", who="lab", since=111.0, until=117.0)


def topic_vanished(story: Story) -> None:
    good(story)
    story.deleted("u")
    story.deleted(how="fail")
    story.gone = True


def topic_vanished_long_after_a_delete_in_doubt(story: Story) -> None:
    story.deleted(how="info")
    story.sent(0, 0, since=100.0)
    story.gone = True


def topic_made_anew_by_nobody(story: Story) -> None:
    story.deleted()
    good(story)
    story.gone, story.more = True, {("t@2", 0): Stored({}, 0, 0)}


def lost_in_the_middle(story: Story) -> None:
    good(story)
    del story.rows[1]


def duplicated(story: Story) -> None:
    story.sent(0, 0)
    story.rows[1] = (None, "p:0:0")


def duplicated_and_gone(story: Story) -> None:
    """Seen twice by readers, though only one of them is left."""
    story.trims = True
    story.call("position", {"topic": "t", "partition": 0, "before": 9}, {"start": 0})
    value = story.sent(0, 0)
    story.sent(1, 1)
    story.read(0, (0, value))
    story.read(5, (5, value))
    story.start, story.rows, story.end = 6, {}, 6


def reordered(story: Story) -> None:
    story.sent(1, -1, stored=False)
    story.sent(0, -1, stored=False)
    story.rows = {0: (None, "p:1:0"), 1: (None, "p:0:0")}


def reordered_in_a_batch(story: Story) -> None:
    story.batch(0, 1, stored=False, how="info")
    story.events[-1] |= {"is": "info", "error": "NO"}
    story.rows = {0: (None, "b:0:1"), 1: (None, "b:0:0")}


def reordered_in_an_answer(story: Story) -> None:
    """Tombstones have no value that says which of them came first."""
    story.batch(1, 0, keys=["a", "b"], tombstones=[0, 1])


def key_changed(story: Story) -> None:
    value = story.sent(0, 0, keys=["a"], stored=False)
    story.rows[0] = ("b", value)


def key_vanished(story: Story) -> None:
    value = story.sent(0, -1, keys=["a"], stored=False)
    story.rows[0] = (None, value)


def key_of_a_tombstone_changed(story: Story) -> None:
    story.sent(0, 0, keys=["a"], tombstones=[0])
    story.rows[0] = ("b", None)


def reordered_against_the_clock(story: Story) -> None:
    story.sent(0, 1, producer="one")
    story.sent(0, 0, producer="two")


def offset_reused(story: Story) -> None:
    story.sent(0, 0)
    story.sent(0, 0, producer="q", stored=False)


def offset_missing(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, 2)


def refused_and_stored(story: Story) -> None:
    story.sent(0, -1, stored=False, how="fail", idempotent=False)
    story.rows[0] = (None, "p:0:0")


def nobody_sent_it(story: Story) -> None:
    story.rows[0] = (None, "p:0:0")


def value_changed_in_storage(story: Story) -> None:
    value = story.sent(0, 0, stored=False)
    story.read(0, (0, value))
    story.sent(1, -1, stored=False)
    story.rows[0] = (None, "p:1:0")


def key_lost(story: Story) -> None:
    compaction(story)
    del story.rows[2]


def key_lost_long_after_a_tombstone_in_doubt(story: Story) -> None:
    story.compacted = True
    story.sent(0, -1, keys=["a"], tombstones=[0], stored=False, how="info", since=10.0, until=16.0)
    story.sent(1, 0, keys=["a"], stored=False, since=200.0)
    story.end = 1


def key_lost_long_after_a_producer_was_killed(story: Story) -> None:
    story.compacted = True
    story.sent(0, -1, keys=["a"], tombstones=[0], stored=False, producer="q.p9", since=10.0)
    story.note("broken", who="another.p9", t=30.0)
    story.sent(1, 0, keys=["a"], stored=False, since=200.0)
    story.end = 1


def key_came_back(story: Story) -> None:
    compaction(story)
    story.rows[1] = ("b", "p:1:0")


def the_log_starts_behind_everything(story: Story) -> None:
    """Nobody may trim this topic."""
    good(story)
    story.copies, story.rows, story.start, story.end = [], {}, 4, 4


def the_log_of_a_trimmed_topic_is_empty(story: Story) -> None:
    """Retention by size never takes everything, and nobody asked to."""
    story.trims = True
    for number in range(4):
        story.sent(number, number)
    story.call("position", {"topic": "t", "partition": 0, "before": 2}, {"start": 2})
    story.rows, story.start, story.end = {}, 4, 4


def the_log_starts_behind_every_key(story: Story) -> None:
    story.compacted = True
    for number in range(4):
        story.sent(number, number, keys=[f"k{number}"])
    story.rows, story.start, story.end = {}, 4, 4


def an_offset_in_two_rows(story: Story) -> None:
    """As a merge leaves it that adds its output and keeps its input."""
    good(story)
    story.twice = [2]


def a_tombstone_from_nowhere(story: Story) -> None:
    story.compacted = True
    story.sent(0, 0, keys=["a"], stored=False)
    story.rows, story.end = {1: ("a", None)}, 2


def a_tombstone_twice(story: Story) -> None:
    """The second one takes a value that came between."""
    story.compacted = True
    one = story.sent(0, 0, keys=["a"], tombstones=[0])
    story.sent(1, 1, keys=["a"], stored=False)
    story.rows[2], story.tombstones[2], story.end = ("a", None), one, 3


def a_tombstone_became_another(story: Story) -> None:
    story.compacted = True
    story.sent(0, 0, keys=["a"], tombstones=[0])
    story.tombstones[0] = story.sent(1, -1, keys=["a"], tombstones=[0], stored=False)


def stored_in_another_topic_too(story: Story) -> None:
    value = story.sent(0, 0)
    story.more[("u", 0)] = Stored({0: (None, value)}, 0, 1)


def stored_in_another_topic_only(story: Story) -> None:
    value = story.sent(0, -1, stored=False)
    story.more[("u", 0)] = Stored({0: (None, value)}, 0, 1)


def stored_in_the_next_life_of_its_topic(story: Story) -> None:
    began = {"topic": "t@1", "producer": "p", "number": 0, "count": 1, "acks": "all"}
    story.call("produce", began, {"at": [[0, 0]]})
    story.deleted()
    story.gone, story.more = True, {("t@2", 0): Stored({0: (None, "p:0:0")}, 0, 1)}


def stored_in_another_partition(story: Story) -> None:
    value = story.sent(0, -1, stored=False, partition=0)
    story.more[T1] = Stored({0: (None, value)}, 0, 1)


def answered_for_another_partition(story: Story) -> None:
    story.sent(0, 0, partition=1)


def a_key_in_two_partitions(story: Story) -> None:
    story.sent(0, 0, keys=["a"])
    began = {"topic": "t", "producer": "q", "number": 0, "count": 1, "acks": "all", "keys": ["a"]}
    story.call("produce", began, {"at": [[1, 0]]})
    story.more[T1] = Stored({0: ("a", "q:0:0")}, 0, 1)


def reordered_and_gone(story: Story) -> None:
    """Nothing of it is stored any more, but its producer was told."""
    story.trims = True
    story.sent(0, 5, stored=False, until=9.0)
    story.sent(1, 3, stored=False, since=2.0)
    story.call("position", {"topic": "t", "partition": 0, "before": 6}, {"start": 6})
    story.start = story.end = 6


def lost_with_acks_1_though_a_reader_knew_it_committed(story: Story) -> None:
    story.sent(0, 0)
    story.aside = [story.sent(0, 1, producer="one", acks="1", stored=False)]
    story.read(1, hw=2, who="delta.0")
    story.note("two", who="lab", since=20.0, until=30.0)
    story.sent(1, 1, since=31.0)


def answered_for_some_of_its_records(story: Story) -> None:
    story.batch(0, count=3)


def acknowledged_without_an_offset_and_lost(story: Story) -> None:
    story.sent(0, 0)
    began = {"topic": "t", "producer": "p", "number": 1, "count": 1, "acks": "all", "idempotent": True}
    story.call("produce", began, {"at": [[-1, -1]], "unplaced": [0]})


def one_record_refused_and_stored(story: Story) -> None:
    story.batch(0, stored=False)
    story.events[-1]["at"] = [None]
    story.rows[0] = (None, "b:0:0")


def deleted_and_still_there(story: Story) -> None:
    good(story)
    story.deleted()


def a_compacted_log_behind_its_end(story: Story) -> None:
    compaction(story)
    story.end = 2


BAD_WRITES: list[tuple[Callable[[Story], None], set[str]]] = [
    (acknowledged_and_lost, {"lost"}),
    (lost_with_acks_1_and_nowhere, {"lost"}),
    (lost_with_acks_all_though_set_aside, {"lost"}),
    (lost_with_acks_1_though_nobody_took_over, {"lost"}),
    (lost_with_acks_1_after_the_take_over, {"lost"}),
    (lost_with_acks_1_long_before_the_take_over, {"lost"}),
    (topic_vanished, {"lost"}),
    (topic_vanished_long_after_a_delete_in_doubt, {"lost"}),
    (topic_made_anew_by_nobody, {"lost"}),
    (lost_in_the_middle, {"lost", "offset missing", "read past the HW"}),
    (duplicated, {"duplicated", "reordered"}),
    (duplicated_and_gone, {"duplicated", "reordered"}),
    (reordered, {"reordered"}),
    (reordered_in_a_batch, {"reordered"}),
    (reordered_in_an_answer, {"reordered"}),
    (key_changed, {"key changed"}),
    (key_vanished, {"key changed"}),
    (key_of_a_tombstone_changed, {"key changed"}),
    (reordered_against_the_clock, {"reordered"}),
    (offset_reused, {"offset reused", "value changed"}),
    (offset_missing, {"offset missing"}),
    (refused_and_stored, {"refused and stored"}),
    (nobody_sent_it, {"never sent"}),
    (value_changed_in_storage, {"value changed"}),
    (key_lost, {"compacted key lost"}),
    (key_lost_long_after_a_tombstone_in_doubt, {"compacted key lost"}),
    (key_lost_long_after_a_producer_was_killed, {"compacted key lost"}),
    (key_came_back, {"compacted key lost"}),
    (the_log_starts_behind_everything, {"lost"}),
    (the_log_of_a_trimmed_topic_is_empty, {"lost"}),
    (the_log_starts_behind_every_key, {"lost"}),
    (an_offset_in_two_rows, {"offset reused"}),
    (a_tombstone_from_nowhere, {"never sent"}),
    (a_tombstone_twice, {"duplicated", "reordered"}),
    (a_tombstone_became_another, {"value changed"}),
    (stored_in_another_topic_too, {"duplicated", "misplaced"}),
    (stored_in_another_topic_only, {"misplaced"}),
    (stored_in_the_next_life_of_its_topic, {"misplaced"}),
    (stored_in_another_partition, {"misplaced"}),
    (answered_for_another_partition, {"misplaced"}),
    (a_key_in_two_partitions, {"misplaced"}),
    (reordered_and_gone, {"reordered"}),
    (lost_with_acks_1_though_a_reader_knew_it_committed, {"offset reused", "value changed"}),
    (answered_for_some_of_its_records, {"answer incomplete"}),
    (acknowledged_without_an_offset_and_lost, {"lost"}),
    (one_record_refused_and_stored, {"refused and stored"}),
    (deleted_and_still_there, {"deleted and there"}),
    (a_compacted_log_behind_its_end, {"lost", "offset missing"}),
]
