"""Judges a history against what is stored. It knows nothing of the code under test and imports nothing of it.

What the clients wrote down is explained in `history`; `stored` comes from `storage`, which reads it with delta-rs.

A record's value, or of a tombstone a header, names who sent it: `<producer>:<number>:<index>`. Nobody sends a name
twice, but an idempotent producer repeats a request until it is answered. So every name may be in one place only, and a
place, a topic with a partition and an offset, may hold one record only, for ever.

Events that are looked at, with the fields of their invocation / of their end:

    produce    topic, partition?, producer, number, count, acks, idempotent, keys? tombstones?
                   / at: [[partition, offset], …]; null: that record was refused;
                     unplaced?: indexes of those that were acknowledged without being told where they are
    read       topic, partition, from, whole? / hw, start, next, rows: [[offset, value], …]
                                                      fetches and delta-rs readers; whole: to the end of the table
    poll       group, asked? / rows: [[topic, partition, offset, value], …]              members of groups; asked:
                                                                                         [[topic, partition, offset]]
    position   topic, partition, before? / start                                         deletions and looks
    join       group / member, generation, partitions: [[topic, partition], …]           what a sync answered
    commit     group, member, generation, offsets: [[topic, partition, offset], …]
    committed  group / offsets: [[topic, partition, offset], …]
    delete     topic: without its id                                                     of a topic
    notes      assigned (who, partitions: what is read from anew), two (since, until: two services were at work),
               nemesis (since: until its own time something was made to go wrong)
"""

from __future__ import annotations

from tests.lab.check_groups import GroupChecks
from tests.lab.check_reads import ReadChecks
from tests.lab.check_writes import WriteChecks
from tests.lab.facts import Anomaly


class Checker(WriteChecks, ReadChecks, GroupChecks):
    def run(self) -> list[Anomaly]:
        self.check_writes()
        self.check_readers()
        self.check_groups()
        return self.found
