"""A large object as a file of which only what is read is fetched."""

from __future__ import annotations

import io
import os

from sluice.log_store.store import Store


class RangedFile(io.RawIOBase):
    """One request per read. It may vanish on the way: then a read raises StoreNotFound."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size, self._position = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._size - self._position)
        wanted = rest if size < 0 else min(size, rest)
        data = self._store.get_range(self._path, self._position, wanted) if wanted else b""
        self._position += len(data)
        return data
