"""What was there when a group began: `startingOffsets` are for that alone.

Whatever came later, a topic of a pattern, partitions that a topic gained, a topic that was made anew, is read from its
first record, whoever takes it: also by a query that was not running when it came, and by one that joins later. So every
commit of a query notes since when there is a group, and how many partitions its topic had then. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sluice.streaming.membership.offsets import CommittedOffset

PARTITIONS, SINCE = "partitions", "since"


@dataclass(frozen=True, slots=True)
class Beginning:
    """By the commits of a group; without any it begins now."""

    since_ms: int | None
    partitions: Mapping[str, int] = field(hash=False)
    """By topic id. Members may have looked at different moments: the fewest count, so that nothing is passed over."""
    topic_ids: frozenset[str]
    """Of everything that is committed."""

    @classmethod
    def of(cls, commits: Iterable[CommittedOffset]) -> Beginning:
        times: list[int] = []
        counts: dict[str, int] = {}
        topic_ids: set[str] = set()
        for commit in commits:
            noted = _noted(commit.metadata)
            times += [ms for ms in (noted.get(SINCE), commit.commit_timestamp_ms) if ms is not None]
            if commit.topic_id is None:
                continue
            topic_ids.add(commit.topic_id)
            if (count := noted.get(PARTITIONS)) is not None:
                counts[commit.topic_id] = min(count, counts.get(commit.topic_id, count))
        return cls(min(times, default=None), counts, frozenset(topic_ids))

    def partitions_then(self, topic_id: str, created_ms: int, partitions: int, *, resumed: bool) -> int:
        """How many partitions of a topic were there; it has `partitions` as far as a member knows.

        `resumed`: the member has read before, by its checkpoint. A topic that its group knows nothing of is new to it.
        """
        if self.since_ms is not None and created_ms > self.since_ms:
            return 0
        if resumed and topic_id not in self.topic_ids:
            return 0
        return min(self.partitions.get(topic_id, partitions), partitions)

    def note(self, partitions: int, now_ms: int) -> str:
        """For the metadata of a commit."""
        since = now_ms if self.since_ms is None else self.since_ms
        return json.dumps({PARTITIONS: partitions, SINCE: since}, separators=(",", ":"))


def _noted(metadata: str) -> dict[str, int]:
    """Nothing, if somebody else committed: their metadata is theirs."""
    try:
        found = json.loads(metadata)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: found[name] for name in (PARTITIONS, SINCE) if type(found.get(name)) is int}
