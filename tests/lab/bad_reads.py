"""Bad histories of readers and groups: each is a good one with one thing wrong, and what it must be called."""

from __future__ import annotations

from collections.abc import Callable

from tests.lab.facts import Stored
from tests.lab.stories import T1, Story, copies_behind, good, take_over


def value_changed_between_reads(story: Story) -> None:
    story.trims = True
    story.call("position", {"topic": "t", "partition": 0, "before": 9}, {"start": 0})
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


def log_start_went_back(story: Story) -> None:
    story.trims = True
    story.call("position", {"topic": "t", "partition": 0, "before": 9}, {"start": 0})
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
    began = {"topic": "u", "producer": "u", "number": 0, "count": 1, "acks": "all"}
    story.call("produce", began, {"at": [[0, 0]]}, since=100.0)
    story.copies[2] = ("u", 0, 0, "u:0:0")
    story.more[("u", 0)] = Stored({0: (None, "u:0:0")}, 0, 1)


def read_left_out_what_is_gone_by_now(story: Story) -> None:
    """It was there when the answer was made: its log started before it."""
    story.trims = True
    for number in range(4):
        story.sent(number, number)
    story.read(0, (0, "p:0:0"), (2, "p:2:0"), hw=4, next=3)
    story.start, story.rows = 3, {3: story.rows[3]}


def delta_left_out_what_is_gone_by_now(story: Story) -> None:
    story.trims = True
    for number in range(4):
        story.sent(number, number)
    rows = [[offset, f"p:{offset}:0"] for offset in (0, 2, 3)]
    story.call("read", {"topic": "t", "partition": 0, "from": 0, "whole": True}, {"rows": rows})
    story.start, story.rows = 3, {3: story.rows[3]}


def read_of_another_topic(story: Story) -> None:
    value = story.sent(0, 0)
    story.more[("u", 0)] = Stored({}, 1, 1, trims=True)
    story.call("read", {"topic": "u", "partition": 0, "from": 0}, {"rows": [[0, value]], "start": 0})
    story.call("position", {"topic": "u", "partition": 0, "before": 1}, {"start": 1})


def acknowledged_and_not_below_the_high_watermark(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, 1)
    story.read(0, (0, "p:0:0"), hw=1, next=1)


def acknowledged_and_not_in_the_table(story: Story) -> None:
    story.sent(0, 0)
    story.call("read", {"topic": "t", "partition": 0, "from": 0, "whole": True}, {"rows": []})


def refused_an_offset_that_is_there(story: Story) -> None:
    good(story)
    story.call("read", {"topic": "t", "partition": 0, "from": 2}, {"error": "OFFSET_OUT_OF_RANGE"}, "r.0", "fail")


def refused_an_offset_that_is_there_to_a_member(story: Story) -> None:
    good(story)
    began = {"group": "g", "asked": [["t", 0, 2]]}
    story.call("poll", began, {"error": "OFFSET_OUT_OF_RANGE"}, "m.0", "fail")


def poll_went_back_with_a_rebalance(story: Story) -> None:
    good(story)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0, 1, 2, 3)


def poll_went_back_in_a_new_instance(story: Story) -> None:
    good(story)
    story.poll(0, who="v2-0.p1.0")


def poll_skipped_what_was_not_committed(story: Story) -> None:
    for number in range(8):
        story.sent(number, number)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0, 1, 2, 3)
    story.note("assigned", who="n.0", partitions=[["t", 0]])
    story.poll(4, 5, 6, 7, who="n.0")


def poll_of_a_new_instance_skipped(story: Story) -> None:
    story.sent(0, 0)
    story.sent(1, 1)
    story.poll(1, who="v2-0.p1.0")


def one_member_id_for_two(story: Story) -> None:
    story.joined(3, 0, member="m", who="m.0")
    story.joined(3, 0, member="m", who="m.1")


def commit_went_back_that_nobody_answered(story: Story) -> None:
    """But it had been read."""
    good(story)
    story.sent(4, 4)
    story.poll(4)
    story.commit(5, how="info")
    for offset in (5, 4):
        story.call("committed", {"group": "g"}, {"offsets": [["t", 0, offset]]})


def committed_by_nobody(story: Story) -> None:
    good(story)
    story.call("committed", {"group": "g"}, {"offsets": [["t", 0, 100]]})


def committed_by_nobody_in_a_group_that_never_was(story: Story) -> None:
    good(story)
    story.call("committed", {"group": "h"}, {"offsets": [["t", 0, 1]]})


BAD_READS: list[tuple[Callable[[Story], None], set[str]]] = [
    (value_changed_between_reads, {"value changed"}),
    (read_past_the_high_watermark, {"high watermark went back", "read past the HW", "stale read"}),
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
    (commit_went_back, {"commit went back", "never committed"}),
    (commit_vanished, {"commit went back"}),
    (committed_and_never_delivered, {"never delivered", "poll skipped"}),
    (log_start_went_back, {"log start went back"}),
    (log_start_went_back_on_disk, {"log start went back"}),
    (high_watermark_went_back, {"high watermark went back"}),
    (high_watermark_went_back_between_reads, {"high watermark went back", "stale read"}),
    (copied_twice, {"copied twice"}),
    (copied_wrongly, {"value changed"}),
    (copied_with_a_gap, {"copy skipped"}),
    (copied_without_the_beginning, {"copy skipped"}),
    (copied_without_a_partition, {"copy skipped"}),
    (copied_without_the_end, {"copy skipped"}),
    (read_left_out_what_is_gone_by_now, {"read skipped"}),
    (delta_left_out_what_is_gone_by_now, {"read skipped"}),
    (read_of_another_topic, {"misplaced"}),
    (acknowledged_and_not_below_the_high_watermark, {"stale read"}),
    (acknowledged_and_not_in_the_table, {"stale read"}),
    (refused_an_offset_that_is_there, {"refused inside the log"}),
    (refused_an_offset_that_is_there_to_a_member, {"refused inside the log"}),
    (poll_went_back_with_a_rebalance, {"poll went back"}),
    (poll_went_back_in_a_new_instance, {"poll went back"}),
    (poll_skipped_what_was_not_committed, {"poll skipped"}),
    (poll_of_a_new_instance_skipped, {"poll skipped"}),
    (one_member_id_for_two, {"owned twice"}),
    (commit_went_back_that_nobody_answered, {"commit went back"}),
    (committed_by_nobody, {"never committed"}),
    (committed_by_nobody_in_a_group_that_never_was, {"never committed"}),
]
