"""Histories told by hand, for the tests of the checker; here the good ones."""

from __future__ import annotations

from typing import Any

from tests.lab.checker import Checker
from tests.lab.facts import Stored, Value

T0, T1 = ("t", 0), ("t", 1)


class Story:
    """A history told step by step; each call takes from one second to the next, unless it says otherwise."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.rows: dict[int, tuple[str | None, Value]] = {}
        self.start = 0
        self.end: int | None = None
        self.compacted = self.trims = False
        self.tombstones: dict[int, str] = {}
        self.twice: list[int] = []
        self.aside: list[str] = []
        self.copies: list[tuple[str, int, int, Value]] = []
        self.more: dict[tuple[str, int], Stored] = {}
        """Partitions but the one that most is told of."""
        self.gone = False
        """The topic is not in the catalog any more."""
        self._t = 0.0

    def call(
        self,
        do: str,
        began: dict[str, Any],
        end: dict[str, Any] | None,
        who: str = "c.0",
        how: str = "ok",
        **times: float,
    ) -> None:
        since = times.get("since", self._t + 1)
        until = times.get("until", since + 1)
        self._t = max(self._t, until)
        op = f"{who}#{len(self.events)}"
        self.events.append({"t": since, "who": who, "op": op, "is": "invoke", "do": do, **began})
        if end is not None:
            self.events.append({"t": until, "who": who, "op": op, "is": how, "do": do, **end})

    def sent(self, number: int, offset: int, *, stored: bool = True, producer: str = "p", **more: Any) -> str:
        """One record that was acknowledged at `offset`; -1: nobody knows what became of it."""
        began = {"topic": "t", "producer": producer, "number": number, "count": 1, "acks": "all", "idempotent": True}
        times = {key: more.pop(key) for key in ("since", "until") if key in more}
        how = more.pop("how", "ok")
        end = {"at": [[0, offset]]} if how == "ok" else {"error": "NO"}
        key = more["keys"][0] if "keys" in more else None
        value = None if more.get("tombstones") else f"{producer}:{number}:0"
        self.call("produce", began | more, end if offset >= 0 or how != "ok" else None, f"{producer}.0", how, **times)
        if stored:
            self.store(offset, key, value, f"{producer}:{number}:0")
        return f"{producer}:{number}:0"

    def store(self, offset: int, key: str | None, value: Value, name: str) -> None:
        self.rows[offset] = (key, value)
        if value is None:
            self.tombstones[offset] = name

    def batch(self, *offsets: int, stored: bool = True, **more: Any) -> None:
        """One request of a plain producer."""
        began = {"topic": "t", "producer": "b", "number": 0, "count": len(offsets), "acks": "all", "idempotent": False}
        self.call("produce", began | more, {"at": [[0, offset] for offset in offsets]}, "b.0")
        for index, offset in enumerate(offsets) if stored else ():
            key = more["keys"][index] if "keys" in more else None
            self.store(offset, key, None if index in more.get("tombstones", ()) else f"b:0:{index}", f"b:0:{index}")

    def deleted(self, topic: str = "t", how: str = "ok", **times: float) -> None:
        self.call("delete", {"topic": topic}, {} if how == "ok" else {"error": "NO"}, "admin.0", how, **times)

    def read(self, first: int, *rows: tuple[int, Value], who: str = "r.0", **more: Any) -> None:
        end = {"rows": [list(row) for row in rows], "start": 0} | more
        self.call("read", {"topic": "t", "partition": 0, "from": first}, end, who)

    def poll(self, *offsets: int, who: str = "m.0", **more: Any) -> None:
        rows = [["t", 0, offset, self.rows.get(offset, (None, f"p:{offset}:0"))[1]] for offset in offsets]
        self.call("poll", {"group": "g"} | more, {"rows": rows}, who)

    def joined(self, generation: int, *partitions: int, member: str = "m", who: str = "c.0") -> None:
        owned = [["t", partition] for partition in partitions]
        self.call("join", {"group": "g"}, {"member": member, "generation": generation, "partitions": owned}, who)

    def commit(self, offset: int, generation: int = 1, how: str = "ok") -> None:
        offsets = [["t", 0, offset]]
        began = {"group": "g", "member": "m", "generation": generation, "offsets": offsets}
        self.call("commit", began, {} if how == "ok" else {"error": "NO"}, "m.0", how)

    def note(self, do: str, who: str = "m.0", **fields: Any) -> None:
        self._t += 1
        self.events.append({"t": self._t, "who": who, "op": "", "is": "note", "do": do, **fields})

    def found(self) -> list[str]:
        end = self.end if self.end is not None else max(self.rows, default=-1) + 1
        mine = Stored(self.rows, self.start, end, self.compacted, self.trims, self.tombstones, self.twice)
        stored = {T0: mine} | self.more
        if self.gone:
            del stored[T0]
        checker = Checker(self.events, stored, aside=self.aside, copies=self.copies)
        return sorted({anomaly.kind for anomaly in checker.run()})


def good(story: Story) -> None:
    values = [story.sent(number, number) for number in range(4)]
    story.read(0, *enumerate(values), hw=4, next=4)
    story.read(4, hw=4, next=4)  # there is nothing yet
    story.joined(1, 0)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0, 1)
    story.poll(2, 3)
    story.commit(4)
    story.call("committed", {"group": "g"}, {"offsets": [["t", 0, 4]]})
    story.call("position", {"topic": "t", "partition": 0}, {"start": 0})
    story.copies = [("t", 0, offset, value) for offset, value in enumerate(values)]


def nothing(_: Story) -> None:
    pass


def retention(story: Story) -> None:
    story.trims = True
    values = [story.sent(number, number) for number in range(4)]
    story.read(0, *enumerate(values))
    story.call("position", {"topic": "t", "partition": 0}, {"start": 2})
    story.start, story.rows = 2, {offset: row for offset, row in story.rows.items() if offset >= 2}
    story.joined(1, 0)
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0, 2, 3)  # 1 was gone before it was read
    story.commit(4)
    story.copies = [("t", 0, offset, values[offset]) for offset in (0, 2, 3)]


def doubt(story: Story) -> None:
    """Whatever became of it, a record that nobody answered for is no anomaly."""
    story.sent(0, 0)
    story.sent(1, -1, stored=False)
    story.rows[1] = (None, "p:1:0")
    story.sent(2, -1, stored=False)
    story.sent(3, 2)
    story.sent(0, -1, stored=False, producer="q", how="fail")


def given_up(story: Story) -> None:
    """An idempotent producer that gives up a record goes on under another identity: the late one has no order."""
    story.sent(0, 0)
    story.sent(1, -1, stored=False, how="info")
    story.sent(2, 1)
    story.rows[2] = (None, "p:1:0")
    story.sent(3, 3)


def take_over(story: Story) -> None:
    """acks=1 in a log that a successor overtook: set aside, its offset given anew, and never read."""
    story.sent(0, 0)
    gone: dict[str, Any] = {"producer": "one", "acks": "1", "stored": False}
    story.aside = [story.sent(0, 1, **gone), story.sent(1, 2, keys=["a"], tombstones=[0], **gone)]
    story.note("two", since=1.5, until=7.0)
    story.sent(1, 1)
    story.sent(2, 2)


def take_over_after_a_long_storm(story: Story) -> None:
    """Nothing could be committed for longer than a partition is given otherwise."""
    story.sent(0, 0)
    story.aside = [story.sent(0, 1, producer="one", acks="1", stored=False)]
    story.note("nemesis", who="lab", since=6.0, t=190.0, kind="full", told="")
    story.note("two", who="lab", since=200.0, until=210.0)
    story.sent(1, 1, since=211.0)


def a_tombstone_lost_to_another(story: Story) -> None:
    """Neither has a value; they differ in their keys."""
    story.compacted = True
    gone: dict[str, Any] = {"producer": "one", "acks": "1", "stored": False}
    story.aside = [story.sent(0, 0, keys=["a"], tombstones=[0], **gone)]
    story.note("two", who="lab", since=1.5, until=7.0)
    story.sent(1, 0, keys=["b"], tombstones=[0])


def topic_deleted(story: Story) -> None:
    good(story)
    story.deleted()
    story.gone = True


def topic_deleted_perhaps(story: Story) -> None:
    """Nobody was told whether it was, nor when."""
    story.deleted(how="info")
    good(story)
    story.gone = True


def topic_made_again(story: Story) -> None:
    """Under the same name; each has an id, and only the first one is gone."""
    began = {"topic": "t@1", "producer": "p", "number": 0, "count": 1, "acks": "all"}
    story.call("produce", began, {"at": [[0, 0]]})
    story.deleted()
    story.call("produce", began | {"topic": "t@2", "number": 1}, {"at": [[0, 0]]})
    story.gone, story.more = True, {("t@2", 0): Stored({0: (None, "p:1:0")}, 0, 1)}


def a_batch(story: Story) -> None:
    """With two partitions, of which each has its own order."""
    began = {"topic": "t", "producer": "b", "number": 0, "count": 4, "acks": "all", "idempotent": False}
    story.call("produce", began, {"at": [[0, 0], [1, 0], [0, 1], [1, 1]]})
    story.rows = {0: (None, "b:0:0"), 1: (None, "b:0:2")}
    story.more[T1] = Stored({0: (None, "b:0:1"), 1: (None, "b:0:3")}, 0, 2)


def a_tombstone_in_doubt(story: Story) -> None:
    """It may have come after the last write, and taken the key with it."""
    story.compacted = True
    story.sent(0, 0, keys=["a"], stored=False, since=10.0)
    story.sent(1, -1, keys=["a"], tombstones=[0], stored=False, how="info", since=12.0)
    story.end = 2


def a_tombstone_repeated_for_long(story: Story) -> None:
    """Its producer was asked to end, and had asked all the time; another one's process was killed."""
    story.compacted = True
    story.sent(0, -1, keys=["a"], tombstones=[0], stored=False, how="info", since=10.0, until=300.0)
    story.sent(0, -1, keys=["b"], tombstones=[0], stored=False, producer="q.p9", since=10.0)
    story.note("broken", who="another.p9", t=300.0)
    story.sent(1, 0, keys=["a"], stored=False, since=310.0)
    story.sent(2, 1, keys=["b"], stored=False)
    story.end = 4


