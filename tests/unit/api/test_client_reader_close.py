"""A reader that is closed leaves no thread at work: an interpreter that ends beside one is aborted."""

from __future__ import annotations

import threading
from typing import Any, cast

from sluice.api.client_reader import Reader, Source
from sluice.api.client_values import Fetched, PartitionOffsets


class SlowSource:
    """Every fetch takes its time, as one that decodes much does."""

    def __init__(self) -> None:
        self.begun = threading.Event()

    def offsets(self, _topic: str) -> list[PartitionOffsets]:
        return [PartitionOffsets(partition=number, earliest=0, latest=100) for number in range(3)]

    def fetch(self, _topic: str, _partition: int, position: int, **_limits: Any) -> Fetched:
        self.begun.set()
        threading.Event().wait(0.1)
        return cast("Fetched", Answer(position + 1))


class Answer:
    records = (None,)

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset


def test_close_waits_for_threads_at_work() -> None:
    source = SlowSource()
    with Reader(cast("Source", source), "t") as reader:
        next(reader.batches())
    assert source.begun.is_set()
    assert [one.name for one in threading.enumerate() if one.name.startswith("sluice-reader-")] == []
