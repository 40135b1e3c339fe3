"""Who may produce idempotently: ids that are never given twice, and names that keep theirs.

Ids come from durable blocks: a block is reserved by a record before its first id is handed out, so a restart
skips what is left of the old block and can never give an id again. Partition-mode ids are even, topic-mode
ids odd, so an id tells its mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sluice.log_store.catalog_records import Change, record
from sluice.log_store.errors import CorruptData, InvalidProducerEpoch, InvalidRequest
from sluice.log_store.producer_window import MAX_EPOCH
from sluice.log_store.values import TOPIC_MODE_BIT, ProducerStamp

BLOCK = 1000
MAX_PRODUCER_NAME = 249

BLOCK_TYPE = "producer_block"
NAMED_TYPE = "producer"


class ProducerMode(StrEnum):
    PARTITION = "partition"
    TOPIC = "topic"

    @property
    def bit(self) -> int:
        return TOPIC_MODE_BIT if self is ProducerMode.TOPIC else 0


def parse_mode(text: str) -> ProducerMode:
    try:
        return ProducerMode(text)
    except ValueError:
        raise InvalidRequest(f"producer mode {text!r}: must be partition or topic", mode=text) from None


@dataclass(frozen=True, slots=True)
class ProducerBlock:
    """The ids `2 i + mode bit` for `start <= i < end`."""

    mode: ProducerMode
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NamedProducer:
    name: str
    producer_id: int
    epoch: int
    mode: ProducerMode
    retired: tuple[int, ...] = ()
    """Ids whose epochs were used up. They stay fenced: an instance may still hold one with its last epoch."""

    @property
    def ids(self) -> tuple[int, ...]:
        return (self.producer_id, *self.retired)


class ProducerIds:
    """Hands out the ids of reserved blocks. In memory only: what is left over at a crash is never used."""

    def __init__(self) -> None:
        self._blocks: dict[ProducerMode, ProducerBlock] = {}

    def refill(self, block: ProducerBlock) -> None:
        """Only with a block whose reservation is committed."""
        self._blocks[block.mode] = block

    def take(self, mode: ProducerMode) -> int | None:
        """The next id, or None: reserve a block first."""
        block = self._blocks.get(mode)
        if block is None or block.start >= block.end:
            return None
        self._blocks[mode] = ProducerBlock(mode, block.start + 1, block.end)
        return block.start * 2 + mode.bit


class ProducerRegistry:
    """The durable part: next free block of each mode, and the named producers. Changed by `apply` alone."""

    def __init__(self) -> None:
        self._next_block: dict[ProducerMode, int] = {}
        self._named: dict[str, NamedProducer] = {}
        self._by_id: dict[int, NamedProducer] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerRegistry):
            return NotImplemented
        return (self._next_block, self._named, self._by_id) == (other._next_block, other._named, other._by_id)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def get(self, name: str) -> NamedProducer | None:
        return self._named.get(name)

    def current_epoch(self, producer_id: int) -> int | None:
        """The only epoch a named producer's id may write with; None for an id without a name, or a retired one."""
        named = self._by_id.get(producer_id)
        return named.epoch if named is not None and named.producer_id == producer_id else None

    def check_epoch(self, stamp: ProducerStamp) -> None:
        """Refuse all but the newest instance of a named producer, also on partitions it has not written to yet.

        The answer is INVALID_PRODUCER_EPOCH (47), as Kafka's partitions answer since 2.7; PRODUCER_FENCED belongs to
        its transaction coordinator. An epoch above the one handed out is made up: it would fence the rightful owner.
        """
        named = self._by_id.get(stamp.producer_id)
        if named is None or (stamp.producer_id, stamp.epoch) == (named.producer_id, named.epoch):
            return
        raise InvalidProducerEpoch(
            f"producer {named.name!r} writes as id {named.producer_id} epoch {named.epoch}, "
            f"not as id {stamp.producer_id} epoch {stamp.epoch}",
            producer_id=stamp.producer_id,
            epoch=stamp.epoch,
            current_epoch=named.epoch,
        )

    # --- commands ------------------------------------------------------------------------------

    def reserve_block(self, mode: ProducerMode) -> Change[ProducerBlock]:
        start = self._next_block.get(mode, 0)
        block = ProducerBlock(mode, start, start + BLOCK)
        return Change((record({"type": BLOCK_TYPE, "mode": mode.value}, {"next": block.end}),), block)

    def needs_id(self, name: str) -> bool:
        """Will the next `init` of this name use its `fresh_id`?"""
        known = self._named.get(name)
        return known is None or known.epoch >= MAX_EPOCH

    def init(self, name: str, mode: ProducerMode, fresh_id: int | None) -> Change[NamedProducer]:
        """A new instance of a named producer: same id, epoch + 1, which fences the one before it (R-9)."""
        if not 1 <= len(name) <= MAX_PRODUCER_NAME:
            raise InvalidRequest(f"name: must be 1 to {MAX_PRODUCER_NAME} characters", field="name")
        known = self._named.get(name)
        if known is not None and known.mode is not mode:
            raise InvalidRequest(f"producer {name!r} was created for mode {known.mode}, not {mode}", name=name)
        if known is not None and not self.needs_id(name):
            return _init(NamedProducer(name, known.producer_id, known.epoch + 1, mode, known.retired))
        if fresh_id is None or fresh_id < 0 or fresh_id & TOPIC_MODE_BIT != mode.bit or fresh_id in self._by_id:
            raise ValueError(f"{fresh_id} is no fresh producer id of mode {mode}")
        retired = (*known.retired, known.producer_id) if known is not None else ()
        return _init(NamedProducer(name, fresh_id, 0, mode, retired))

    # --- replay --------------------------------------------------------------------------------

    def apply_block(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        if value is None:
            raise CorruptData("the record of a producer block was deleted: its ids could be given again")
        mode = ProducerMode(key["mode"])
        self._next_block[mode] = max(self._next_block.get(mode, 0), int(value["next"]))

    def apply_named(self, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        name = str(key["name"])
        named = None if value is None else _named_from_json(name, value)
        before = self._named.pop(name, None)
        for producer_id in before.ids if before is not None else ():
            del self._by_id[producer_id]
        if named is not None:
            self._named[name] = named
            self._by_id.update(dict.fromkeys(named.ids, named))


def _named_from_json(name: str, value: dict[str, Any]) -> NamedProducer:
    retired = tuple(int(producer_id) for producer_id in value["retired"])
    return NamedProducer(name, int(value["id"]), int(value["epoch"]), ProducerMode(value["mode"]), retired)


def _init(named: NamedProducer) -> Change[NamedProducer]:
    value = {
        "id": named.producer_id,
        "epoch": named.epoch,
        "mode": named.mode.value,
        "retired": list(named.retired),
    }
    return Change((record({"type": NAMED_TYPE, "name": named.name}, value),), named)