def a_partition_lost_and_got_back(story: Story) -> None:
    """By a member that is not told of its assignments."""
    for number in range(6):
        story.sent(number, number)
    story.poll(0, 1, who="v2-0.p1.0")
    story.commit(2)
    story.poll(2, 3, who="v2-1.p2.0")
    story.commit(4)
    story.poll(4, 5, who="v2-0.p1.0")


def copies_behind(story: Story) -> None:
    """A job copies what there was when it looked, and not what has come since."""
    good(story)
    one = story.sent(4, 4, since=100.0)
    story.sent(5, 5)
    story.copies.append(("t", 0, 4, one))
    began = {"topic": "t", "producer": "n", "number": 0, "count": 1, "acks": "all"}
    story.call("produce", began, {"at": [[1, 0]]}, since=50.0)
    story.more[T1] = Stored({0: (None, "n:0:0")}, 0, 1)


def compaction(story: Story) -> None:
    story.compacted = True
    story.sent(0, 0, keys=["a"], stored=False)
    story.sent(1, 1, keys=["b"], stored=False)
    story.sent(2, 2, keys=["a"])
    story.sent(3, 3, keys=["b"], tombstones=[0], stored=False)
    story.end = 4


def reads_of_a_compacted_log(story: Story) -> None:
    compaction(story)
    story.read(0, (2, "p:2:0"), hw=4, next=4)
    story.read(3, hw=4, next=4)
    story.copies = [("t", 0, 0, "p:0:0"), ("t", 0, 2, "p:2:0")]


