"""Create one Delta version: put-if-absent, read-back, and no answer while in doubt (I-2, R-4)."""

from __future__ import annotations

from sluice.log_store.errors import StorageError
from sluice.log_store.store import Store, StoreConflict, StoreNotFound


def put_version(store: Store, path: str, data: bytes, *, sync: bool = False) -> bytes | None:
    """Put a commit. None: it is there and it is ours. Bytes: the commit of somebody else that holds the version.

    A StorageError means doubt: the put may have been applied or may yet be. The caller must call again with the very
    same bytes and put nothing else at or above this version until it gets one of the other two answers.
    """
    try:
        store.put_if_absent(path, data, sync=sync)
        return None
    except StoreConflict:
        # Clients of object stores retry by themselves: "exists" may be our own first try.
        winner = _read_back(store, path)
    except StorageError as error:
        try:
            winner = _read_back(store, path)
        except StorageError:
            raise error from None
    # The unique id inside makes equal bytes the same commit.
    return None if winner == data else winner


def _read_back(store: Store, path: str) -> bytes:
    try:
        return store.get(path)
    except StoreNotFound as error:
        raise StorageError(f"the outcome of putting {path} is not known yet") from error
