"""Where a v2 consumer instance begins, and what it commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sluice.api.client_consumer_positions import Positions
from sluice.api.groups_requests import Later, in_time, ready
from sluice.api.service import Service
from sluice.log_store.errors import InvalidRequest, OffsetOutOfRange, SluiceError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import Committed
from sluice.streaming.groups.events import Commit
from sluice.streaming.groups.offsets import metadata_refusal

AUTO_COMMIT_S = 5.0
AGAIN_S = 1.0
"""After a commit that failed."""
Wanted = Mapping[TopicPartition, tuple[int, str]]
"""Next offsets to read, with a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOptions:
    name: str
    format: str
    reset: str
    auto_commit: bool
    min_bytes: int
    timeout_ms: int


class InstanceOffsets:
    def __init__(self, service: Service, group_id: str, options: InstanceOptions, positions: Positions) -> None:
        self._service = service
        self._group_id = group_id
        self._options = options
        self._positions = positions
        self.identity: Callable[[], Commit] = Commit
        """Who commits: nobody in particular, unless the instance is a member."""
        self._commit_at = self._now() + AUTO_COMMIT_S

    def _now(self) -> float:
        return self._service.log.runtime.clock.boottime()

    def partition(self, where: TopicPartition) -> PartitionLog:
        return self._service.log.partition(where.topic, where.partition)

    async def opened(self, where: TopicPartition) -> PartitionLog:
        partition = self.partition(where)
        if not partition.opened:
            await self._service.reading(partition.open)
        return partition

    # --- positions and commits -------------------------------------------------------------------

    async def place_all(self) -> None:
        unplaced = self._positions.unplaced()
        if not unplaced:
            return
        committed = await self.committed()
        for where in unplaced:
            fallen = self._positions.fell_out(where)
            if where in committed and not fallen:
                self._positions.place(where, committed[where].offset, committed=True)
            elif self._options.reset == "none":
                rule = "the position is not in the log" if fallen else "nothing is committed"
                raise OffsetOutOfRange(f"{where}: {rule}, and auto.offset.reset is none")
            else:
                offset = await self.end_of(where, 0 if self._options.reset == "earliest" else 1)
                if where in self._positions:  # the group may have taken it away meanwhile
                    self._positions.place(where, offset, committed=False)

    async def end_of(self, where: TopicPartition, which: int) -> int:
        partition = await self.opened(where)
        return partition.high_watermark if which else partition.log_start

    async def offset_at(self, where: TopicPartition, timestamp_ms: int) -> int:
        partition = await self.opened(where)
        found = await self._service.reading(lambda: PartitionReads(partition).at_time(timestamp_ms).offset)
        return found if found >= 0 else partition.high_watermark

    async def committed(self) -> Mapping[TopicPartition, Committed]:
        await ready(self._service, self._group_id)
        return self._service.groups.offsets(self._group_id)

    async def commit(self, wanted: Wanted) -> None:
        if not wanted:
            return
        service = self._service
        now_ms, most = service.log.runtime.clock.wall_ms(), service.groups.context.settings.offset_metadata_max_bytes
        offsets = {}
        for where, (offset, text) in wanted.items():
            meta = service.log.catalog.state.get(where.topic)
            meta.partition(where.partition)
            if offset < 0:
                raise InvalidRequest(f"offset of {where}: must not be negative", field="offset")
            refusal = metadata_refusal(text, most)
            if refusal is not None:
                raise refusal.exception()
            offsets[where] = Committed(offset=offset, metadata=text, commit_ms=now_ms, topic_id=meta.topic_id)
        await ready(service, self._group_id, write=True)
        later: Later[SluiceError | None] = Later(service)
        service.groups.commit(self._group_id, self.identity(), offsets, later.set, asyncio.get_running_loop().call_soon)
        error = await in_time(service, later)
        if error is not None:
            raise error
        self._positions.committed({where: offset for where, (offset, _) in wanted.items()})

    async def auto_commit_if_due(self) -> None:
        if self._now() >= self._commit_at:
            await self.auto_commit()

    async def auto_commit(self) -> None:
        """What earlier polls handed out. A refusal is no loss: it will be read again."""
        self._commit_at = self._now() + AUTO_COMMIT_S
        if not self._options.auto_commit:
            return
        try:
            await self.commit({where: (offset, "") for where, offset in self._positions.to_commit().items()})
        except SluiceError:
            self._commit_at = self._now() + AGAIN_S