def rebalance(story: Story) -> None:
    for number in range(4):
        story.sent(number, number)
    story.joined(1, 0, 1, member="m")
    story.note("assigned", partitions=[["t", 0]])
    story.poll(0, 1)
    story.joined(2, 1, member="m")
    story.joined(2, 0, member="n")
    story.commit(2, generation=1, how="fail")
    story.note("assigned", who="n.0", partitions=[["t", 0]])
    story.poll(0, 1, 2, 3, who="n.0")
    story.note("assigned", partitions=[["t", 0]])
    story.poll(1, 2, asked=[["t", 0, 1]])
    story.commit(4, generation=2)


def two_services(story: Story) -> None:
    story.trims = True
    story.sent(0, 0)
    story.sent(1, 1)
    story.sent(2, 2)
    story.start, story.rows = 2, {2: story.rows[2]}
    story.call("position", {"topic": "t", "partition": 0}, {"start": 2}, since=50, until=51)
    story.call("position", {"topic": "t", "partition": 0}, {"start": 0}, since=52, until=53)
    story.read(2, (2, "p:2:0"), hw=3, next=3, start=2)
    story.read(2, hw=2, next=2, start=2)
    story.note("two", since=49.0, until=60.0)


GOOD = [
    nothing,
    good,
    retention,
    doubt,
    given_up,
    take_over,
    take_over_after_a_long_storm,
    a_tombstone_lost_to_another,
    topic_deleted,
    topic_deleted_perhaps,
    topic_made_again,
    a_batch,
    a_tombstone_in_doubt,
    a_tombstone_repeated_for_long,
    a_partition_lost_and_got_back,
    copies_behind,
    compaction,
    reads_of_a_compacted_log,
    rebalance,
    two_services,
]
