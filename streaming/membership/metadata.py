"""What a consumer subscribes to, and whether the topics have changed since it joined."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.membership.options import COOPERATIVE, MemberOptions


class Metadata:
    """Used by one thread at a time: the group's, which asks before each join and refreshes in between."""

    def __init__(self, list_topics: Callable[[], Mapping[str, int]], options: MemberOptions) -> None:
        self._list_topics = list_topics
        self._options = options
        self._topics: tuple[str, ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._seen: Mapping[str, int] = {}
        self._led: frozenset[str] = frozenset()

    def subscribe(self, topics: Collection[str] | None, pattern: str | None) -> None:
        if (topics is None) == (pattern is None):
            raise InvalidRequest("subscribe: give topics or a pattern, not both", field="topics")
        if isinstance(topics, str):
            raise InvalidRequest("subscribe: topics must be a list of names", field="topics")
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise InvalidRequest(f"pattern: {error}", field="pattern") from None
        self._topics = tuple(dict.fromkeys(topics or ()))

    @property
    def by_pattern(self) -> bool:
        return self._pattern is not None

    def for_join(self, owned: Collection[TopicPartition], generation: int) -> dict[str, dict[str, Any]]:
        """Per strategy. A pattern is matched against the topics that there are now."""
        self._seen = self._list_topics()
        topics = self._matching(self._seen)
        return {
            name: _subscription(topics, owned if self._tells(name) else (), generation)
            for name in self._options.partition_assignment_strategy
        }

    def lead(self, topics: frozenset[str]) -> None:
        """This member leads: the topics of all are its business."""
        self._led = topics

    def refresh(self, *, with_partitions: bool) -> str | None:
        """Why to join again; None: nothing changed."""
        before, now = self._seen, self._list_topics()
        if self._matching(before) != self._matching(now):
            return "other topics match the pattern"
        if with_partitions:
            changed = [topic for topic in sorted(self._led) if before.get(topic) != now.get(topic)]
            if changed:
                return f"partitions of {changed[0]} changed"
        return None

    def _matching(self, known: Mapping[str, int]) -> tuple[str, ...]:
        if self._pattern is None:
            return self._topics
        return tuple(sorted(topic for topic in known if self._pattern.fullmatch(topic)))

    def _tells(self, strategy: str) -> bool:
        """`sticky` looks at what was owned before. The cooperative one withholds what is still owned: only say so then,
        because an eager member has given everything up before it joins."""
        return strategy == "sticky" or (strategy in COOPERATIVE and self._options.cooperative)


def _subscription(topics: tuple[str, ...], owned: Collection[TopicPartition], generation: int) -> dict[str, Any]:
    return {
        "topics": list(topics),
        "owned_partitions": [[one.topic, one.partition] for one in owned],
        "generation": generation if owned else -1,
        "user_data": None,
    }
