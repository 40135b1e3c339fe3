"""Bad histories: each is a good one with one thing wrong, and what the checker must call it."""

from __future__ import annotations

from collections.abc import Callable

from tests.lab.facts import Stored
from tests.lab.stories import T1, Story, compaction, copies_behind, good, take_over


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


def value_changed_between_reads(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, -1, stored=False)
    story.read(0, (0, "p:0:0"))
    story.read(0, (0, "p:1:0"))
    story.start, story.rows, story.end = 1, {}, 1


def read_past_the_high_watermark(story: Story) -> None:
    good(story)
    story.read(3, (3, "p:3:0"), hw=3)


def read_and_never_committed(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, -1, stored=False)
    story.read(0, (0, "p:0:0"), (1, "p:1:0"), hw=2)


def a_set_aside_record_was_read(story: Story) -> None:
    take_over(story)
    story.read(1, (1, "one:0:0"))


def read_left_something_out(story: Story) -> None:
    good(story)
    story.read(0, (0, "p:0:0"), (2, "p:2:0"))


def read_began_too_late(story: Story) -> None:
    good(story)
    story.read(1, (2, "p:2:0"))


def read_went_back(story: Story) -> None:
    good(story)
    story.read(2, (1, "p:1:0"), (2, "p:2:0"))


def read_gave_something_older_only(story: Story) -> None:
    good(story)
    story.read(3, (0, "p:0:0"))


def read_is_to_go_on_where_it_was(story: Story) -> None:
    good(story)
    story.read(0, (0, "p:0:0"), (1, "p:1:0"), hw=4, next=1)


def read_is_to_go_on_too_far(story: Story) -> None:
    good(story)
    story.read(0, (0, "p:0:0"), (1, "p:1:0"), hw=4, next=3)


def read_is_empty_and_goes_on(story: Story) -> None:
    good(story)
    story.read(2, hw=4, next=4)


def read_stands_still(story: Story) -> None:
    good(story)
    story.read(2, hw=4, next=2)


def poll_went_back(story: Story) -> None:
    good(story)
    story.poll(2)


def poll_skipped(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, 1)
    story.sent(2, 2)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0)
    story.poll(2)


def poll_gave_something_older_than_was_asked_for(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, 1)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0, 1, asked=[["t", 0, 1]])


def poll_skipped_by_a_member_that_is_told_nothing(story: Story) -> None:
    """Another one got some of it, but not all."""
    for number in range(6):
        story.sent(number, number)
    story.poll(0, 1, who="v2-0.p1.0")
    story.poll(2, who="v2-1.p2.0")
    story.poll(4, 5, who="v2-0.p1.0")


def poll_skipped_what_others_got_later(story: Story) -> None:
    for number in range(4):
        story.sent(number, number)
    story.poll(0, who="v2-0.p1.0")
    story.poll(3, who="v2-0.p1.0")
    story.poll(1, 2, 3, who="v2-1.p2.0")


def owned_twice(story: Story) -> None:
    story.joined(3, 0, member="m")
    story.joined(3, 0, member="n")


def stale_commit(story: Story) -> None:
    good(story)
    story.joined(2, 0, member="n")
    story.commit(4, generation=1)


def commit_went_back(story: Story) -> None:
    good(story)
    story.call("committed", {"group": "g"}, {"offsets": [["t", 0, 2]]})


def commit_vanished(story: Story) -> None:
    good(story)
    story.call("committed", {"group": "g"}, {"offsets": []})


def committed_and_never_delivered(story: Story) -> None:
    good(story)
    story.sent(4, 4)
    story.sent(5, 5)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(5)
    story.commit(6)


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


def log_start_went_back(story: Story) -> None:
    story.sent(0, 0)
    story.call("position", {"topic": "t", "partition": 0}, {"start": 1})
    story.call("position", {"topic": "t", "partition": 0}, {"start": 0})
    story.start, story.rows, story.end = 1, {}, 1


def log_start_went_back_on_disk(story: Story) -> None:
    good(story)
    story.call("position", {"topic": "t", "partition": 0}, {"start": 2})


def high_watermark_went_back(story: Story) -> None:
    good(story)
    story.read(4, hw=9)


def high_watermark_went_back_between_reads(story: Story) -> None:
    good(story)
    story.read(3, hw=3, next=3)


def copied_twice(story: Story) -> None:
    good(story)
    story.copies.append(story.copies[0])


def copied_wrongly(story: Story) -> None:
    good(story)
    story.copies[1] = ("t", 0, 1, "p:3:0")


def copied_with_a_gap(story: Story) -> None:
    good(story)
    del story.copies[1]


def copied_without_the_beginning(story: Story) -> None:
    good(story)
    del story.copies[0]


def copied_without_a_partition(story: Story) -> None:
    good(story)
    began = {"topic": "t", "producer": "n", "number": 0, "count": 1, "acks": "all"}
    story.call("produce", began, {"at": [[1, 0]]})
    story.more[T1] = Stored({0: (None, "n:0:0")}, 0, 1)
    story.copies.append(("t", 0, 4, story.sent(4, 4, since=100.0)))


def copied_without_the_end(story: Story) -> None:
    copies_behind(story)
    story.copies = [*story.copies[:2], *story.copies[4:]]
    story.copies[2] = ("u", 0, 0, "p:4:0")
    story.more[("u", 0)] = Stored({0: (None, "p:4:0")}, 0, 1)


BAD: list[tuple[Callable[[Story], None], set[str]]] = [
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
    (duplicated_and_gone, {"duplicated"}),
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
    (value_changed_between_reads, {"value changed"}),
    (read_past_the_high_watermark, {"high watermark went back", "read past the HW"}),
    (read_and_never_committed, {"high watermark went back", "read past the HW"}),
    (a_set_aside_record_was_read, {"value changed"}),
    (read_left_something_out, {"read skipped"}),
    (read_began_too_late, {"read skipped"}),
    (read_went_back, {"read went back"}),
    (read_gave_something_older_only, {"read went back"}),
    (read_is_to_go_on_where_it_was, {"read went back"}),
    (read_is_to_go_on_too_far, {"read skipped"}),
    (read_is_empty_and_goes_on, {"read skipped"}),
    (read_stands_still, {"read stands still"}),
    (poll_went_back, {"poll went back"}),
    (poll_skipped, {"poll skipped"}),
    (poll_gave_something_older_than_was_asked_for, {"poll went back"}),
    (poll_skipped_by_a_member_that_is_told_nothing, {"poll skipped"}),
    (poll_skipped_what_others_got_later, {"poll skipped"}),
    (owned_twice, {"owned twice"}),
    (stale_commit, {"stale commit accepted"}),
    (commit_went_back, {"commit went back"}),
    (commit_vanished, {"commit went back"}),
    (committed_and_never_delivered, {"never delivered"}),
    (key_lost, {"compacted key lost"}),
    (key_lost_long_after_a_tombstone_in_doubt, {"compacted key lost"}),
    (key_lost_long_after_a_producer_was_killed, {"compacted key lost"}),
    (key_came_back, {"compacted key lost"}),
    (log_start_went_back, {"log start went back"}),
    (log_start_went_back_on_disk, {"log start went back"}),
    (high_watermark_went_back, {"high watermark went back"}),
    (high_watermark_went_back_between_reads, {"high watermark went back"}),
    (copied_twice, {"copied twice"}),
    (copied_wrongly, {"value changed"}),
    (copied_with_a_gap, {"copy skipped"}),
    (copied_without_the_beginning, {"copy skipped"}),
    (copied_without_a_partition, {"copy skipped"}),
    (copied_without_the_end, {"copy skipped"}),
]
