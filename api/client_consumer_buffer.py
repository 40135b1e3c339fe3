"""What a consumer has fetched and not handed out yet: at most one answer for each partition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from sluice.api.client_consumer_positions import Question
from sluice.log_store.values import TopicPartition


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition, in order. `next_offset` is where to go on when they are dealt with."""

    question: Question
    table: pa.Table
    next_offset: int

    @property
    def partition(self) -> TopicPartition:
        return self.question.partition


class Buffer:
    """Partitions take turns; within one the order is that of the log."""

    def __init__(self) -> None:
        self._pieces: dict[TopicPartition, Piece] = {}
        self.bytes = 0

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._pieces

    def put(self, piece: Piece) -> None:
        self.forget([piece.partition])
        self._pieces[piece.partition] = piece
        self.bytes += piece.table.nbytes

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            piece = self._pieces.pop(partition, None)
            if piece is not None:
                self.bytes -= piece.table.nbytes

    def take(
        self, most: int, wanted: Callable[[Question], bool], held_back: Callable[[TopicPartition], bool]
    ) -> list[Piece]:
        """Up to `most` rows. What is not `wanted` any more is thrown away; what is held back stays for later."""
        taken: list[Piece] = []
        for partition in list(self._pieces):
            if most <= 0:
                break
            if not wanted(self._pieces[partition].question):
                self.forget([partition])
            elif not held_back(partition):
                piece = self._cut(partition, most)
                taken.append(piece)
                most -= piece.table.num_rows
        return taken

    def _cut(self, partition: TopicPartition, most: int) -> Piece:
        """The first rows; what is left moves to the end of the queue."""
        whole = self._pieces[partition]
        self.forget([partition])
        if whole.table.num_rows <= most:
            return whole
        first, rest = whole.table.slice(0, most), whole.table.slice(most)
        self._pieces[partition] = Piece(whole.question, rest, whole.next_offset)
        self.bytes += rest.nbytes
        return Piece(whole.question, first, first.column("offset")[-1].as_py() + 1)
