"""The file that is being written."""

from __future__ import annotations

import os

from sluice.log_store.wal_files import write_all
from sluice.log_store.wal_format import FileEncoder, FileHeader
from sluice.log_store.wal_ops import AppendOp, Op
from sluice.log_store.wal_pool import ReadyFile

_MAX_RESERVE = 4096


class ActiveFile:
    def __init__(self, ready: ReadyFile, header: FileHeader) -> None:
        self.fd = ready.fd
        self.seq = ready.seq
        self.size = ready.size
        self.encoder = FileEncoder(header)
        self.durable_end = 0
        self.used = False

    def fits(self, op: Op) -> bool:
        """A new file takes anything, so that an entry larger than a file gets one of its own size.

        Batches leave a little room, so that on a full disk the sync point that frees space can be written.
        """
        if not self.used:
            return True
        room = self.room if isinstance(op, AppendOp) else self.size - self.encoder.position
        return op.cost(self.encoder) <= room

    @property
    def room(self) -> int:
        return self.size - self.encoder.position - min(_MAX_RESERVE, self.size // 16)

    def encode(self, op: Op) -> None:
        op.encode(self.encoder)
        self.used = True

    def write(self, *, fsync: bool) -> None:
        write_all(self.fd, self.encoder.drain(), self.durable_end)
        if fsync:
            os.fdatasync(self.fd)
        self.durable_end = self.encoder.position
